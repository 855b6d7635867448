"""What `custom_jvp` and `custom_vjp` share: the call taken apart, rules as graphs, and what is wrong with rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import jax.dtypes
import jax.tree_util
import numpy as np

from rematc.compiler.api.leaves import line_of
from rematc.compiler.functions.calls import TracedFunction, emit_op, trace_function
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.derivative_order import derivative_order
from rematc.compiler.tracing.trace import Tracer, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.signature import Function, Owners, function_name


@dataclass(frozen=True, slots=True)
class SymbolicZero:
    """A tangent or cotangent that is zero, given to and taken from rules with `symbolic_zeros=True`.

    Attributes:
        shape: of the array whose tangent it is.
        dtype: of that array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


@dataclass(frozen=True, slots=True)
class CustomVjpPrimal:
    """An argument of a forward rule with `symbolic_zeros=True`.

    Attributes:
        value: the argument's array.
        perturbed: whether it may have a tangent.
    """

    value: object
    perturbed: bool


jax.tree_util.register_pytree_node(
    CustomVjpPrimal,
    lambda primal: ((primal.value,), primal.perturbed),
    lambda perturbed, values: CustomVjpPrimal(values[0], perturbed),
)


@dataclass(frozen=True, slots=True)
class _Slot:
    """Stands for an array of a call in the tree of its arguments."""

    index: int


@dataclass(frozen=True, slots=True)
class Application:
    """One call of a function with a custom rule.

    Attributes:
        function: the function.
        call: its arguments; those that are not differentiated are static.
        nondiff: their positions.
        args: all arguments, by position.
    """

    function: Function
    call: CallArguments
    nondiff: tuple[int, ...]
    args: tuple[object, ...]
    _leaves: tuple[object, ...]
    _tree: jax.tree_util.PyTreeDef

    @staticmethod
    def of(
        function: Function, args: Sequence[object], kwargs: dict[str, object], nondiff: Sequence[int]
    ) -> Application:
        """Take a call apart. Raises CompileError for keywords that have no position, and positions out of range."""
        given = _positional(function, args, kwargs)
        positions = tuple([index + len(given) if index < 0 else index for index in nondiff])
        for index in positions:
            if not 0 <= index < len(given):
                raise CompileError(
                    f"nondiff_argnums names argument {index}, but '{function_name(function)}' was called with "
                    f"{len(given)} arguments",
                    user_location(),
                )
        call = CallArguments.of(function, given, {}, Owners(frozenset(positions), frozenset()))
        slots = [_Slot(index) for index in range(len(call.arrays))]
        marked = call.call(lambda *args: tuple(_without(args, positions)), slots)
        leaves, tree = jax.tree_util.tree_flatten(marked)
        return Application(function, call, positions, given, tuple(leaves), tree)

    @property
    def name(self) -> str:
        return function_name(self.function)

    @property
    def is_inexact(self) -> tuple[bool, ...]:
        """For each array, whether it can have a tangent."""
        return tuple([type.dtype.is_inexact for type in self.call.types])

    @property
    def nondiff_args(self) -> list[object]:
        """The arguments that are not differentiated."""
        return [self.args[index] for index in self.nondiff]

    def differentiable(self, arrays: Sequence[object]) -> tuple[object, ...]:
        """The other arguments, with these in place of the arrays; leaves that are no arrays are as given."""
        leaves = [arrays[leaf.index] if isinstance(leaf, _Slot) else leaf for leaf in self._leaves]
        arguments: tuple[object, ...] = jax.tree_util.tree_unflatten(self._tree, leaves)
        return arguments

    def tangents(self, arrays: Sequence[object]) -> tuple[object, ...]:
        """The same for tangents: leaves that are no arrays have zeros of no type."""
        leaves = [arrays[leaf.index] if isinstance(leaf, _Slot) else no_tangent(()) for leaf in self._leaves]
        arguments: tuple[object, ...] = jax.tree_util.tree_unflatten(self._tree, leaves)
        return arguments

    def perturbed(self) -> tuple[bool, ...]:
        """For each array, whether the innermost derivative may differentiate with respect to it."""
        order = derivative_order()
        return tuple(
            [
                is_inexact and isinstance(array, Tracer) and array.owner.varies(array.value, order)
                for array, is_inexact in zip(self.call.arrays, self.is_inexact, strict=True)
            ]
        )

    def match(self, cts: object) -> list[object]:
        """For each array what stands in its place in a tuple of cotangents, where None is zero for a whole subtree.

        Raises ValueError where the structure is another one.
        """
        found: list[object] = [None] * len(self.call.arrays)

        def note(ct: object, part: object) -> None:
            for leaf in jax.tree_util.tree_leaves(part):
                if isinstance(leaf, _Slot):
                    found[leaf.index] = ct

        arguments = jax.tree_util.tree_unflatten(self._tree, self._leaves)
        if not isinstance(cts, (tuple, list)) or len(cts) != len(arguments):
            raise ValueError("not one cotangent for each argument")
        jax.tree_util.tree_map(note, tuple(cts), arguments, is_leaf=lambda leaf: leaf is None)
        return found

    def structure(self) -> jax.tree_util.PyTreeDef:
        """That of the arguments that are differentiated."""
        return self._tree


