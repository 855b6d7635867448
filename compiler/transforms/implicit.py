"""Derivatives of what an equation defines: `custom_root`; and `closure_convert`, which shows what a function reads.

A function under `closure_convert` is traced anew at each call, and what it closes over replaced by what is passed: so
it can be differentiated with respect to it, as often as the place where it is called asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import jax.tree_util
import numpy as np

from rematc.compiler.control_flow.leaves import Leaves, executed, line_of
from rematc.compiler.execution.calls import TracedFunction, apply_graph, trace_call
from rematc.compiler.tracing.arguments import CallArguments, Function, function_name
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.compiler.transforms.custom_derivatives import custom_jvp
from rematc.compiler.transforms.differentiation import jvp, linearize
from rematc.ir.core import Value
from rematc.ir.errors import CompileError

Solve = Callable[[Callable[..., object], object], object]


def closure_convert(fun: Callable[..., object], *example_args: object) -> tuple[Callable[..., object], list[object]]:
    """`fun` with the traced values that it closes over as arguments; the meaning is `jax.closure_convert`'s.

    A custom rule knows derivatives by arguments alone. A function that is handed to one, in `nondiff_argnums`, may
    close over values that are differentiated; so these become arguments:

        converted, hoisted = rematc.closure_convert(objective, x)
        return minimize(converted, x, *hoisted)

    Args:
        fun: a function of arrays and pytrees.
        example_args: arguments like those that it will be called with.

    Returns:
        (a function of the same arguments and then the hoisted values, the hoisted values): those that `fun` closes
        over, are traced, and are floating-point or complex. Outside all traces there are none.
    """
    if current_trace() is None:
        return fun, []
    hoisted = _closed_over(trace_call(fun, CallArguments.of(fun, example_args, {})))
    keys = [tracer.value for tracer in hoisted]

    def converted(*args: object) -> object:
        if len(args) < len(keys):
            raise CompileError(
                f"'{function_name(fun)}', whose closure was converted, takes its arguments and then the {len(keys)} "
                f"hoisted values; got {len(args)} arguments",
                user_location(),
            )
        count = len(args) - len(keys)
        return _substituted(fun, args[:count], dict(zip(keys, args[count:], strict=True)))

    converted.__name__ = converted.__qualname__ = function_name(fun)
    return converted, list(hoisted)


def _closed_over(*functions: TracedFunction) -> list[Tracer]:
    """What functions close over and may be differentiated, each once."""
    found = {tracer.value: tracer for traced in functions for tracer in traced.captures}
    return [tracer for tracer in found.values() if tracer.value.type.dtype.is_inexact]


def _substituted(fun: Function, args: Sequence[object], values: Mapping[Value, object]) -> object:
    """`fun(*args)` with these values in place of tracers that it closes over."""
    call = CallArguments.of(fun, args, {})
    traced = trace_call(fun, call)
    require_trace().records.extend(traced.records)
    closure = [values.get(tracer.value, tracer) for tracer in traced.captures]
    results = apply_graph(traced.graph, (*call.arrays, *closure), traced.out_weak)
    return jax.tree_util.tree_unflatten(traced.out_tree, results)


def custom_root(
    f: Callable[..., object], initial_guess: object, solve: Solve, tangent_solve: Solve, has_aux: bool = False
) -> object:
    """A root of `f`, with the derivative that the equation `f(root) = 0` implies; as `jax.lax.custom_root`.

    The derivative is with respect to what `f` closes over, and independent of how the root is found: for F(x, p) = 0
    it is dx = -(∂F/∂x)⁻¹ (∂F/∂p) dp, by the implicit function theorem. It holds forwards, backwards, and for further
    derivatives. `solve` is never differentiated, so it may loop with `while_loop`.

    Args:
        f: from a pytree of floating-point arrays to one of the same structure and types.
        initial_guess: where the search starts. The root does not depend on it.
        solve: `(f, initial_guess) -> root`, or `(root, aux)` with `has_aux`.
        tangent_solve: `(g, y) -> x` with g(x) = y, for g the linear map that `f` is at the root; linear in y. For
            scalars `lambda g, y: y / g(1.0)`, for vectors `lambda g, y: np.linalg.solve(rematc.jacobian(g)(y), y)`.
        has_aux: whether `solve` returns auxiliary data beside the root; these have no derivative.

    Raises:
        CompileError: at the user's line, where `f`, `solve` or `tangent_solve` give another structure or other types
            than the guess has.
    """
    if current_trace() is None:
        return executed(lambda guess: custom_root(f, guess, solve, tangent_solve, has_aux), initial_guess)
    guess = _floating(initial_guess)

    def find(start: object) -> object:
        return solve(f, start)

    find.__name__ = function_name(solve)
    of_f, of_solve = (trace_call(one, CallArguments.of(one, (guess,), {})) for one in (f, find))
    expected = Leaves.of("initial_guess", guess)
    _check("f", of_f, of_f.out_tree, expected)
    _check("solve", of_solve, _solution_tree(of_solve, has_aux), expected)
    closure = _closed_over(of_f, of_solve)
    keys = [tracer.value for tracer in closure]

    def root(start: object, values: list[object]) -> object:
        return _substituted(find, (start,), dict(zip(keys, values, strict=True)))

    root.__name__ = f"root_of_{function_name(f)}"

    def root_jvp(primals: tuple[object, list[object]], tangents: tuple[object, list[object]]) -> tuple[object, object]:
        (start, values), (_, value_tangents) = primals, tangents
        found = differentiable(start, values)
        solution = cast(tuple[object, object], found)[0] if has_aux else found

        def at_solution(values: list[object]) -> object:
            return _substituted(f, (solution,), dict(zip(keys, values, strict=True)))

        def of_solution(x: object) -> object:
            return _substituted(f, (x,), dict(zip(keys, values, strict=True)))

        _, right = jvp(at_solution, (values,), (value_tangents,))
        _, linear = linearize(of_solution, solution)
        moved = jax.tree_util.tree_map(np.negative, tangent_solve(linear, right))
        return found, (moved, None) if has_aux else moved

    root_jvp.__name__ = f"tangent_of_{root.__name__}"
    differentiable = custom_jvp(root)
    differentiable.defjvp(root_jvp)
    return differentiable(guess, list(closure))


def _floating(tree: object) -> object:
    """The tree with Python's numbers as arrays. Raises CompileError for what is no float."""
    leaves = Leaves.of("initial_guess", tree)
    for path, type in zip(leaves.paths, leaves.types, strict=True):
        if not type.dtype.is_inexact:
            raise CompileError(
                f"initial_guess{path} of custom_root is {type}, expected floating-point values; convert it with astype",
                user_location(),
            )
    return tree


def _solution_tree(traced: TracedFunction, has_aux: bool) -> jax.tree_util.PyTreeDef:
    tree = traced.out_tree
    if not has_aux:
        return tree
    children = tree.children()
    if len(children) != 2 or tree.node_data()[0] is not tuple:
        raise CompileError(f"with has_aux solve returns (root, aux), got {tree}", user_location())
    return children[0]


def _check(what: str, traced: TracedFunction, tree: jax.tree_util.PyTreeDef, guess: Leaves) -> None:
    """Raise CompileError unless the first results of a function are like the guess."""
    name = traced.graph.name
    if tree != guess.tree:
        raise CompileError(
            f"'{name}', the {what} of custom_root, returns {tree}; expected the structure of the guess, {guess.tree}",
            user_location(),
        )
    for index, (path, type) in enumerate(zip(guess.paths, guess.types, strict=True)):
        value = traced.graph.results[index]
        is_weak = traced.out_weak[index] or guess.weak[index]
        if value.type.shape != type.shape or (value.type != type and not is_weak):
            raise CompileError(
                f"output{path} of '{name}', the {what} of custom_root, is {value.type}; expected {type}, the type of "
                "the guess",
                line_of(value, traced.graph),
            )
