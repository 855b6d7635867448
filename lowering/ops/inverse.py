"""Lowering of inverse circular and of hyperbolic functions: CHLO ops, but for atan2."""

from __future__ import annotations

from rematc.ir.ops import inverse
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import lowers

lowers(inverse.Atan2)(elementwise.one_type)
lowers(
    inverse.Asin,
    inverse.Acos,
    inverse.Atan,
    inverse.Sinh,
    inverse.Cosh,
    inverse.Asinh,
    inverse.Acosh,
    inverse.Atanh,
)(elementwise.chlo)
