"""The forms that elementwise ops share in StableHLO text."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.types import BOOL, DType, Kind
from rematc.lowering.writer import Writer

#: What sums and products of booleans are. XLA evaluates constant sums of them as exclusive or.
_ON_BOOLEANS = {"add": "or", "multiply": "and"}


def name_for(name: str, dtype: DType) -> str:
    """The StableHLO op for elements of this type."""
    return _ON_BOOLEANS.get(name, name) if dtype.is_bool else name


def arithmetic(w: Writer, eqn: Equation) -> None:
    """As `one_type`, of booleans as logic."""
    operands = w.names(eqn.operands)
    (result,) = eqn.results
    name = name_for(eqn.op.name, result.type.dtype)
    w.line(f"{w.define(result)} = stablehlo.{name} {operands} : {w.type(result.type)}", eqn.loc)


def one_type(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.<name> %x, %y : tensor<...>`: operands and result are of one type."""
    operands = w.names(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = stablehlo.{eqn.op.name} {operands} : {w.type(result.type)}", eqn.loc)


def quotient(w: Writer, eqn: Equation) -> None:
    """As `one_type`; but integers are never divided by 0, and where the divisor is 0 the result is chosen afterwards:
    -1, and the dividend as the remainder.

    Where XLA can evaluate a quotient when it compiles (x - x is 0 to it), it does divide by 0 up to jaxlib 0.10, and
    the process dies.
    """
    (result,) = eqn.results
    if not result.type.dtype.is_integer or w.is_nonzero(eqn.operands[1]):
        one_type(w, eqn)
        return
    x, y = [w.name(operand) for operand in eqn.operands]
    type, mask = w.type(result.type), w.type(result.type.with_dtype(BOOL))
    highest = -1 if result.type.dtype.kind is Kind.INT else (1 << result.type.dtype.bits) - 1

    def emit(text: str) -> str:
        name = w.fresh()
        w.line(f"{name} = stablehlo.{text}", eqn.loc)
        return name

    zero, one = [emit(f"constant dense<{number}> : {type}") for number in (0, 1)]
    is_zero = emit(f"compare EQ, {y}, {zero} : ({type}, {type}) -> {mask}")
    safe = emit(f"select {is_zero}, {one}, {y} : {mask}, {type}")
    inside = emit(f"{eqn.op.name} {x}, {safe} : {type}")
    outside = x if eqn.op.name == "remainder" else emit(f"constant dense<{highest}> : {type}")
    w.line(f"{w.define(result)} = stablehlo.select {is_zero}, {outside}, {inside} : {mask}, {type}", eqn.loc)


def signature(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.<name> %x : (tensor<...>) -> tensor<...>`: the result is of another type."""
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = stablehlo.{eqn.op.name} {operands} : ({types}) -> {w.type(result.type)}", eqn.loc)


def chlo(w: Writer, eqn: Equation) -> None:
    """`%r = chlo.<name> %x, %y : tensor<...>, tensor<...> -> tensor<...>`."""
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = chlo.{eqn.op.name} {operands} : {types} -> {w.type(result.type)}", eqn.loc)
