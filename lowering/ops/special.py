"""Lowering of special functions: each is one CHLO op of the same name."""

from __future__ import annotations

from rematc.ir.ops import special
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import lowers

lowers(
    special.Erf,
    special.Erfc,
    special.ErfInv,
    special.Lgamma,
    special.Digamma,
    special.Polygamma,
)(elementwise.chlo)
