"""Rows for complex numbers and their parts."""

from __future__ import annotations

from rematc.ir.ops.complex_parts import Complex, Conj, Imag, Real
from rematc.ir.types import F32, F64
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row


def _complex(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype in (F32, F64))
    return () if x is None else d.emit(Complex(), x, d.like(x))


def _part(d: Drawing) -> tuple[Value, ...]:
    z = d.pick(lambda type: type.dtype.is_complex)
    return () if z is None else d.emit(d.one_of((Real, Imag, Conj))(), z)


ROWS = (
    Row((Complex,), _complex),
    Row((Real, Imag, Conj), _part),
)
