"""Loops over arrays: `scan`. Outside all traces it is compiled, like any other function."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import jax.tree_util
import numpy as np

from rematc.compiler.api.leaves import Leaves, described, executed, line_among, structure_text
from rematc.compiler.api.transforms.checkpointing import checkpoint
from rematc.compiler.functions.calls import TracedFunction, emit_op, trace_function
from rematc.compiler.tracing.trace import current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.scan.op import Scan
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.signature import Function, function_name


def scan(
    f: Callable[..., tuple[object, object]],
    init: object,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    levels: Sequence[int] | None = None,
    snapshots: int | None = None,
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
        levels: lengths of nested loops, outermost first, whose product is the number of steps. Each level keeps only
            its own carries for the backward pass, which takes each step once more for every level: `levels=(32, 32)`
            keeps 64 carries of 1,024 steps, where a checkpointed `f` alone keeps 1,024.
        snapshots: how many carries the backward pass keeps at a time. It takes the steps between them again, in the
            order that takes the fewest (Griewank & Walther's Revolve): 280 for 100 steps and 6 snapshots.

    Returns:
        (the last carry, the stacked ys).

    Raises:
        CompileError: at the user's line, where a step gives another carry than it takes, or lengths disagree.
    """
    if current_trace() is None:
        recorded = functools.partial(
            scan, f, length=length, reverse=reverse, unroll=unroll, levels=levels, snapshots=snapshots
        )
        return executed(recorded, init, xs)  # type: ignore[return-value]  # a pair
    carry, slices = Leaves.of("init", init), Leaves.of("xs", xs)
    steps = common_length("scan", slices, length)
    at_once = _steps_at_once(unroll, steps)
    if snapshots is not None and (snapshots < 1 or levels is not None):
        raise CompileError(
            f"snapshots are at least 1, got {snapshots}"
            if levels is None
            else "a scan has levels or snapshots, not both; leave one out",
            user_location(),
        )
    if levels is not None:
        _check_levels(levels, steps)
        return _nested(f, init, slices, tuple(levels), reverse, unroll)
    traced, carry = carried(lambda carry: _trace(f, carry, slices), carry)
    y_tree = _checked_y_tree(f, traced, carry)
    count = len(carry.values)
    graph = _consts_first(traced.graph, count + len(slices.values))
    op = Scan(graph, steps, len(traced.captures), count, reverse, at_once, snapshots or 0)
    require_trace().records.extend(traced.records)
    results = emit_op(op, *traced.captures, *carry.converted(), *slices.values)
    for tracer, is_weak in zip(results, traced.out_weak, strict=True):
        tracer.weak = is_weak and tracer.ndim == 0
    last = jax.tree_util.tree_unflatten(carry.tree, results[:count])
    return last, jax.tree_util.tree_unflatten(y_tree, results[count:])


def _check_levels(levels: Sequence[int], steps: int) -> None:
    if not levels or min(levels) < min(steps, 1) or math.prod(levels) != steps:
        product = " x ".join(map(str, levels)) or "nothing"
        raise CompileError(
            f"levels are lengths of nested loops whose product is the number of steps, {steps}; got {product}",
            user_location(),
        )


def _nested(
    f: Function, init: object, slices: Leaves, levels: tuple[int, ...], reverse: bool, unroll: int | bool
) -> tuple[object, object]:
    """Loops in loops, each step of each a checkpoint."""
    first, rest = levels[0], levels[1:]
    xs = jax.tree_util.tree_unflatten(slices.tree, slices.values)
    if not rest:
        return scan(checkpoint(f), init, xs, first, reverse, unroll)  # type: ignore[arg-type]  # a step
    inner = math.prod(rest)

    def part(carry: object, rows: object) -> tuple[object, object]:
        return _nested(f, carry, Leaves.of("xs", rows), rest, reverse, unroll)

    # A step of an outer loop is as long as its inner loops; their stacks come as rows of its own.
    folded = jax.tree_util.tree_map(lambda x: np.reshape(x, (first, inner, *x.shape[1:])), xs)
    last, ys = scan(checkpoint(part), init, folded, first, reverse)
    return last, jax.tree_util.tree_map(lambda y: np.reshape(y, (first * inner, *y.shape[2:])), ys)


def _steps_at_once(unroll: object, steps: int) -> int:
    """How many steps of `steps` the compiled loop takes at a time."""
    if isinstance(unroll, bool):
        return max(steps, 1) if unroll else 1
    if not isinstance(unroll, (int, np.integer)) or unroll < 1:
        raise CompileError(
            f"unroll is how many steps the compiled loop takes at a time, at least 1, or True for all; got {unroll!r}",
            user_location(),
        )
    return min(int(unroll), max(steps, 1))


