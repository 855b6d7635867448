"""Lowering of reductions: `stablehlo.reduce` with the neutral element and a body."""

from __future__ import annotations

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.ops import reduction
from rematc.ir.types import BOOL, F32, DType, TensorType
from rematc.lowering.ops.values import COMPARE_TYPES, converted, literal
from rematc.lowering.writer import Writer, ints, lowers

_COMBINED_BY = {
    reduction.ReduceSum: "add",
    reduction.ReduceProd: "multiply",
    reduction.ReduceMax: "maximum",
    reduction.ReduceMin: "minimum",
    reduction.ReduceAnd: "and",
    reduction.ReduceOr: "or",
}
_ROUNDING = (reduction.ReduceSum, reduction.ReduceProd)


@lowers(*_COMBINED_BY)
def reduce(w: Writer, eqn: Equation) -> None:
    """`stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0]`.

    Sums and products of floats of 16 bits and less are taken in float32 and rounded once, as the reference does.
    """
    op = eqn.op
    assert isinstance(op, reduction.Reduction)
    (operand,), (result,) = eqn.operands, eqn.results
    dtype = operand.type.dtype
    wide = F32 if isinstance(op, _ROUNDING) and dtype.is_float and dtype.bits < F32.bits else dtype
    x = converted(w, w.name(operand), operand.type, wide, eqn.loc)
    neutral = literal(w, op.neutral(wide), eqn.loc)
    call = f"stablehlo.reduce({x} init: {neutral}) applies stablehlo.{_COMBINED_BY[type(op)]}"
    wide_result = result.type.with_dtype(wide)
    signature = f"({w.type(operand.type.with_dtype(wide))}, {w.type(TensorType(wide, ()))}) -> {w.type(wide_result)}"
    y = w.fresh()
    w.line(f"{y} = {call} across dimensions = {ints(op.dimensions)} : {signature}", eqn.loc)
    w.bind(result, converted(w, y, wide_result, dtype, eqn.loc))


@lowers(reduction.Argmax, reduction.Argmin)
def index_of_extremum(w: Writer, eqn: Equation) -> None:
    """A reduction of pairs (element, index): of two pairs the better element, of equals the lower index."""
    op = eqn.op
    assert isinstance(op, reduction.IndexOfExtremum)
    (operand,), (result,) = eqn.operands, eqn.results
    dtype = operand.type.dtype
    indices = operand.type.with_dtype(op.index_dtype)
    index = w.fresh()
    w.line(f"{index} = stablehlo.iota dim = {op.dimension} : {w.type(indices)}", eqn.loc)
    worst = literal(w, op.neutral(dtype), eqn.loc)
    zero = literal(w, np.zeros((), op.index_dtype.numpy), eqn.loc)
    element, place = w.type(TensorType(dtype, ())), w.type(TensorType(op.index_dtype, ()))
    types = ", ".join([w.type(operand.type), w.type(indices), element, place])
    results = ", ".join([w.type(result.type.with_dtype(dtype)), w.type(result.type)])
    both = w.fresh()
    call = f"stablehlo.reduce({w.name(operand)} init: {worst}), ({index} init: {zero})"
    w.raw(f"{both}:2 = {call} across dimensions = [{op.dimension}] : ({types}) -> ({results})")
    x, y, i, j = [w.fresh() for _ in range(4)]
    w.raw(f" reducer({x}: {element}, {y}: {element}) ({i}: {place}, {j}: {place}) {{")
    _better_pair(w, eqn, (x, y), (i, j))
    w.line("}", eqn.loc)
    w.bind(result, f"{both}#1")


def _better_pair(w: Writer, eqn: Equation, elements: tuple[str, str], indices: tuple[str, str]) -> None:
    """x wins if it is better than y, or not worse and of the lower index. A NaN is better than any number."""
    op = eqn.op
    assert isinstance(op, reduction.IndexOfExtremum)
    dtype = eqn.operands[0].type.dtype
    element, place, truth = (w.type(TensorType(d, ())) for d in (dtype, op.index_dtype, BOOL))

    def write(text: str, type: str) -> str:
        name = w.fresh()
        w.line(f"  {name} = stablehlo.{text} : {type}", eqn.loc)
        return name

    def compare(x: str, y: str, direction: str, dtype: DType) -> str:
        type = w.type(TensorType(dtype, ()))
        return write(f"compare {direction}, {x}, {y}, {COMPARE_TYPES[dtype.kind]}", f"({type}, {type}) -> {truth}")

    def is_better(x: str, y: str) -> str:
        found = compare(x, y, "GT" if isinstance(op, reduction.Argmax) else "LT", dtype)
        if not dtype.is_float:
            return found
        is_nan, is_number = compare(x, x, "NE", dtype), compare(y, y, "EQ", dtype)
        return write(f"or {found}, {write(f'and {is_nan}, {is_number}', truth)}", truth)

    x, y = elements
    is_first = compare(*indices, "LT", op.index_dtype)
    is_not_worse = write(f"not {is_better(y, x)}", truth)
    wins = write(f"or {is_better(x, y)}, {write(f'and {is_first}, {is_not_worse}', truth)}", truth)
    best = write(f"select {wins}, {x}, {y}", f"{truth}, {element}")
    index = write(f"select {wins}, {', '.join(indices)}", f"{truth}, {place}")
    w.line(f"  stablehlo.return {best}, {index} : {element}, {place}", eqn.loc)
