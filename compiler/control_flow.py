"""Loops over arrays: `scan`. Outside all traces it is compiled, like any other function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.tree_util
import numpy as np

from rematc.compiler.arguments import CallArguments, Function, function_name, is_array_like, leaf_type
from rematc.compiler.execution import run_graph
from rematc.compiler.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing import TracedFunction, emit_op, trace_call, trace_function
from rematc.compiler.user_location import user_location
from rematc.ir.core import Graph, Value
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.loops import Scan
from rematc.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Leaves:
    """A pytree of arrays, taken apart.

    Attributes:
        values: its leaves.
        tree: how they make it up.
        paths: where each stands: `['h']`, `[0]`, nothing for a lone leaf.
        types: type of each.
        weak: for each, whether it is a Python number.
    """

    values: tuple[object, ...]
    tree: jax.tree_util.PyTreeDef
    paths: tuple[str, ...]
    types: tuple[TensorType, ...]
    weak: tuple[bool, ...]

    @staticmethod
    def of(what: str, tree: object) -> Leaves:
        """Take a tree apart. Raises CompileError, which calls it `what`, for a leaf that is no array."""
        rows, structure = jax.tree_util.tree_flatten_with_path(tree)
        paths = tuple([jax.tree_util.keystr(path) for path, _ in rows])
        values = tuple([np.asarray(leaf) if isinstance(leaf, bool) else leaf for _, leaf in rows])
        for path, value in zip(paths, values, strict=True):
            if not is_array_like(value):
                raise CompileError(
                    f"{what}{path} is a {type(value).__name__}, expected an array or a number", user_location()
                )
        types = [leaf_type(value) for value in values]
        return Leaves(
            values, structure, paths, tuple([one for one, _ in types]), tuple([is_weak for _, is_weak in types])
        )


def scan(
    f: Callable[..., tuple[object, object]],
    init: object,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[object, object]:
    """Loop over the first dimension of arrays and carry state along; the meaning is `jax.lax.scan`'s.

        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, np.stack(ys)

    The function is traced once; program size and compile time do not grow with the number of steps.

    Args:
        f: one step, `(carry, x) -> (carry, y)`; carry, x and y are pytrees of arrays, y may be None.
        init: the first carry. The carry keeps its structure, shapes and element types.
        xs: a pytree of arrays whose first dimension is the steps; None for a loop of `length` steps without slices.
        length: how many steps; needed only without xs.
        reverse: whether the last step comes first; the slices keep their places in ys.
        unroll: how many steps the compiled loop takes at a time; True for all of them.

    Returns:
        (the last carry, the stacked ys).

    Raises:
        CompileError: at the user's line, where a step gives another carry than it takes, or lengths disagree.
    """
    if current_trace() is None:
        return _executed(lambda init, xs: scan(f, init, xs, length, reverse, unroll), init, xs)  # type: ignore[return-value]  # a pair
    carry, slices = Leaves.of("init", init), Leaves.of("xs", xs)
    steps = _length(slices, length)
    traced, carry = _traced_step(f, carry, slices)
    y_tree = _checked_y_tree(f, traced, carry)
    count = len(carry.values)
    graph = _consts_first(traced.graph, count + len(slices.values))
    at_once = max(steps, 1) if unroll is True else max(int(unroll), 1)
    op = Scan(graph, steps, len(traced.captures), count, reverse, min(at_once, max(steps, 1)))
    require_trace().records.extend(traced.records)
    results = emit_op(op, *traced.captures, *_converted(carry), *slices.values)
    for tracer, is_weak in zip(results, traced.out_weak, strict=True):
        tracer.weak = is_weak and tracer.ndim == 0
    last = jax.tree_util.tree_unflatten(carry.tree, results[:count])
    return last, jax.tree_util.tree_unflatten(y_tree, results[count:])


def _executed(record: Function, *operands: object) -> object:
    """Record and run, outside all traces; equal graphs are compiled once."""
    call = CallArguments.of(None, operands, {})
    traced = trace_call(record, call)
    results = run_graph(traced.graph, (*call.arrays, *traced.constants))
    return jax.tree_util.tree_unflatten(traced.out_tree, results)


def _length(slices: Leaves, length: int | None) -> int:
    found = {} if length is None else {int(length): "length"}
    for path, type in zip(slices.paths, slices.types, strict=True):
        if not type.shape:
            raise CompileError(
                f"xs{path} is {type}, expected an array with the steps as its first dimension; "
                "close over what is the same in all steps",
                user_location(),
            )
        found.setdefault(type.shape[0], f"xs{path}")
    if len(found) > 1:
        listed = ", ".join(f"{size} ({what})" for size, what in found.items())
        raise CompileError(f"a scan goes over as many steps as each of xs has, found {listed}", user_location())
    if not found:
        raise CompileError("a scan without xs needs its length", user_location())
    return next(iter(found))


def _traced_step(f: Function, carry: Leaves, slices: Leaves) -> tuple[TracedFunction, Leaves]:
    """One step as a graph; the carry with the types that it has in the loop.

    Python numbers in the first carry yield to the type of what a step makes of them.
    """
    traced = _trace(f, carry, slices)
    count = len(carry.values)
    given = traced.graph.result_types[:count]
    promoted = [
        found if is_weak and found.shape == () and found != type else type
        for found, type, is_weak in zip(given, carry.types, carry.weak, strict=False)
    ]
    if len(given) == count and promoted != list(carry.types):
        weak = tuple(
            is_weak and new == old for is_weak, new, old in zip(carry.weak, promoted, carry.types, strict=True)
        )
        carry = Leaves(carry.values, carry.tree, carry.paths, tuple(promoted), weak)
        traced = _trace(f, carry, slices)
    return traced, carry


def _trace(f: Function, carry: Leaves, slices: Leaves) -> TracedFunction:
    rows = [TensorType(type.dtype, type.shape[1:], type.on_host) for type in slices.types]
    names = [*[f"carry{path}" for path in carry.paths], *[f"x{path}" for path in slices.paths]]
    return trace_function(
        f,
        [*carry.types, *rows],
        [*carry.weak, *[False] * len(rows)],
        names,
        jax.tree_util.treedef_tuple((carry.tree, slices.tree)),
        name=function_name(f),
    )


def _checked_y_tree(f: Function, traced: TracedFunction, carry: Leaves) -> jax.tree_util.PyTreeDef:
    """The tree of y that a step returns; its carry must be of the structure and types that it takes."""
    name, tree = function_name(f), traced.out_tree
    children = tree.children()
    if tree.node_data() is None or tree.node_data()[0] is not tuple or len(children) != 2:
        raise CompileError(f"a step of scan returns (carry, y), '{name}' returns {tree}", user_location())
    given = children[0]
    if given != carry.tree:
        raise CompileError(
            f"'{name}' takes a carry of the structure {carry.tree} and returns one of {given}; "
            "return what has the structure of init",
            user_location(),
        )
    for index, (path, type) in enumerate(zip(carry.paths, carry.types, strict=True)):
        value = traced.graph.results[index]
        if value.type != type:
            raise CompileError(_carry_mismatch(name, path, type, value.type), _line_of(value, traced.graph))
    return children[1]


def _carry_mismatch(name: str, path: str, before: TensorType, after: TensorType) -> str:
    way = "keep its shape"
    if before.shape == after.shape:
        way = f"convert it with astype('{before.dtype.numpy}'), or start with {after}"
    start = user_location()
    place = f" (the loop starts at {start.describe()})" if start else ""
    return f"carry{path} of '{name}' is {before} before a step{place}, but {after} after it; {way}"


def _line_of(value: Value, graph: Graph) -> Location | None:
    for eqn in graph.equations:
        if value in eqn.results:
            return eqn.loc or user_location()
    return user_location()


def _consts_first(graph: Graph, count: int) -> Graph:
    """The graph with what it closes over before its arguments."""
    params = (*graph.params[count:], *graph.params[:count])
    return Graph(graph.name, params, graph.equations, graph.results)


def _converted(carry: Leaves) -> Sequence[object]:
    """The first carries, Python numbers as arrays of the type that they have in the loop."""
    return [
        value if isinstance(value, Tracer) or leaf_type(value)[0] == type else np.asarray(value, type.dtype.numpy)
        for value, type in zip(carry.values, carry.types, strict=True)
    ]