def common_length(what: str, slices: Leaves, length: object) -> int:
    """How many steps a loop has over these slices; `what` is what the user calls it."""
    if length is not None and (not isinstance(length, (int, np.integer)) or length < 0):
        raise CompileError(
            f"the length of a {what} is a number of steps, 0 or more, that is known while tracing; got {length!r}",
            user_location(),
        )
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
        raise CompileError(f"a {what} goes over as many steps as each of xs has, found {listed}", user_location())
    if not found:
        raise CompileError("a scan without xs needs its length", user_location())
    return next(iter(found))


def carried(trace: Callable[[Leaves], TracedFunction], carry: Leaves) -> tuple[TracedFunction, Leaves]:
    """One step as a graph, and the carry with the types that it has in the loop.

    Python numbers in the first carry yield to the type of what a step makes of them.
    """
    traced = trace(carry)
    count = len(carry.values)
    given = traced.graph.result_types[:count]
    promoted = [
        found if is_weak and found.shape == () and found != type else type
        for found, type, is_weak in zip(given, carry.types, carry.weak, strict=False)
    ]
    if len(given) == count and promoted != list(carry.types):
        rows = zip(carry.weak, promoted, carry.types, strict=True)
        weak = tuple([is_weak and new == old for is_weak, new, old in rows])
        carry = replace(carry, types=tuple(promoted), weak=weak)
        traced = trace(carry)
    return traced, carry


def _trace(f: Function, carry: Leaves, slices: Leaves) -> TracedFunction:
    rows = [TensorType(type.dtype, type.shape[1:], type.on_host) for type in slices.types]
    names = [*[f"carry{path}" for path in carry.paths], *[f"x{path}" for path in slices.paths]]
    return trace_function(
        f,
        [*carry.types, *rows],
        [*carry.weak, *[is_weak and not type.shape for is_weak, type in zip(slices.weak, rows, strict=True)]],
        names,
        jax.tree_util.treedef_tuple((carry.tree, slices.tree)),
        name=function_name(f),
    )


def _checked_y_tree(f: Function, traced: TracedFunction, carry: Leaves) -> jax.tree_util.PyTreeDef:
    """The tree of y that a step returns; its carry must be of the structure and types that it takes."""
    tree = traced.out_tree
    children = tree.children()
    if tree.node_data() is None or tree.node_data()[0] is not tuple or len(children) != 2:
        raise CompileError(
            f"a step of scan returns (carry, y), {described(f)} returns {structure_text(tree)}", user_location()
        )
    check_carry(f, traced, children[0], carry)
    return children[1]


def check_carry(f: Function, traced: TracedFunction, tree: jax.tree_util.PyTreeDef, carry: Leaves) -> None:
    """Raise CompileError where the carry that a step gives, of this tree, is not what it takes."""
    check_kept(f, carry, tree, traced.graph.results, traced.graph.equations)


def check_kept(
    f: Function,
    carry: Leaves,
    tree: jax.tree_util.PyTreeDef,
    results: Sequence[Value],
    equations: Iterable[Equation],
    may_promote: bool = False,
) -> None:
    """Raise CompileError where the first of `results`, of this tree, are not of the structure and types of `carry`.

    `equations` compute them. With `may_promote`, Python numbers may become of the type that a step makes of them.
    """
    if tree != carry.tree:
        raise CompileError(
            f"{described(f)} takes a carry of the structure {structure_text(carry.tree)} and returns one of "
            f"{structure_text(tree)}; return what has the structure of the first carry",
            user_location(),
        )
    for index, (path, type) in enumerate(zip(carry.paths, carry.types, strict=True)):
        value = results[index]
        if may_promote and carry.weak[index] and value.type.shape == type.shape:
            continue
        if value.type != type:
            message = _carry_mismatch(function_name(f), path, type, value.type)
            raise CompileError(message, line_among(value, equations))


def _carry_mismatch(name: str, path: str, before: TensorType, after: TensorType) -> str:
    way = "keep its shape"
    if before.shape == after.shape:
        way = f"convert it with astype('{before.dtype.numpy}'), or start with {after}"
    start = user_location()
    place = f" (the loop starts at {start.describe()})" if start else ""
    return f"carry{path} of '{name}' is {before} before a step{place}, but {after} after it; {way}"


def _consts_first(graph: Graph, count: int) -> Graph:
    """The graph with what it closes over before its arguments."""
    params = (*graph.params[count:], *graph.params[:count])
    return Graph(graph.name, params, graph.equations, graph.results)