def _without(values: Iterable[object], positions: Sequence[int]) -> list[object]:
    return [value for index, value in enumerate(values) if index not in positions]


def _positional(function: Function, args: Sequence[object], kwargs: dict[str, object]) -> tuple[object, ...]:
    """All arguments by position, defaults filled in."""
    try:
        # The `out` and `where` of a NumPy function have no place in a rule.
        signature = None if isinstance(function, np.ufunc) else inspect.signature(function)
    except (TypeError, ValueError):
        signature = None
    if signature is None:
        if kwargs:
            raise CompileError(
                f"'{function_name(function)}' has a custom rule and no signature; pass its arguments by position",
                user_location(),
            )
        return tuple(args)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    passed = [name for name in bound.kwargs if name in kwargs]
    if passed:
        raise CompileError(
            f"'{function_name(function)}' has a custom rule, which takes arguments by position; "
            f"{', '.join(map(repr, passed))} can be given by keyword alone: make it positional",
            user_location(),
        )
    return bound.args


def no_tangent(shape: tuple[int, ...]) -> object:
    """The tangent of an array of integers or booleans: zeros of JAX's type `float0`, which have no bits."""
    return np.zeros(shape, jax.dtypes.float0)


def is_no_tangent(leaf: object) -> bool:
    """Whether a leaf is such zeros, or a symbolic one."""
    return isinstance(leaf, SymbolicZero) or getattr(leaf, "dtype", None) == jax.dtypes.float0


def same_as(types: Sequence[TensorType]) -> jax.tree_util.PyTreeDef:
    """The tree of a tuple of so many arrays."""
    return jax.tree_util.tree_structure((0,) * len(types))


def traced_rule(
    rule: Callable[..., object],
    name: str,
    types: Sequence[TensorType],
    weak: Sequence[bool],
    names: Sequence[str | None],
) -> TracedFunction:
    """Trace a rule of flat arguments."""
    return trace_function(rule, types, weak, names, same_as(types), name=name)


# -- graphs ------------------------------------------------------------------------------------------------------------


class Closure:
    """The tracers that functions of one rule close over, each once."""

    def __init__(self, functions: Iterable[TracedFunction]) -> None:
        self.tracers: dict[Value, Tracer] = {}
        for traced in functions:
            self.tracers.update({tracer.value: tracer for tracer in traced.captures})

    def __len__(self) -> int:
        return len(self.tracers)

    def graph(self, traced: TracedFunction, count: int, results: Sequence[Value] | None = None) -> Graph:
        """The graph with a parameter for each of the tracers after its first `count` parameters."""
        graph, captured = traced.graph, [tracer.value for tracer in traced.captures]
        end = len(graph.params) - len(captured)
        own = dict(zip(captured, graph.params[end:], strict=True))
        values = [own.get(value) or Value(value.type, value.name) for value in self.tracers]
        params = (*graph.params[:count], *values, *graph.params[count:end])
        return Graph(graph.name, params, graph.equations, graph.results if results is None else tuple(results))


