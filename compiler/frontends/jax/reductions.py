"""Import of reductions, whole and in windows, of running reductions, and of sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops import cumulative, folding, reduction, window
from rematc.ir.ops.elementwise import ORDERED, REALS
from rematc.ir.ops.logical import Xor
from rematc.ir.ops.sorting import Sort, TopK
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import closed

_WHOLE: dict[str, type[reduction.Reduction]] = {
    "reduce_sum": reduction.ReduceSum,
    "reduce_prod": reduction.ReduceProd,
    "reduce_max": reduction.ReduceMax,
    "reduce_min": reduction.ReduceMin,
    "reduce_and": reduction.ReduceAnd,
    "reduce_or": reduction.ReduceOr,
}
_IN_WINDOWS: dict[str, type[window.WindowReduction]] = {
    "reduce_window_sum": window.ReduceWindowSum,
    "reduce_window_max": window.ReduceWindowMax,
    "reduce_window_min": window.ReduceWindowMin,
}
_RUNNING: dict[str, Any] = {
    "cumsum": cumulative.CumulativeSum,
    "cumprod": cumulative.CumulativeProduct,
    "cummax": cumulative.CumulativeMax,
    "cummin": cumulative.CumulativeMin,
    "cumlogsumexp": cumulative.CumulativeLogsumexp,
}


@imports(*_WHOLE)
def reduce_(block: Block, eqn: Any) -> Sequence[Value]:
    """A reduction of the IR; of what it has none for, as JAX lowers it."""
    (x,) = block.operands(eqn)
    op = _WHOLE[eqn.primitive.name](tuple(eqn.params["axes"]))  # type: ignore[call-arg]  # as all members
    if x.type.dtype.kind not in op.kinds:
        return block.fallback(eqn)
    return block.b.emit(op, x)


@imports("reduce_xor")
def reduce_xor(block: Block, eqn: Any) -> Sequence[Value]:
    """`reduce` by `xor`."""
    (x,) = block.operands(eqn)
    inner = Builder("xor")
    scalar = TensorType(x.type.dtype, ())
    body = inner.build(inner.emit1(Xor(), inner.parameter(scalar), inner.parameter(scalar)))
    return block.b.emit(folding.Reduce(tuple(eqn.params["axes"]), body), x, block.b.zeros(scalar))


@imports("reduce")
def reduce_by_function(block: Block, eqn: Any) -> Sequence[Value]:
    """`reduce` by a function."""
    body = _body(block, eqn)
    return block.b.emit(folding.Reduce(tuple(eqn.params["dimensions"]), body), *block.operands(eqn))


def _body(block: Block, eqn: Any) -> Graph:
    """A function that reads nothing of the block around it."""
    jaxpr = eqn.params["jaxpr"]
    found = block.region(closed(jaxpr, eqn.params.get("consts", ())), eqn.primitive.name)
    if found.captured:
        block.fail(eqn, "has a function that captures a large array; pass it as an operand")
    return found.graph


@imports("argmax", "argmin")
def argmax(block: Block, eqn: Any) -> Sequence[Value]:
    """`argmax` or `argmin`."""
    (x,) = block.operands(eqn)
    (axis,) = eqn.params["axes"]
    if x.type.dtype.kind not in ORDERED:
        return block.fallback(eqn)
    dtype = block.result_type(eqn).dtype
    op = reduction.Argmax if eqn.primitive.name == "argmax" else reduction.Argmin
    return block.b.emit(op(axis, dtype), x)


@imports(*_RUNNING)
def cumulative_(block: Block, eqn: Any) -> Sequence[Value]:
    """A running reduction of the IR."""
    (x,) = block.operands(eqn)
    op = _RUNNING[eqn.primitive.name](eqn.params["axis"], bool(eqn.params["reverse"]))
    if x.type.dtype.kind not in op.kinds:
        return block.fallback(eqn)
    return block.b.emit(op, x)


def _windows(params: dict[str, Any]) -> tuple[Any, ...]:
    padding = tuple([(int(low), int(high)) for low, high in params["padding"]])
    return (tuple(params["window_dimensions"]), tuple(params["window_strides"]), padding)


def _dilations(params: dict[str, Any]) -> tuple[Any, ...]:
    return (tuple(params["base_dilation"]), tuple(params["window_dilation"]))


@imports(*_IN_WINDOWS)
def reduce_window(block: Block, eqn: Any) -> Sequence[Value]:
    """A windowed reduction of the IR."""
    (x,) = block.operands(eqn)
    op = _IN_WINDOWS[eqn.primitive.name](*_windows(eqn.params), *_dilations(eqn.params))
    if x.type.dtype.kind not in op.reduction(()).kinds:
        return block.fallback(eqn)
    return block.b.emit(op, x)


@imports("reduce_window")
def reduce_window_by_function(block: Block, eqn: Any) -> Sequence[Value]:
    """`reduce_window` by a function."""
    op = folding.ReduceWindow(_body(block, eqn), *_windows(eqn.params), *_dilations(eqn.params))
    return block.b.emit(op, *block.operands(eqn))


def _direction(eqn: Any) -> str:
    return {"ge": "GE", "le": "LE"}[eqn.params["select_prim"].name]


@imports("select_and_scatter_add")
def select_and_scatter_add(block: Block, eqn: Any) -> Sequence[Value]:
    """`select_and_scatter`, of real numbers."""
    source, x = block.operands(eqn)
    if x.type.dtype.kind not in REALS:
        return block.fallback(eqn)
    return block.b.emit(window.SelectAndScatter(_direction(eqn), *_windows(eqn.params)), x, source)


@imports("select_and_gather_add")
def select_and_gather_add(block: Block, eqn: Any) -> Sequence[Value]:
    """`select_and_gather`, where windows and arrays have no gaps."""
    tangents, x = block.operands(eqn)
    if any(size != 1 for sizes in _dilations(eqn.params) for size in sizes):
        return block.fallback(eqn)
    return block.b.emit(window.SelectAndGather(_direction(eqn), *_windows(eqn.params)), x, tangents)


@imports("sort")
def sort(block: Block, eqn: Any) -> Sequence[Value]:
    """`sort`: a stable one does for one that need not be."""
    return block.b.emit(Sort(eqn.params["dimension"], eqn.params["num_keys"]), *block.operands(eqn))


@imports("top_k")
def top_k(block: Block, eqn: Any) -> Sequence[Value]:
    """`top_k`, the dimension moved to the end and back."""
    (x,) = block.operands(eqn)
    last = x.type.rank - 1
    axis = eqn.params.get("axis", last) % x.type.rank
    order = list(range(x.type.rank))
    order[axis], order[last] = order[last], order[axis]
    values, indices = block.b.emit(TopK(eqn.params["k"]), block.b.transpose(x, order))
    return [block.b.transpose(values, order), block.b.transpose(indices, order)]


@imports("approx_top_k")
def approx_top_k(block: Block, eqn: Any) -> Sequence[Value]:
    """`top_k`, which is exact: it finds whatever JAX's would find, and what that may miss."""
    (x,) = block.operands(eqn)
    last = x.type.rank - 1
    axis = eqn.params["reduction_dimension"] % x.type.rank
    count = block.result_types(eqn)[0].shape[axis]
    order = list(range(x.type.rank))
    order[axis], order[last] = order[last], order[axis]
    moved = block.b.transpose(x, order)
    if eqn.params["is_max_k"]:
        values, indices = block.b.emit(TopK(count), moved)
    else:
        values, indices = block.b.emit(TopK(count), block.b.negate(moved))
        values = block.b.negate(values)
    return [block.b.transpose(values, order), block.b.transpose(indices, order)]
