"""Lowering of special functions: each is one CHLO op of the same name."""

from __future__ import annotations

from rematc.ir.ops import bessel, special
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import lowers

lowers(
    bessel.BesselI1e,
    special.Erf,
    special.Erfc,
    special.ErfInv,
    special.Lgamma,
    special.Digamma,
    special.Polygamma,
    special.Zeta,
)(elementwise.chlo)
