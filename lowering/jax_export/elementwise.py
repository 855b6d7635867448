"""Export of elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rematc.ir.core import Equation, Op
from rematc.ir.ops import (
    arithmetic,
    bessel,
    complex_parts,
    incomplete,
    inverse,
    logical,
    rounding,
    special,
    transcendental,
)
from rematc.lowering.jax_export.evaluating import exports, lax, with_own_jvp
from rematc.lowering.jax_export.opaque import opaque

#: Ops that one function of JAX's computes, its derivative included.
_SAME: dict[type[Op], Callable[..., Any]] = {
    arithmetic.Negate: lax.neg,
    arithmetic.Subtract: lax.sub,
    arithmetic.Divide: lax.div,
    arithmetic.Maximum: lax.max,
    arithmetic.Minimum: lax.min,
    arithmetic.Abs: lax.abs,
    complex_parts.Complex: lax.complex,
    complex_parts.Real: lax.real,
    complex_parts.Imag: lax.imag,
    complex_parts.Conj: lax.conj,
    inverse.Asin: lax.asin,
    inverse.Acos: lax.acos,
    inverse.Atan: lax.atan,
    inverse.Atan2: lax.atan2,
    inverse.Sinh: lax.sinh,
    inverse.Cosh: lax.cosh,
    inverse.Asinh: lax.asinh,
    inverse.Acosh: lax.acosh,
    inverse.Atanh: lax.atanh,
    logical.And: lax.bitwise_and,
    logical.Or: lax.bitwise_or,
    logical.Xor: lax.bitwise_xor,
    logical.Not: lax.bitwise_not,
    logical.Select: lax.select,
    logical.ShiftLeft: lax.shift_left,
    logical.ShiftRightArithmetic: lax.shift_right_arithmetic,
    logical.ShiftRightLogical: lax.shift_right_logical,
    logical.Popcnt: lax.population_count,
    logical.CountLeadingZeros: lax.clz,
    rounding.Floor: lax.floor,
    rounding.Ceil: lax.ceil,
    rounding.Remainder: lax.rem,
    rounding.NextAfter: lax.nextafter,
    rounding.IsFinite: lax.is_finite,
    special.Erf: lax.erf,
    special.Erfc: lax.erfc,
    special.ErfInv: lax.erf_inv,
    special.Lgamma: lax.lgamma,
    special.Digamma: lax.digamma,
    transcendental.ExponentialMinusOne: lax.expm1,
    transcendental.Log: lax.log,
    transcendental.LogPlusOne: lax.log1p,
    transcendental.Logistic: lax.logistic,
    transcendental.Sine: lax.sin,
    transcendental.Cosine: lax.cos,
    transcendental.Tan: lax.tan,
    transcendental.Tanh: lax.tanh,
    transcendental.Sqrt: lax.sqrt,
    transcendental.Rsqrt: lax.rsqrt,
    transcendental.Cbrt: lax.cbrt,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "EQ": lax.eq,
    "NE": lax.ne,
    "GE": lax.ge,
    "GT": lax.gt,
    "LE": lax.le,
    "LT": lax.lt,
}


@exports(*_SAME)
def same(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """JAX's function."""
    return (_SAME[type(eqn.op)](*operands),)


@exports(arithmetic.Add)
def add(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.add`; of truth values, or."""
    return (lax.bitwise_or(*operands) if _is_bool(eqn) else lax.add(*operands),)


@exports(arithmetic.Multiply)
def multiply(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.mul`; of truth values, and."""
    return (lax.bitwise_and(*operands) if _is_bool(eqn) else lax.mul(*operands),)


def _is_bool(eqn: Equation) -> bool:
    return eqn.results[0].type.dtype.is_bool


@exports(arithmetic.Power)
def power(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.pow`, which has no powers of integers by integers."""
    if eqn.results[0].type.dtype.is_integer:
        return opaque(eqn, operands)
    return (lax.pow(*operands),)


@exports(transcendental.Exponential)
def exponential(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.exp`, with the accuracy that is asked for."""
    assert isinstance(eqn.op, transcendental.Exponential)
    accuracy = lax.AccuracyMode.HIGHEST if eqn.op.is_accurate else None
    return (lax.exp(operands[0], accuracy=accuracy),)


@exports(arithmetic.IntegerPower)
def integer_power(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.integer_pow`."""
    assert isinstance(eqn.op, arithmetic.IntegerPower)
    return (lax.integer_pow(operands[0], eqn.op.exponent),)


@exports(logical.Compare)
def compare(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.eq` and its kin."""
    assert isinstance(eqn.op, logical.Compare)
    return (_COMPARISONS[eqn.op.direction](*operands),)


@exports(rounding.RoundNearestEven)
def round_nearest_even(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.round`, halves to the even neighbour."""
    return (lax.round(operands[0], lax.RoundingMethod.TO_NEAREST_EVEN),)


@exports(rounding.RoundNearestAfz)
def round_nearest_afz(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.round`, halves away from zero."""
    return (lax.round(operands[0], lax.RoundingMethod.AWAY_FROM_ZERO),)


@exports(arithmetic.Sign)
def sign(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.sign`, which JAX takes for constant on complex numbers, too."""
    if eqn.operands[0].type.dtype.is_complex:
        return with_own_jvp(_sign, eqn, operands)
    return _sign(*operands)


@exports(arithmetic.Clamp)
def clamp(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.clamp`, which JAX does not differentiate with respect to scalar bounds of arrays."""
    if eqn.operands[0].type.shape == eqn.operands[1].type.shape == eqn.operands[2].type.shape:
        return _clamp(*operands)
    return with_own_jvp(_clamp, eqn, operands)


def _clamp(*operands: Any) -> Sequence[Any]:
    return (lax.clamp(*operands),)


def _sign(*operands: Any) -> Sequence[Any]:
    return (lax.sign(*operands),)


def _zeta(*operands: Any) -> Sequence[Any]:
    return (lax.zeta(*operands),)


def _polygamma(*operands: Any) -> Sequence[Any]:
    return (lax.polygamma(*operands),)


def _bessel_i1e(*operands: Any) -> Sequence[Any]:
    return (lax.bessel_i1e(*operands),)


_VALUES: dict[type[Op], Callable[..., Sequence[Any]]] = {
    special.Zeta: _zeta,
    special.Polygamma: _polygamma,
    bessel.BesselI1e: _bessel_i1e,
}


@exports(*_VALUES)
def value(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """JAX's function with our derivative: JAX has none of some operands."""
    return with_own_jvp(_VALUES[type(eqn.op)], eqn, operands)


# JAX has none of these.
exports(
    bessel.BesselI,
    bessel.BesselIe,
    bessel.BesselJ,
    bessel.BesselK,
    bessel.BesselKe,
    bessel.BesselY,
    incomplete.BetaDensity,
    incomplete.GammaDensity,
    incomplete.IncompleteBeta,
    incomplete.IncompleteBetaSlope,
    incomplete.IncompleteGamma,
    incomplete.IncompleteGammaComplement,
    incomplete.IncompleteGammaSlope,
    special.ComplexErf,
    special.ComplexErfc,
    special.ErfcInv,
)(opaque)
