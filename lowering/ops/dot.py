"""Lowering of matrix products."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.values import Value
from rematc.lowering.ops.values import converted
from rematc.lowering.writer import Writer, ints, lowers

_NARROW = 8


@lowers(DotGeneral)
def dot_general(w: Writer, eqn: Equation) -> None:
    """`stablehlo.dot_general %x, %y, batching_dims = .., contracting_dims = .., precision = ..`.

    Operands of different element types are converted to the result's, except 8-bit floats: devices multiply those
    as they are.
    """
    op = eqn.op
    assert isinstance(op, DotGeneral)
    x, y = eqn.operands
    (result,) = eqn.results
    as_they_are = x.type.dtype is y.type.dtype or (_is_narrow_float(x) and _is_narrow_float(y))
    types = [operand.type if as_they_are else operand.type.with_dtype(result.type.dtype) for operand in eqn.operands]
    names = [
        converted(w, w.name(operand), operand.type, type.dtype, eqn.loc)
        for operand, type in zip(eqn.operands, types, strict=True)
    ]
    batching = f", batching_dims = {_pair(op.batch)}" if op.batch[0] else ""
    parameters = f"{batching}, contracting_dims = {_pair(op.contract)}, precision = [{op.precision}, {op.precision}]"
    signature = f"({', '.join(map(w.type, types))}) -> {w.type(result.type)}"
    w.product(f"{w.define(result)} = stablehlo.dot_general {', '.join(names)}{parameters} : {signature}", eqn.loc)


def _is_narrow_float(value: Value) -> bool:
    return value.type.dtype.is_float and value.type.dtype.bits <= _NARROW


def _pair(dimensions: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    return f"{ints(dimensions[0])} x {ints(dimensions[1])}"
