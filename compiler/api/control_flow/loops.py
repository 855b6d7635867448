"""Loops made of `scan`, and loops whose length is not known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax.tree_util
import numpy as np

from rematc.compiler.api.control_flow.branching import cond
from rematc.compiler.api.control_flow.scan import carried, check_carry, check_kept, common_length, scan
from rematc.compiler.api.leaves import Leaves, described, executed, line_among, structure_text
from rematc.compiler.api.transforms.batching import vmap
from rematc.compiler.functions.calls import TracedFunction, emit_op, emit_op1, trace_function
from rematc.compiler.tracing.arguments import is_array_like, leaf_type
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import Iota
from rematc.ir.ops.while_.op import While
from rematc.ir.types import BOOL, I64, TensorType
from rematc.ir.values import Array
from rematc.lowering.signature import Function, function_name

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
    check_carry(body_fun, body, body.out_tree, carry)
    condition = _traced(cond_fun, carry)
    _check_condition("while_loop", cond_fun, condition.out_tree, condition.graph.result_types)
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


def _check_condition(what: str, cond_fun: Function, tree: jax.tree_util.PyTreeDef, types: Sequence[TensorType]) -> None:
    """Raise CompileError where a condition returns something else than a boolean scalar."""
    if types == (TensorType(BOOL, ()),) and jax.tree_util.treedef_is_leaf(tree):
        return
    listed = ", ".join([str(type) for type in types])
    found = listed if jax.tree_util.treedef_is_leaf(tree) else f"{structure_text(tree)} of ({listed})"
    raise CompileError(
        f"the condition of {what}, {described(cond_fun)}, returns {found}, expected a boolean scalar; compare, or "
        "reduce with np.any or np.all",
        user_location(),
    )


def _consts_first(traced: TracedFunction, count: int) -> Graph:
    graph = traced.graph
    return Graph(graph.name, (*graph.params[count:], *graph.params[:count]), graph.equations, graph.results)


def fori_loop(
    lower: object,
    upper: object,
    body_fun: Callable[[object, T], T],
    init_val: T,
    *,
    unroll: int | bool | None = None,
) -> T:
    """`for i in range(lower, upper): val = body_fun(i, val)`; the meaning is `jax.lax.fori_loop`'s.

    With bounds that are Python integers the loop is a `scan`, and can be differentiated backwards; otherwise it is a
    `while_loop`.

    Args:
        lower: the first index.
        upper: the index after the last.
        body_fun: one step; the carry keeps its structure, shapes and element types.
        init_val: the first carry.
        unroll: how many steps the compiled loop takes at a time; True for all of them. For bounds that are Python
            integers.
    """
    _check_bounds(lower, upper, unroll)
    if current_trace() is None and _is_fixed(lower, upper):
        return cast(T, executed(lambda init: fori_loop(lower, upper, body_fun, init, unroll=unroll), init_val))
    if _is_fixed(lower, upper):
        first, length = int(lower), max(int(upper) - int(lower), 0)  # type: ignore[call-overload]  # Python integers
        steps = emit_op1(Iota(TensorType(I64, (length,)), 0))
        # Indices yield to the types of what they meet, as Python's do.
        steps.weak = True

        @functools.wraps(body_fun, updated=())
        def indexed(val: T, i: Any) -> tuple[T, None]:
            return body_fun(i + first if first else i, val), None

        return cast(T, scan(indexed, init_val, steps, unroll=1 if unroll is None else unroll)[0])

    def step(state: tuple[object, object, T]) -> tuple[object, object, T]:
        i, end, val = state
        assert isinstance(i, Tracer), "a step is traced"
        return i + 1, end, body_fun(i.owner.tracer(i.value, weak=True), val)  # type: ignore[operator]  # an index

    def is_running(state: tuple[object, object, T]) -> object:
        return state[0] < state[1]  # type: ignore[operator]  # indices

    common = np.int64
    start = (_as_index(lower, common), _as_index(upper, common), init_val)
    return while_loop(is_running, step, start)[2]


def _check_bounds(lower: object, upper: object, unroll: object) -> None:
    for name, bound in (("lower", lower), ("upper", upper)):
        type = leaf_type(bound)[0] if is_array_like(bound) else None
        if type is None or type.shape or not type.dtype.is_integer:
            found = type if type is not None else repr(bound)
            raise CompileError(f"{name} of fori_loop is an integer scalar, got {found}", user_location())
    if unroll is not None and not _is_fixed(lower, upper):
        raise CompileError(
            "fori_loop unrolls loops whose bounds are Python integers; leave unroll out where they are computed",
            user_location(),
        )


def _is_fixed(*bounds: object) -> bool:
    return all(isinstance(bound, (int, np.integer)) for bound in bounds)


def _as_index(bound: object, dtype: type[np.int64]) -> object:
    return bound.astype(dtype) if hasattr(bound, "astype") else np.asarray(bound, dtype)


def map(f: Callable[..., object], xs: object, *, batch_size: int | None = None) -> object:
    """`f` applied to each element along the first dimension, one after another; the results stacked.

    The meaning is `jax.lax.map`'s. It needs the memory of one element at a time, where `vmap` takes all at once.

    Args:
        f: a function of one element.
        xs: a pytree of arrays whose first dimension is the elements.
        batch_size: how many elements to take at once, batched by `vmap`; a last batch may have fewer.
    """
    if current_trace() is None:
        return executed(lambda xs: map(f, xs, batch_size=batch_size), xs)
    slices = Leaves.of("xs", xs)
    if not slices.types:
        raise CompileError("map goes over the elements of arrays, but xs has none", user_location())
    count = common_length("map", slices, None)
    if batch_size is None:
        return scan(lambda carry, x: (carry, f(x)), (), xs)[1]
    if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise CompileError(
            f"batch_size of map is how many elements it takes at once, got {batch_size!r}", user_location()
        )
    batches, rest = divmod(count, int(batch_size))
    whole = batches * int(batch_size)
    parts = []
    if batches or not rest:
        shape = (batches, int(batch_size))
        rows = jax.tree_util.tree_map(lambda x: np.reshape(x[:whole], (*shape, *x.shape[1:])), xs)
        _, stacks = scan(lambda carry, batch: (carry, vmap(f)(batch)), (), rows)
        parts.append(jax.tree_util.tree_map(lambda y: np.reshape(y, (whole, *y.shape[2:])), stacks))
    if rest:
        parts.append(vmap(f)(jax.tree_util.tree_map(lambda x: x[whole:], xs)))
    return jax.tree_util.tree_map(lambda *ys: np.concatenate(ys) if len(ys) > 1 else ys[0], *parts)


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

    Raises:
        CompileError: at the user's line, as `while_loop` does.
    """
    if current_trace() is None:
        return cast(
            T, executed(lambda init: bounded_while_loop(cond_fun, body_fun, init, max_steps=max_steps), init_val)
        )
    if not isinstance(max_steps, (int, np.integer)) or max_steps < 0:
        raise CompileError(
            f"max_steps of bounded_while_loop is a number of steps, 0 or more, that is known while tracing; "
            f"got {max_steps!r}",
            user_location(),
        )

    def checked(val: T) -> T:
        after = body_fun(val)
        leaves, tree = jax.tree_util.tree_flatten(after)
        trace = require_trace()
        results = [trace.lift(leaf) for leaf in leaves]
        check_kept(body_fun, Leaves.of("val", val), tree, results, trace.builder.equations, may_promote=True)
        return after

    @functools.wraps(body_fun, updated=())
    def step(val: T, _: object) -> tuple[T, None]:
        is_running = cond_fun(val)
        leaves, tree = jax.tree_util.tree_flatten(is_running)
        _check_condition("bounded_while_loop", cond_fun, tree, tuple([leaf_type(leaf)[0] for leaf in leaves]))
        return cast(T, cond(is_running, checked, lambda unchanged: unchanged, val)), None

    return cast(T, scan(step, init_val, None, int(max_steps))[0])


