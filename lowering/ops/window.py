"""Lowering of windowed reductions and selections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Array, Equation
from rematc.ir.locations import Location
from rematc.ir.ops import window
from rematc.ir.types import BOOL, F32, DType, TensorType
from rematc.lowering.ops.values import COMPARE_TYPES, converted, literal
from rematc.lowering.writer import Writer, array, ints, lowers

_COMBINED_BY = {
    window.ReduceWindowSum: "add",
    window.ReduceWindowMax: "maximum",
    window.ReduceWindowMin: "minimum",
}
_BETTER = {"GE": "GT", "LE": "LT"}


def padding_attribute(pairs: Sequence[tuple[int, int]]) -> str:
    """The attribute `padding` of windowed ops."""
    rows = ", ".join([f"[{low}, {high}]" for low, high in pairs])
    return f"dense<[{rows}]> : tensor<{len(pairs)}x2xi64>" if pairs else "dense<> : tensor<0x2xi64>"


def _body_of(w: Writer, name: str, dtype: DType, loc: Location | None) -> None:
    """A region that combines two scalars by one op."""
    x, y, z = w.fresh(), w.fresh(), w.fresh()
    scalar = w.type(TensorType(dtype, ()))
    w.raw(f"^bb0({x}: {scalar}, {y}: {scalar}):")
    w.line(f"  {z} = stablehlo.{name} {x}, {y} : {scalar}", loc)
    w.line(f"  stablehlo.return {z} : {scalar}", loc)


@lowers(*_COMBINED_BY)
def reduce_window(w: Writer, eqn: Equation) -> None:
    """`"stablehlo.reduce_window"(%x, %init)` with a body.

    Sums of floats of 16 bits and less are taken in float32 and rounded once, as the reference does.
    """
    op = eqn.op
    assert isinstance(op, window.ReduceWindow)
    (operand,), (result,) = eqn.operands, eqn.results
    dtype = operand.type.dtype
    is_sum = isinstance(op, window.ReduceWindowSum)
    wide = F32 if is_sum and dtype.is_float and dtype.bits < F32.bits else dtype
    x = converted(w, w.name(operand), operand.type, wide, eqn.loc)
    read = operand.type.with_dtype(wide)
    neutral = literal(w, op.reduction(()).neutral(wide), eqn.loc)
    padding, dilations = op.padding, op.base_dilations
    if set(op.window_dimensions) <= {1} and any(edge < 0 for pair in padding for edge in pair):
        # Of windows of one element, XLA's simplifier forgets what is cut off, and the process dies.
        x, read = _padded(w, x, read, neutral, op, eqn.loc)
        padding, dilations = ((0, 0),) * read.rank, (1,) * read.rank
    attributes = (
        f"base_dilations = {array(dilations)}, padding = {padding_attribute(padding)}, "
        f"window_dilations = {array(op.window_dilations)}, window_dimensions = {array(op.window_dimensions)}, "
        f"window_strides = {array(op.window_strides)}"
    )
    y, wide_result = w.fresh(), result.type.with_dtype(wide)
    w.raw(f'{y} = "stablehlo.reduce_window"({x}, {neutral}) <{{{attributes}}}> ({{')
    _body_of(w, _COMBINED_BY[type(op)], wide, eqn.loc)
    signature = f"({w.type(read)}, {w.type(TensorType(wide, ()))}) -> {w.type(wide_result)}"
    w.line(f"}}) : {signature}", eqn.loc)
    w.bind(result, converted(w, y, wide_result, dtype, eqn.loc))


def _padded(
    w: Writer, x: str, type: TensorType, neutral: str, op: window.ReduceWindow, loc: Location | None
) -> tuple[str, TensorType]:
    """What the windows lie on: the operand with its padding and gaps written out."""
    low, high = zip(*op.padding, strict=True)
    gaps = [dilation - 1 for dilation in op.base_dilations]
    shape = [max(n + (n - 1) * gap, 0) + a + b for n, a, b, gap in zip(type.shape, low, high, gaps, strict=True)]
    padded, name = type.with_shape(tuple(shape)), w.fresh()
    edges = f"low = {ints(low)}, high = {ints(high)}, interior = {ints(gaps)}"
    signature = f"({w.type(type)}, {w.type(type.with_shape(()))}) -> {w.type(padded)}"
    w.line(f"{name} = stablehlo.pad {x}, {neutral}, {edges} : {signature}", loc)
    return name, padded


@lowers(window.SelectAndScatter)
def select_and_scatter(w: Writer, eqn: Equation) -> None:
    """`"stablehlo.select_and_scatter"(%x, %source, %zero)` with a comparison and an addition."""
    op = eqn.op
    assert isinstance(op, window.SelectAndScatter)
    operand, _ = eqn.operands
    (result,) = eqn.results
    dtype = operand.type.dtype
    scalar, truth = w.type(TensorType(dtype, ())), w.type(TensorType(BOOL, ()))
    zero = literal(w, np.zeros((), dtype.numpy), eqn.loc)
    attributes = (
        f"padding = {padding_attribute(op.padding)}, window_dimensions = {array(op.window_dimensions)}, "
        f"window_strides = {array(op.window_strides)}"
    )
    call = f'"stablehlo.select_and_scatter"({w.names(eqn.operands)}, {zero}) <{{{attributes}}}>'
    w.raw(f"{w.define(result)} = {call} ({{")
    x, y, keeps = w.fresh(), w.fresh(), w.fresh()
    w.raw(f"^bb0({x}: {scalar}, {y}: {scalar}):")
    comparison = f"stablehlo.compare {op.direction}, {x}, {y}, {COMPARE_TYPES[dtype.kind]}"
    w.line(f"  {keeps} = {comparison} : ({scalar}, {scalar}) -> {truth}", eqn.loc)
    w.line(f"  stablehlo.return {keeps} : {truth}", eqn.loc)
    w.raw("}, {")
    _body_of(w, "add", dtype, eqn.loc)
    w.line(f"}}) : ({w.types(eqn.operands)}, {scalar}) -> {w.type(result.type)}", eqn.loc)


@lowers(window.SelectAndGather)
def select_and_gather(w: Writer, eqn: Equation) -> None:
    """A windowed reduction of pairs (element, value): of two the one with the better element, of equals the first.

    Floats start from NaN, which anything displaces: padding is not picked, not even from infinities.
    """
    op = eqn.op
    assert isinstance(op, window.SelectAndGather)
    operand, _ = eqn.operands
    (result,) = eqn.results
    dtype = operand.type.dtype
    scalar, ones = w.type(TensorType(dtype, ())), array((1,) * operand.type.rank)
    worst = literal(w, _worst(op, dtype), eqn.loc)
    zero = literal(w, np.zeros((), dtype.numpy), eqn.loc)
    attributes = (
        f"base_dilations = {ones}, padding = {padding_attribute(op.padding)}, window_dilations = {ones}, "
        f"window_dimensions = {array(op.window_dimensions)}, window_strides = {array(op.window_strides)}"
    )
    both = w.fresh()
    w.raw(f'{both}:2 = "stablehlo.reduce_window"({w.names(eqn.operands)}, {worst}, {zero}) <{{{attributes}}}> ({{')
    _better_pair(w, op, dtype, eqn.loc)
    shape = w.type(result.type)
    w.line(f"}}) : ({w.types(eqn.operands)}, {scalar}, {scalar}) -> ({shape}, {shape})", eqn.loc)
    w.bind(result, f"{both}#1")


def _worst(op: window.SelectAndGather, dtype: DType) -> Array:
    if dtype.is_float:
        return np.asarray(np.nan).astype(dtype.numpy)
    reduction = window.ReduceWindowMax if op.direction == "GE" else window.ReduceWindowMin
    return reduction.reduction(()).neutral(dtype)


def _better_pair(w: Writer, op: window.SelectAndGather, dtype: DType, loc: Location | None) -> None:
    """A region of (x, v, y, u): y and u if y is better than x or x is NaN, else x and v."""
    scalar, truth = w.type(TensorType(dtype, ())), w.type(TensorType(BOOL, ()))
    x, v, y, u = [w.fresh() for _ in range(4)]
    is_better, is_nan, wins, element, value = [w.fresh() for _ in range(5)]
    kind, compared = COMPARE_TYPES[dtype.kind], f"({scalar}, {scalar}) -> {truth}"
    w.raw(f"^bb0({', '.join([f'{name}: {scalar}' for name in (x, v, y, u)])}):")
    w.line(f"  {is_better} = stablehlo.compare {_BETTER[op.direction]}, {y}, {x}, {kind} : {compared}", loc)
    w.line(f"  {is_nan} = stablehlo.compare NE, {x}, {x}, {kind} : {compared}", loc)
    w.line(f"  {wins} = stablehlo.or {is_better}, {is_nan} : {truth}", loc)
    w.line(f"  {element} = stablehlo.select {wins}, {y}, {x} : {truth}, {scalar}", loc)
    w.line(f"  {value} = stablehlo.select {wins}, {u}, {v} : {truth}, {scalar}", loc)
    w.line(f"  stablehlo.return {element}, {value} : {scalar}, {scalar}", loc)
