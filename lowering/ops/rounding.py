"""Lowering of rounding, remainders, neighbours and finiteness."""

from __future__ import annotations

from rematc.ir.ops import rounding
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import lowers

lowers(
    rounding.Floor,
    rounding.Ceil,
    rounding.RoundNearestEven,
    rounding.RoundNearestAfz,
)(elementwise.one_type)
lowers(rounding.Remainder)(elementwise.quotient)
lowers(rounding.IsFinite)(elementwise.signature)
lowers(rounding.NextAfter)(elementwise.chlo)
