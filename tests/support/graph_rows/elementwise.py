"""Rows for ops that work element by element. Those without fields join by being registered."""

from __future__ import annotations

import dataclasses
from functools import cache

import rematc.ir.ops  # noqa: F401  # registers all ops
from rematc.ir.core import Op
from rematc.ir.ops import bessel, incomplete
from rematc.ir.ops.arithmetic import Add, Clamp, Divide, IntegerPower, Multiply, Negate, Subtract
from rematc.ir.ops.conversion import BitcastConvert, Convert, ReducePrecision
from rematc.ir.ops.elementwise import FLOATS, ORDERED, Elementwise
from rematc.ir.ops.inverse import Acos, Acosh, Asin, Atanh
from rematc.ir.ops.logical import Compare, Not, Select
from rematc.ir.ops.rounding import IsFinite
from rematc.ir.ops.shape import BroadcastInDim, Reverse, Transpose
from rematc.ir.ops.special import ComplexErf, ComplexErfc, Digamma, ErfcInv, ErfInv, Lgamma, Polygamma, Zeta
from rematc.ir.ops.transcendental import Exponential, Log, Logistic, LogPlusOne, Rsqrt, Sine, Sqrt, Tanh
from rematc.ir.registry import OPS
from rematc.ir.types import BOOL
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row

#: Where an op is defined: what is emitted before it, most of the time, so that not all becomes NaN.
INTO_DOMAIN: dict[type[Op], tuple[Op, ...]] = {
    **dict.fromkeys((Log, LogPlusOne, Sqrt, Rsqrt, Digamma, Lgamma), (Logistic(),)),
    **dict.fromkeys((Asin, Acos, Atanh, ErfInv), (Sine(),)),
    Acosh: (Logistic(), Exponential()),
}


@cache
def without_fields() -> tuple[type[Elementwise], ...]:
    """Elementwise ops that need no field. Orders and parameters of special functions are no values of a pool."""
    found = [cls for cls in OPS.values() if issubclass(cls, Elementwise) and cls.__module__.startswith("rematc.")]
    return tuple([cls for cls in found if _is_made_of_nothing(cls) and not _is_drawn_elsewhere(cls)])


def _is_made_of_nothing(cls: type[Op]) -> bool:
    return all(field.default is not dataclasses.MISSING for field in dataclasses.fields(cls))  # type: ignore[arg-type]


def _is_drawn_elsewhere(cls: type[Op]) -> bool:
    """By a row of its own, or not at all (`EXEMPT` in tests/support/random_graphs.py)."""
    return cls in (Polygamma, Zeta, ErfcInv, ComplexErf, ComplexErfc) or cls.__module__ in (
        bessel.__name__,
        incomplete.__name__,
    )


