"""Lowering of windowed reductions and selections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.locations import Location
from rematc.ir.ops import window
from rematc.ir.types import BOOL, F32, DType, TensorType
from rematc.ir.values import Array
from rematc.lowering.ops.values import COMPARE_TYPES, converted, literal
from rematc.lowering.writer import Writer, array, ints, lowers
from rematc.passes.legalize.rules import NATIVE

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
    assert isinstance(op, window.WindowReduction)
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
    w: Writer, x: str, type: TensorType, neutral: str, op: window.WindowReduction, loc: Location | None
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
    # Elsewhere it is expanded.
    w.is_tuned |= w.target.platform in NATIVE[window.SelectAndScatter]
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

    Padding is not picked, not even from elements that are as bad as can be. Floats start from NaN, which anything
    displaces; integers, which have no such number, carry along whether they are elements.
    """
    op = eqn.op
    assert isinstance(op, window.SelectAndGather)
    operand, _ = eqn.operands
    (result,) = eqn.results
    dtype, ones = operand.type.dtype, array((1,) * operand.type.rank)
    names = [w.name(value) for value in eqn.operands]
    starts = [literal(w, _worst(op, dtype), eqn.loc), literal(w, np.zeros((), dtype.numpy), eqn.loc)]
    dtypes = [dtype, dtype]
    if not dtype.is_float:
        names.append(_marks(w, operand.type.with_dtype(BOOL), eqn.loc))
        starts.append(literal(w, np.asarray(False), eqn.loc))
        dtypes.append(BOOL)
    attributes = (
        f"base_dilations = {ones}, padding = {padding_attribute(op.padding)}, window_dilations = {ones}, "
        f"window_dimensions = {array(op.window_dimensions)}, window_strides = {array(op.window_strides)}"
    )
    found, all_names = w.fresh(), ", ".join([*names, *starts])
    w.raw(f'{found}:{len(names)} = "stablehlo.reduce_window"({all_names}) <{{{attributes}}}> ({{')
    _better(w, op, dtypes, eqn.loc)
    given, scalars, shapes = [
        ", ".join([w.type(type.with_dtype(one)) for one in dtypes])
        for type in (operand.type, TensorType(dtype, ()), result.type)
    ]
    w.line(f"}}) : ({given}, {scalars}) -> ({shapes})", eqn.loc)
    w.bind(result, f"{found}#1")


def _worst(op: window.SelectAndGather, dtype: DType) -> Array:
    if dtype.is_float:
        return np.asarray(np.nan).astype(dtype.numpy)
    reduction = window.ReduceWindowMax if op.direction == "GE" else window.ReduceWindowMin
    return reduction.reduction(()).neutral(dtype)


def _marks(w: Writer, type: TensorType, loc: Location | None) -> str:
    """True for every element."""
    name, true = w.fresh(), literal(w, np.asarray(True), loc)
    signature = f"({w.type(type.with_shape(()))}) -> {w.type(type)}"
    w.line(f"{name} = stablehlo.broadcast_in_dim {true}, dims = [] : {signature}", loc)
    return name


def _better(w: Writer, op: window.SelectAndGather, dtypes: Sequence[DType], loc: Location | None) -> None:
    """A region of (x, v, ...), (y, u, ...): the latter if y is better than x or x is no element, else the former."""
    scalars = [w.type(TensorType(dtype, ())) for dtype in dtypes]
    truth, kind = w.type(TensorType(BOOL, ())), COMPARE_TYPES[dtypes[0].kind]
    compared = f"({scalars[0]}, {scalars[0]}) -> {truth}"
    olds, news = [w.fresh() for _ in dtypes], [w.fresh() for _ in dtypes]
    (x, *_), (y, *_) = olds, news
    is_better, is_none, wins = w.fresh(), w.fresh(), w.fresh()
    w.raw(f"^bb0({', '.join([f'{name}: {type}' for name, type in zip(olds + news, scalars * 2, strict=True)])}):")
    w.line(f"  {is_better} = stablehlo.compare {_BETTER[op.direction]}, {y}, {x}, {kind} : {compared}", loc)
    if dtypes[0].is_float:
        w.line(f"  {is_none} = stablehlo.compare NE, {x}, {x}, {kind} : {compared}", loc)
    else:
        w.line(f"  {is_none} = stablehlo.not {olds[-1]} : {truth}", loc)
    w.line(f"  {wins} = stablehlo.or {is_better}, {is_none} : {truth}", loc)
    chosen = []
    for old, new, type in zip(olds, news, scalars, strict=True):
        chosen.append(w.fresh())
        w.line(f"  {chosen[-1]} = stablehlo.select {wins}, {new}, {old} : {truth}, {type}", loc)
    w.line(f"  stablehlo.return {', '.join(chosen)} : {', '.join(scalars)}", loc)
