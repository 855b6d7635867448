"""Lowering of complex numbers and their parts."""

from __future__ import annotations

from rematc.ir.ops import complex_parts
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import lowers

lowers(complex_parts.Complex)(elementwise.one_type)
lowers(complex_parts.Real, complex_parts.Imag)(elementwise.signature)
lowers(complex_parts.Conj)(elementwise.chlo)