# -- errors ------------------------------------------------------------------------------------------------------------


def defined_at(function: Function) -> Location | None:
    """The line where a function is defined, or the user's that is running."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return user_location()
    return Location(code.co_filename, code.co_firstlineno, 0, code.co_name)


def paths_of(tree: jax.tree_util.PyTreeDef, what: str) -> list[str]:
    """What each leaf of a tree is called: `output['a']`."""
    numbered = jax.tree_util.tree_unflatten(tree, range(tree.num_leaves))
    return [what + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(numbered)[0]]


def place_of(value: Value, graph: Graph) -> str:
    """` (at model.py:3)` for a value that an equation computes."""
    loc = line_of(value, graph) if any(value in eqn.results for eqn in graph.equations) else None
    return f" (at {loc.describe()})" if loc else ""


def location_of(value: Value, graph: Graph, rule: Function) -> Location | None:
    """The line that computes a result of a rule, or where the rule is defined."""
    for eqn in graph.equations:
        if value in eqn.results and eqn.loc is not None:
            return eqn.loc
    return defined_at(rule)


def check_primal_outputs(
    what: str, rule: Function, traced: TracedFunction, body: TracedFunction, tree: jax.tree_util.PyTreeDef
) -> None:
    """Raise CompileError unless the first results of a rule are those of its function.

    Args:
        what: `the jvp rule 'f_jvp' of 'f'`.
        rule: the rule.
        traced: its graph.
        body: the function's.
        tree: the structure of the rule's primal outputs.
    """
    name = body.graph.name
    if tree != body.out_tree:
        raise CompileError(
            f"{what} returns primal outputs of the structure {tree}, but '{name}' returns {body.out_tree}",
            defined_at(rule),
        )
    rows = zip(paths_of(tree, "output"), traced.graph.results, body.graph.results, strict=False)
    for index, (path, found, expected) in enumerate(rows):
        is_weak = traced.out_weak[index] or body.out_weak[index]
        if found.type.shape != expected.type.shape or (found.type != expected.type and not is_weak):
            raise CompileError(
                f"{what} returns {found.type} as primal {path}, but '{name}' returns {expected.type} there"
                f"{place_of(expected, body.graph)}",
                location_of(found, traced.graph, rule),
            )


# -- calls -------------------------------------------------------------------------------------------------------------


def positions_of(given: int | Sequence[int]) -> tuple[int, ...]:
    """`nondiff_argnums` as a tuple."""
    return (given,) if isinstance(given, int) else tuple(given)


def inexact(types: Sequence[TensorType]) -> tuple[bool, ...]:
    """For each type, whether it has derivatives."""
    return tuple([type.dtype.is_inexact for type in types])


def with_closure(wrt: tuple[bool, ...], closure: Closure) -> tuple[bool, ...]:
    """The flags of the arguments, then those of what is closed over: it has no derivative."""
    return (*wrt, *(False,) * len(closure))


def structure_of(given: object) -> str:
    """The structure of what a rule returned."""
    return str(jax.tree_util.tree_structure(given))


def emitted(op: CustomDerivative, application: Application, body: TracedFunction, closure: Closure) -> object:
    """Record the op; the function\'s outputs."""
    require_trace().records.extend(body.records)
    results = emit_op(op, *application.call.arrays, *closure.tracers.values())
    for tracer, is_weak in zip(results, body.out_weak, strict=True):
        tracer.weak = is_weak
    return jax.tree_util.tree_unflatten(body.out_tree, results)
