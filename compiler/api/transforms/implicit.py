"""Derivatives of what an equation defines: `custom_root`, `custom_linear_solve`; and `closure_convert`.

A function under `closure_convert` is traced anew at each call, and what it closes over replaced by what is passed: so
it can be differentiated with respect to it, as often as the place where it is called asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import jax.tree_util
import numpy as np

from rematc.compiler.api.leaves import Leaves, executed, line_of
from rematc.compiler.api.transforms.custom_jvp import custom_jvp
from rematc.compiler.api.transforms.differentiation import jvp, linearize, vjp
from rematc.compiler.functions.calls import TracedFunction, apply_graph, trace_call
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.values import Value
from rematc.lowering.signature import Function, function_name

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
    guess = _floating(initial_guess, "initial_guess of custom_root")

    def find(start: object) -> object:
        return solve(f, start)

    find.__name__ = function_name(solve)
    of_f, of_solve = (trace_call(one, CallArguments.of(one, (guess,), {})) for one in (f, find))
    expected = Leaves.of("initial_guess", guess)
    _check("f of custom_root", of_f, of_f.out_tree, expected)
    _check("solve of custom_root", of_solve, _solution_tree(of_solve, has_aux), expected)
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


def custom_linear_solve(
    matvec: Callable[..., object],
    b: object,
    solve: Solve,
    transpose_solve: Solve | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> object:
    """The solution of `matvec(x) = b`, with the derivative that the equation implies; as `jax.lax.custom_linear_solve`.

    For A x = b it is dx = A⁻¹ (db - dA x), by another solution of the same system; backwards it takes a solution of
    the transposed one. `solve` is never differentiated, so it may loop with `while_loop`.

    Args:
        matvec: the linear map, from a pytree of floating-point arrays to one of the same structure and types.
        b: the right-hand side.
        solve: `(matvec, b) -> x`, or `(x, aux)` with `has_aux`.
        transpose_solve: the same for the transposed map, which it is given. Reverse mode needs it.
        symmetric: whether the map is its own transpose, and `solve` serves for both.
        has_aux: whether `solve` and `transpose_solve` return auxiliary data, which have no derivative.

    Raises:
        CompileError: at the user's line, where a function gives another structure or other types than `b` has.
    """
    if current_trace() is None:
        return executed(lambda b: custom_linear_solve(matvec, b, solve, transpose_solve, symmetric, has_aux), b)
    system = _System(matvec, solve, solve if symmetric else transpose_solve, symmetric, has_aux)
    return _solution(system, _floating(b, "b of custom_linear_solve"), is_transposed=False)


@dataclass(frozen=True, slots=True)
class _System:
    """A linear system.

    Attributes:
        matvec: its map.
        solve: finds a solution.
        transpose_solve: finds one of the transposed system.
        is_symmetric: whether that is the same.
        has_aux: whether they return auxiliary data beside solutions.
    """

    matvec: Function
    solve: Solve
    transpose_solve: Solve | None
    is_symmetric: bool
    has_aux: bool

    def transposed(self, like: object) -> _System:
        """The system of the transposed map, for vectors like this one."""
        assert self.transpose_solve is not None
        _, pull = vjp(self.matvec, jax.tree_util.tree_map(np.zeros_like, like))
        pull_back = cast(Callable[[object], tuple[object]], pull)

        def vecmat(y: object) -> object:
            return pull_back(y)[0]

        matvec = self.matvec if self.is_symmetric else vecmat
        return _System(matvec, self.transpose_solve, self.solve, self.is_symmetric, self.has_aux)


def _solution(system: _System, b: object, is_transposed: bool) -> object:
    """The solution, recorded with its rules. That of a transposed system has no transpose: it was taken already."""

    def find(right: object) -> object:
        return system.solve(system.matvec, right)

    find.__name__ = function_name(system.solve)
    of_map, of_solve = (trace_call(one, CallArguments.of(one, (b,), {})) for one in (system.matvec, find))
    expected = Leaves.of("b", b)
    _check("matvec of custom_linear_solve", of_map, of_map.out_tree, expected)
    _check("solve of custom_linear_solve", of_solve, _solution_tree(of_solve, system.has_aux), expected)
    closure = _closed_over(of_map, of_solve)
    keys = [tracer.value for tracer in closure]

    def moved(values: Sequence[object]) -> Function:
        return lambda x: _substituted(system.matvec, (x,), dict(zip(keys, values, strict=True)))

    def solution(values: list[object], right: object) -> object:
        return _substituted(find, (right,), dict(zip(keys, values, strict=True)))

    def rule(primals: tuple[list[object], object], tangents: tuple[list[object], object]) -> tuple[object, object]:
        (values, right), (value_tangents, right_tangent) = primals, tangents
        found = inner(values, right)
        x = cast(tuple[object, object], found)[0] if system.has_aux else found
        _, image = jvp(lambda values: moved(values)(x), (values,), (value_tangents,))
        dx = inner(values, jax.tree_util.tree_map(np.subtract, right_tangent, image))
        if system.has_aux:
            return found, (cast(tuple[object, object], dx)[0], None)
        return found, dx

    def adjoint(values: list[object], cts: object) -> object:
        ct = cast(tuple[object, object], cts)[0] if system.has_aux else cts
        found = _solution(replace(system, matvec=moved(values)).transposed(ct), ct, is_transposed=True)
        return cast(tuple[object, object], found)[0] if system.has_aux else found

    solution.__name__ = find.__name__
    inner = custom_jvp(solution)
    inner.defjvp(rule)
    if system.transpose_solve is not None:
        inner.defadjoint(adjoint, 1)
    outer = inner
    if is_transposed:
        outer = custom_jvp(solution)
        outer.defjvp(rule)
    return outer(list(closure), b)


def _floating(tree: object, what: str) -> object:
    """The tree. Raises CompileError for what is no float."""
    leaves = Leaves.of(what, tree)
    for path, type in zip(leaves.paths, leaves.types, strict=True):
        if not type.dtype.is_inexact:
            raise CompileError(
                f"the {what} is {type}{f' at {path}' if path else ''}, expected floating-point values; convert it with "
                "astype",
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
    """Raise CompileError unless the first results of a function are like the guess, or the right-hand side."""
    name = traced.graph.name
    if tree != guess.tree:
        raise CompileError(
            f"'{name}', the {what}, returns {tree}; expected the structure {guess.tree}",
            user_location(),
        )
    for index, (path, type) in enumerate(zip(guess.paths, guess.types, strict=True)):
        value = traced.graph.results[index]
        is_weak = traced.out_weak[index] or guess.weak[index]
        if value.type.shape != type.shape or (value.type != type and not is_weak):
            raise CompileError(
                f"output{path} of '{name}', the {what}, is {value.type}; expected {type}",
                line_of(value, traced.graph),
            )
