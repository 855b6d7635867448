"""Lowering of arithmetic: one StableHLO op of the op's name, but for `integer_power`, constant quotients, booleans."""

from __future__ import annotations

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops import arithmetic
from rematc.ir.ops.logical import And, Or, ShiftRightLogical
from rematc.ir.ops.while_.op import While
from rematc.ir.types import BOOL, Kind, TensorType
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import Writer, lowers

#: How many bits of an integer exponent XLA reads.
_EXPONENT_BITS = 6

lowers(
    arithmetic.Negate,
    arithmetic.Subtract,
    arithmetic.Maximum,
    arithmetic.Minimum,
    arithmetic.Sign,
)(elementwise.one_type)
lowers(arithmetic.Add, arithmetic.Multiply)(elementwise.arithmetic)
lowers(arithmetic.Divide)(elementwise.quotient)
lowers(arithmetic.Abs)(elementwise.signature)


@lowers(arithmetic.Power)
def power(w: Writer, eqn: Equation) -> None:
    """`stablehlo.power`; of integers, where exponents may have more than six bits, a function of products.

    XLA reads six bits of an integer exponent and no more: to it x^64 is 1.
    """
    (result,) = eqn.results
    if not result.type.dtype.is_integer or result.type.dtype.bits <= _EXPONENT_BITS:
        elementwise.one_type(w, eqn)
        return
    callee = w.function(_power_of_integers(result.type))
    call = f"func.call @{callee}({w.names(eqn.operands)}) : ({w.types(eqn.operands)}) -> {w.type(result.type)}"
    w.line(f"{w.define(result)} = {call}", eqn.loc)


def _power_of_integers(type: TensorType) -> Graph:
    """x^y by squaring, as long as any exponent has bits left; below 0 what is left of 1 / x: 1, -1 or 0."""
    b = Builder("power")
    x, y = b.parameter(type), b.parameter(type)
    zeros, ones = b.zeros(type), b.full(type, 1)
    cond = Builder("has_bits")
    _, _, rest = [cond.parameter(type) for _ in range(3)]
    cond_graph = cond.build(cond.reduce_or(cond.compare(rest, cond.zeros(type), "NE"), range(type.rank)))
    step = Builder("squared")
    product, square, rest = [step.parameter(type) for _ in range(3)]
    one = step.full(type, 1)
    is_odd = step.compare(step.emit1(And(), rest, one), step.zeros(type), "NE")
    step_graph = step.build(
        step.select(is_odd, step.multiply(product, square), product),
        step.multiply(square, square),
        step.emit1(ShiftRightLogical(), rest, one),
    )
    if type.dtype.kind is Kind.UINT:
        return b.build(b.emit(While(cond_graph, step_graph), ones, x, y)[0])
    # By its bit: of a square XLA believes that it is not below 0, whether it overflows or not.
    sign = b.emit1(ShiftRightLogical(), y, b.full(type, type.dtype.bits - 1))
    is_negative = b.compare(sign, zeros, "NE")
    product = b.emit(While(cond_graph, step_graph), ones, x, b.select(is_negative, zeros, y))[0]
    is_unit = b.compare(b.abs(x), ones, "EQ")
    parity = b.compare(b.emit1(And(), y, ones), zeros, "NE")
    reciprocal = b.select(is_unit, b.select(parity, x, ones), zeros)
    return b.build(b.select(is_negative, reciprocal, product))


@lowers(arithmetic.Clamp)
def clamp(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.clamp %low, %x, %high : tensor<...>`; scalar bounds need the whole signature.

    Of truth values, which XLA compiles in some places alone, a function of `or` and `and`.
    """
    types = set(eqn.operand_types)
    if eqn.results[0].type.dtype is BOOL:
        callee = w.function(_clamp_of_booleans(*eqn.operand_types))
        call = f"func.call @{callee}({w.names(eqn.operands)}) : ({w.types(eqn.operands)}) -> "
        w.line(f"{w.define(eqn.results[0])} = {call}{w.type(eqn.results[0].type)}", eqn.loc)
        return
    form = elementwise.one_type if len(types) == 1 else elementwise.signature
    form(w, eqn)


def _clamp_of_booleans(low: TensorType, type: TensorType, high: TensorType) -> Graph:
    """The lesser of `high` and the greater of x and `low`."""
    b = Builder("clamp")
    least, x, most = b.parameter(low), b.parameter(type), b.parameter(high)
    least, most = [b.broadcast_in_dim(one, type.shape, ()) for one in (least, most)]
    return b.build(b.emit1(And(), b.emit1(Or(), x, least), most))


@lowers(arithmetic.IntegerPower)
def integer_power(w: Writer, eqn: Equation) -> None:
    """Squares of x and the product of those that the exponent's bits choose; its reciprocal for a negative exponent."""
    assert isinstance(eqn.op, arithmetic.IntegerPower)
    type = w.type(eqn.results[0].type)

    def emit(text: str) -> str:
        name = w.fresh()
        w.line(f"{name} = stablehlo.{text} : {type}", eqn.loc)
        return name

    square, rest = w.name(eqn.operands[0]), abs(eqn.op.exponent)
    product: str | None = None
    while rest:
        if rest & 1:
            product = square if product is None else emit(f"multiply {product}, {square}")
        rest >>= 1
        if rest:
            square = emit(f"multiply {square}, {square}")
    if product is None or eqn.op.exponent < 0:
        one = emit(f"constant dense<{_one(eqn)}>")
        product = one if product is None else emit(f"divide {one}, {product}")
    w.bind(eqn.results[0], product)


def _one(eqn: Equation) -> str:
    dtype = eqn.results[0].type.dtype
    if dtype.is_complex:
        return "(1.0, 0.0)"
    return "1.0" if dtype.is_float else "1"
