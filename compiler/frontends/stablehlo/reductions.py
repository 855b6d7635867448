"""Import of reductions, whole and in windows, of `map`, and of selections in windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rematc.compiler.frontends.stablehlo.attributes import Attributes
from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.bodies import at_arrays, combiner, equals
from rematc.compiler.frontends.stablehlo.indexing import scattering
from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.ops import folding, reduction, window
from rematc.ir.ops.arithmetic import Add, Maximum, Minimum, Multiply
from rematc.ir.ops.elementwise import REALS
from rematc.ir.ops.gather_scatter import ScatterDimensions
from rematc.ir.ops.logical import And, Compare, Or
from rematc.ir.types import I32, I64, TensorType
from rematc.ir.values import Value

_WHOLE: dict[type[Op], type[reduction.Reduction]] = {
    Add: reduction.ReduceSum,
    Multiply: reduction.ReduceProd,
    Maximum: reduction.ReduceMax,
    Minimum: reduction.ReduceMin,
    And: reduction.ReduceAnd,
    Or: reduction.ReduceOr,
}
_IN_WINDOWS: dict[type[Op], type[window.WindowReduction]] = {
    Add: window.ReduceWindowSum,
    Maximum: window.ReduceWindowMax,
    Minimum: window.ReduceWindowMin,
}


@imports("stablehlo.reduce")
def reduce(block: Block, operation: Any) -> Sequence[Value]:
    """A sum, product or extremum where the body is that; else `reduce` with the body.

    Arrays narrower than their initial values are converted: StableHLO combines in the type of the body.
    """
    dimensions = attributes(operation).integers("dimensions")
    body = block.body(operation)
    arrays, initial = _widened(block, operation, body)
    name = combiner(body)
    op = _WHOLE.get(name) if name is not None else None
    if name is None or op is None or initial[0].type.dtype.kind not in op.kinds:
        return block.b.emit(folding.Reduce(dimensions, body), *arrays, *initial)
    whole = op(dimensions)  # type: ignore[call-arg]  # members of the family have this one field
    result = block.b.emit1(whole, arrays[0])
    if equals(block, initial[0], whole.neutral(initial[0].type.dtype)):
        return [result]
    return block.b.emit(name(), block.b.broadcast_in_dim(initial[0], result.type.shape, ()), result)


def _widened(block: Block, operation: Any, body: Graph) -> tuple[list[Value], list[Value]]:
    """Arrays and initial values, in the element types of the body."""
    operands = block.operands(operation)
    count = len(operands) // 2
    types = body.param_types[:count]
    arrays = [block.b.convert(x, type.dtype) for x, type in zip(operands[:count], types, strict=True)]
    initial = []
    for value, type in zip(operands[count:], types, strict=True):
        converted = block.b.convert(value, type.dtype)
        if converted is not value and value in block.constants:
            converted = block.literal(block.constants[value].astype(type.dtype.numpy))
        initial.append(converted)
    return arrays, initial


@imports("stablehlo.reduce_window")
def reduce_window(block: Block, operation: Any) -> Sequence[Value]:
    """A windowed sum or extremum where the body and the initial value are that; else `reduce_window` with the body."""
    body = block.body(operation)
    arrays, initial = _widened(block, operation, body)
    fields = _window_fields(attributes(operation), arrays[0].type.rank)
    name = combiner(body)
    op = _IN_WINDOWS.get(name) if name is not None else None
    if op is not None:
        whole, dtype = op.reduction(()), initial[0].type.dtype
        if dtype.kind in whole.kinds and equals(block, initial[0], whole.neutral(dtype)):
            return block.b.emit(op(*fields), *arrays)
    return block.b.emit(folding.ReduceWindow(body, *fields), *arrays, *initial)


def _window_fields(found: Attributes, rank: int) -> tuple[Any, ...]:
    ones = (1,) * rank
    return (
        found.integers("window_dimensions"),
        found.integers("window_strides", ones),
        found.pairs("padding", rank),
        found.integers("base_dilations", ones),
        found.integers("window_dilations", ones),
    )


@imports("stablehlo.map")
def map_(block: Block, operation: Any) -> Sequence[Value]:
    """The body's equations at the arrays."""
    return at_arrays(block.b, block.body(operation), block.operands(operation))


@imports("stablehlo.select_and_scatter")
def select_and_scatter(block: Block, operation: Any) -> Sequence[Value]:
    """`select_and_scatter` of the greatest or least with a sum; else by the places that the selection picks."""
    x, source, initial = block.operands(operation)
    found = attributes(operation)
    rank = x.type.rank
    sizes = found.integers("window_dimensions", (1,) * rank)
    strides, padding = found.integers("window_strides", (1,) * rank), found.pairs("padding", rank)
    select, scatter = block.body(operation, 0, "select"), block.body(operation, 1, "scatter")
    direction = _selected(select)
    if direction and combiner(scatter) is Add and x.type.dtype.kind in REALS:
        op = window.SelectAndScatter(direction, sizes, strides, padding)
        # Windows that lie in the padding alone pick nothing; the op does not take them.
        if all(window.every_window_reads(n) for window, n in zip(op.windows(), x.type.shape, strict=True)):
            sums = block.b.emit1(op, x, source)
            if equals(block, initial, np.zeros((), x.type.dtype.numpy)):
                return [sums]
            return [block.b.add(block.b.broadcast_in_dim(initial, x.type.shape, ()), sums)]
    ones = (1,) * rank
    places = _places(block.b, folding.ReduceWindow(select, sizes, strides, padding, ones, ones), x)
    flat = block.b.broadcast_in_dim(initial, (x.type.size,), ())
    dims = ScatterDimensions((), (0,), (0,), 1)
    updates = block.b.reshape(source, (source.type.size,))
    column = block.b.reshape(places, (source.type.size, 1))
    return [block.b.reshape(scattering(block, operation, scatter, dims, flat, column, updates), x.type.shape)]


def _selected(select: Graph) -> str:
    """GE or LE where a selection compares its two parameters so, else nothing."""
    if len(select.equations) != 1 or not isinstance(select.equations[0].op, Compare):
        return ""
    (eqn,) = select.equations
    direction = eqn.op.direction if isinstance(eqn.op, Compare) else ""
    if eqn.operands == select.params and direction in ("GE", "LE"):
        return direction
    if eqn.operands == select.params[::-1] and direction in ("GE", "LE"):
        return {"GE": "LE", "LE": "GE"}[direction]
    return ""


def _places(b: Builder, windows: folding.ReduceWindow, x: Value) -> Value:
    """For each window the flat index of the element that its body, a selection, keeps; -1 for a window of padding."""
    index = TensorType(I32 if x.type.size < 2**31 else I64, ())
    numbers = b.reshape(b.iota(TensorType(index.dtype, (x.type.size,)), 0), x.type.shape)
    scalar = x.type.with_shape(())
    inner = Builder("kept")
    first, i, second, j = [inner.parameter(type) for type in (scalar, index, scalar, index)]
    (keeps,) = inner.inline(windows.body, (first, second))
    none = inner.full(index, -1)
    keeps = inner.logical_or(keeps, inner.compare(j, none, "EQ"))
    keeps = inner.logical_and(keeps, inner.compare(i, none, "NE"))
    body = inner.build(inner.select(keeps, first, second), inner.select(keeps, i, j))
    return b.emit(replace(windows, body=body), x, numbers, b.zeros(scalar), b.full(index, -1))[1]