def associative_scan(fn: Callable[..., object], elems: object, reverse: bool = False, axis: int = 0) -> object:
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
    if not all(-type.rank <= axis < type.rank for type in given.types) or (
        len({type.shape[axis] for type in given.types}) != 1
    ):
        listed = ", ".join(f"elems{path}: {type}" for path, type in zip(given.paths, given.types, strict=True))
        raise CompileError(
            f"associative_scan goes along axis {axis} of arrays that have one length there, found {listed or 'none'}",
            user_location(),
        )

    def combine(x: list[Array], y: list[Array]) -> list[Array]:
        trees = (
            jax.tree_util.tree_unflatten(given.tree, [np.moveaxis(one, 0, axis) for one in side]) for side in (x, y)
        )
        found = fn(*trees)
        _check_combined(fn, given, x, found, axis)
        return [np.moveaxis(one, axis, 0) for one in jax.tree_util.tree_leaves(found)]

    rows = [np.moveaxis(cast(Array, value), axis, 0) for value in given.values]
    rows = [one[::-1] for one in rows] if reverse else rows
    prefixes = _prefixes(combine, rows)
    prefixes = [one[::-1] for one in prefixes] if reverse else prefixes
    return jax.tree_util.tree_unflatten(given.tree, [np.moveaxis(one, 0, axis) for one in prefixes])


def _check_combined(fn: Function, given: Leaves, rows: list[Array], found: object, axis: int) -> None:
    """Raise CompileError where `fn` returns something else than it takes."""
    tree = jax.tree_util.tree_structure(found)
    if tree != given.tree:
        raise CompileError(
            f"{described(fn)} combines trees of the structure {structure_text(given.tree)} and returns one of "
            f"{structure_text(tree)}; return what has the structure of elems",
            user_location(),
        )
    for path, row, leaf in zip(given.paths, rows, jax.tree_util.tree_leaves(found), strict=True):
        before, after = leaf_type(np.moveaxis(row, 0, axis))[0], leaf_type(leaf)[0]
        if before != after:
            raise CompileError(
                f"{described(fn)} combines elems{path} of {before} and gives {after}; it has to keep shapes and "
                "element types, along the axis too: the elements come many at once",
                line_among(leaf.value, leaf.owner.builder.equations) if isinstance(leaf, Tracer) else user_location(),
            )


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