def _elementwise(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    fitting = sorted((cls for cls in without_fields() if x.type.dtype.kind in cls.kinds), key=lambda cls: cls.name)
    cls = d.one_of(fitting)
    made = []
    if x.type.dtype.is_inexact and d.integer(0, 3):
        for op in INTO_DOMAIN.get(cls, ()):
            x = d.b.emit1(op, x)
            made.append(x)
    op = Exponential(is_accurate=True) if cls is Exponential and not d.integer(0, 3) else cls()
    return (*made, *d.emit(op, x, *(d.like(x) for _ in range(cls.arity - 1))))


def _tamed(d: Drawing) -> tuple[Value, ...]:
    """Into a bounded range, so that long chains stay finite."""
    x = d.pick(lambda type: type.dtype.is_inexact)
    return () if x is None else d.emit(d.one_of((Sine(), Tanh(), Logistic())), x)


def _with_literal(d: Drawing) -> tuple[Value, ...]:
    """Arithmetic with a constant for which it may do nothing."""
    x = d.value()
    scalar = d.scalar(d.one_of((0.0, -0.0, 1.0, -1.0, 2.0)), x.type.dtype)
    full = d.b.emit1(BroadcastInDim(x.type.shape, ()), scalar)
    ops: tuple[Op, ...] = (Add(), Multiply()) if x.type.dtype.is_bool else (Add(), Subtract(), Multiply(), Divide())
    return (full, *d.emit(d.one_of(ops), *d.shuffled([x, full])))


def _twice(d: Drawing) -> tuple[Value, ...]:
    """An op that undoes itself, twice."""
    x = d.value()
    ops: list[Op] = [Reverse(tuple(range(x.type.rank))), Transpose(tuple(reversed(range(x.type.rank))))]
    ops.append(Not() if x.type.dtype.is_bool else Negate())
    op = d.one_of(ops)
    first = d.b.emit1(op, x)
    return (first, d.b.emit1(op, first))


def _integer_power(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: not type.dtype.is_bool)
    if x is None:
        return ()
    return d.emit(IntegerPower(d.integer(-2 if x.type.dtype.is_inexact else 0, 4)), x)


def _clamp(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in ORDERED)
    if x is None:
        return ()
    scalar = x.type.with_shape(())
    low, high = [d.pick(lambda type: type in (x.type, scalar)) or x for _ in range(2)]
    return d.emit(Clamp(), low, x, high)


def _polygamma(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in FLOATS and type.dtype.bits >= 16)
    if x is None:
        return ()
    order = d.b.full(x.type, d.integer(0, 3))
    positive = d.b.emit1(Exponential(), d.b.emit1(Sine(), x))
    return (order, *d.emit(Polygamma(), order, positive))


def _zeta(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in FLOATS and type.dtype.bits >= 16)
    if x is None:
        return ()
    exponent = d.b.full(x.type, d.one_of((1.5, 2, 3)))
    positive = d.b.emit1(Exponential(), d.b.emit1(Sine(), x))
    return (exponent, *d.emit(Zeta(), exponent, positive))


def _compare(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    directions = ["EQ", "NE", "GE", "GT", "LE", "LT"][: 2 if x.type.dtype.is_complex else 6]
    return d.emit(Compare(d.one_of(directions)), x, d.like(x))


def _select(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    predicate = d.pick(lambda type: type.dtype is BOOL and type.shape in ((), x.type.shape))
    if predicate is None:
        return ()
    return d.emit(Select(), predicate, *d.shuffled([x, d.like(x)]))


def _convert(d: Drawing) -> tuple[Value, ...]:
    return d.emit(Convert(d.one_of(d.dtypes)), d.value())


def _bitcast(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: not type.dtype.is_bool and type.dtype.bits >= 8)
    if x is None:
        return ()
    found = x.type.dtype
    fitting = [
        dtype
        for dtype in d.dtypes
        if not dtype.is_bool and found.bits >= dtype.bits >= 8 and dtype.is_complex == found.is_complex
    ]
    return d.emit(BitcastConvert(d.one_of(fitting)), x) if fitting else ()


def _reduce_precision(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in FLOATS and type.dtype.bits >= 16)
    return () if x is None else d.emit(ReducePrecision(d.integer(4, 8), d.integer(2, 10)), x)


def _is_finite(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in FLOATS)
    return () if x is None else d.emit(IsFinite(), x)


ROWS = (
    Row(without_fields(), _elementwise, 6),
    Row((Sine, Tanh, Logistic), _tamed, 3),
    Row((Add, Subtract, Multiply, Divide), _with_literal),
    Row((Reverse, Transpose, Not, Negate), _twice),
    Row((IntegerPower,), _integer_power),
    Row((Clamp,), _clamp),
    Row((Polygamma,), _polygamma),
    Row((Zeta,), _zeta),
    Row((Compare,), _compare),
    Row((Select,), _select),
    Row((Convert,), _convert),
    Row((BitcastConvert,), _bitcast),
    Row((ReducePrecision,), _reduce_precision),
    Row((IsFinite,), _is_finite),
)
