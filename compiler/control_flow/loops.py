"""Loops made of `scan`, and loops whose length is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import jax.tree_util
import numpy as np

from rematc.compiler.control_flow.branching import cond
from rematc.compiler.control_flow.leaves import Leaves, executed
from rematc.compiler.control_flow.scan import carried, check_carry, scan
from rematc.compiler.execution.calls import TracedFunction, emit_op, emit_op1, trace_function
from rematc.compiler.tracing.arguments import Function, function_name
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Array, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import Iota
from rematc.ir.ops.while_loop import While
from rematc.ir.types import BOOL, I64, TensorType

T = TypeVar("T")
# What NumPy's functions take: tracers count as arrays.
_Combine = Callable[[list[Array], list[Array]], list[Array]]


def while_loop(cond_fun: Callable[[T], object], body_fun: Callable[[T], T], init_val: T) -> T:
    """`while cond_fun(val): val = body_fun(val)`; the meaning is `jax.lax.while_loop`'s.

    The number of steps is not known, so it has forward-mode derivatives only; `bounded_while_loop` has both.

    Args:
        cond_fun: from the carry to a boolean scalar.
        body_fun: one step; the carry keeps its structure, shapes and element types.
        init_val: the first carry, a pytree of arrays.

    Raises:
        CompileError: at the user's line, where a step gives another carry than it takes, or the condition is no
            boolean scalar.
    """
    if current_trace() is None:
        return cast(T, executed(lambda init: while_loop(cond_fun, body_fun, init), init_val))
    carry = Leaves.of("init_val", init_val)
    body, carry = carried(lambda leaves: _traced(body_fun, leaves), carry)
    check_carry(function_name(body_fun), body, body.out_tree, carry)
    condition = _traced(cond_fun, carry)
    if condition.graph.result_types != (TensorType(BOOL, ()),):
        listed = ", ".join([str(type) for type in condition.graph.result_types])
        raise CompileError(
            f"the condition of while_loop, '{function_name(cond_fun)}', returns ({listed}), expected a boolean scalar",
            user_location(),
        )
    trace = require_trace()
    trace.records.extend((*condition.records, *body.records))
    count = len(carry.values)
    op = While(_consts_first(condition, count), _consts_first(body, count), len(condition.captures), len(body.captures))
    results = emit_op(op, *condition.captures, *body.captures, *carry.converted())
    for tracer, is_weak in zip(results, carry.weak, strict=True):
        tracer.weak = is_weak
    return cast(T, jax.tree_util.tree_unflatten(carry.tree, results))


def _traced(function: Function, carry: Leaves) -> TracedFunction:
    return trace_function(
        function,
        carry.types,
        carry.weak,
        [f"carry{path}" for path in carry.paths],
        jax.tree_util.treedef_tuple((carry.tree,)),
        name=function_name(function),
    )


def _consts_first(traced: TracedFunction, count: int) -> Graph:
    graph = traced.graph
    return Graph(graph.name, (*graph.params[count:], *graph.params[:count]), graph.equations, graph.results)


def fori_loop(lower: object, upper: object, body_fun: Callable[[object, T], T], init_val: T) -> T:
    """`for i in range(lower, upper): val = body_fun(i, val)`; the meaning is `jax.lax.fori_loop`'s.

    With bounds that are Python integers the loop is a `scan`, and can be differentiated backwards; otherwise it is a
    `while_loop`.

    Args:
        lower: the first index.
        upper: the index after the last.
        body_fun: one step; the carry keeps its structure, shapes and element types.
        init_val: the first carry.
    """
    if current_trace() is None and _is_fixed(lower, upper):
        return cast(T, executed(lambda init: fori_loop(lower, upper, body_fun, init), init_val))
    if _is_fixed(lower, upper):
        first, length = int(lower), max(int(upper) - int(lower), 0)  # type: ignore[call-overload]  # Python integers
        steps = emit_op1(Iota(TensorType(I64, (length,)), 0))
        # Indices yield to the types of what they meet, as Python's do.
        steps.weak = True
        last, _ = scan(lambda val, i: (body_fun(i + first if first else i, val), None), init_val, steps)
        return cast(T, last)

    def step(state: tuple[object, object, T]) -> tuple[object, object, T]:
        i, end, val = state
        assert isinstance(i, Tracer), "a step is traced"
        return i + 1, end, body_fun(i.owner.tracer(i.value, weak=True), val)  # type: ignore[operator]  # an index

    def is_running(state: tuple[object, object, T]) -> object:
        return state[0] < state[1]  # type: ignore[operator]  # indices

    common = np.int64
    start = (_as_index(lower, common), _as_index(upper, common), init_val)
    return while_loop(is_running, step, start)[2]


def _is_fixed(*bounds: object) -> bool:
    return all(isinstance(bound, (int, np.integer)) for bound in bounds)


def _as_index(bound: object, dtype: type[np.int64]) -> object:
    return bound.astype(dtype) if hasattr(bound, "astype") else np.asarray(bound, dtype)


def map(f: Callable[..., object], xs: object) -> object:
    """`f` applied to each element along the first dimension, one after another; the results stacked.

    The meaning is `jax.lax.map`'s. It needs the memory of one element at a time, where `vmap` takes all at once.
    """
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]


def bounded_while_loop(
    cond_fun: Callable[[T], object], body_fun: Callable[[T], T], init_val: T, *, max_steps: int
) -> T:
    """`while_loop` of at most `max_steps` steps, which can be differentiated backwards.

    It is a scan whose steps do nothing once the condition fails. Wrap `body_fun` in `checkpoint` to keep only the
    carries for the backward pass.

    Args:
        cond_fun: from the carry to a boolean scalar.
        body_fun: one step.
        init_val: the first carry.
        max_steps: how many steps there may be; the loop ends after them, whatever the condition says.
    """

    def step(val: T, _: object) -> tuple[T, None]:
        return cast(T, cond(cond_fun(val), body_fun, lambda unchanged: unchanged, val)), None

    return cast(T, scan(step, init_val, None, max_steps)[0])


def associative_scan(
    fn: Callable[[object, object], object], elems: object, reverse: bool = False, axis: int = 0
) -> object:
    """All prefixes of `elems` combined by an associative function, in a number of rounds that grows with log n.

    Args:
        fn: associative; takes two pytrees like `elems`, elementwise along `axis`, and returns their combination.
        elems: a pytree of arrays of one length along `axis`.
        reverse: whether to combine from the end.
        axis: the dimension to go along.

    Returns:
        A pytree like `elems`: its i-th element is `elems[0] fn elems[1] fn ... elems[i]`.

    Reference: Blelloch, "Prefix Sums and Their Applications", 1990. The meaning is `jax.lax.associative_scan`'s.
    """
    if current_trace() is None:
        return executed(lambda elems: associative_scan(fn, elems, reverse, axis), elems)
    given = Leaves.of("elems", elems)
    lengths = {type.shape[axis] for type in given.types if type.shape}
    if len(lengths) != 1 or not all(type.shape for type in given.types):
        listed = ", ".join(f"elems{path}: {type}" for path, type in zip(given.paths, given.types, strict=True))
        raise CompileError(f"associative_scan goes along arrays of one length, found {listed}", user_location())

    def combine(x: list[Array], y: list[Array]) -> list[Array]:
        trees = (
            jax.tree_util.tree_unflatten(given.tree, [np.moveaxis(one, 0, axis) for one in side]) for side in (x, y)
        )
        return [np.moveaxis(one, axis, 0) for one in jax.tree_util.tree_leaves(fn(*trees))]

    rows = [np.moveaxis(cast(Array, value), axis, 0) for value in given.values]
    rows = [one[::-1] for one in rows] if reverse else rows
    prefixes = _prefixes(combine, rows)
    prefixes = [one[::-1] for one in prefixes] if reverse else prefixes
    return jax.tree_util.tree_unflatten(given.tree, [np.moveaxis(one, 0, axis) for one in prefixes])


def _prefixes(combine: _Combine, rows: list[Array]) -> list[Array]:
    """Prefixes along the first dimension: those of pairs give every second one, the others follow from these."""
    length = rows[0].shape[0]
    if length < 2:
        return rows
    pairs = combine([x[: length - 1 : 2] for x in rows], [x[1::2] for x in rows])
    odd = _prefixes(combine, pairs)
    before = [x[:-1] for x in odd] if length % 2 == 0 else odd
    first = [x[:1] for x in rows]
    if length > 2:
        rest = combine(before, [x[2::2] for x in rows])
        first = [np.concatenate([x, y]) for x, y in zip(first, rest, strict=True)]
    return [_interleaved(x, y) for x, y in zip(first, odd, strict=True)]


def _interleaved(even: Array, odd: Array) -> Array:
    """`even[0], odd[0], even[1], ...`; there may be one more of the even ones."""
    count = odd.shape[0]
    both = np.stack([even[:count], odd], axis=1)
    merged = np.reshape(both, (2 * count, *odd.shape[1:]))
    return merged if even.shape[0] == count else np.concatenate([merged, even[count:]])
