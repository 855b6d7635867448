"""Lowering of the inverse of the complementary error function: CHLO's erf_inv, and Newton's method far out."""

from __future__ import annotations

import math

from rematc.ir.core import Equation
from rematc.ir.ops.special import ErfcInv, ErfInv
from rematc.lowering.ops.numbers import Number, call_formula, erfc, exp, log, sqrt, where
from rematc.lowering.writer import Writer, lowers

#: Below it 1 - x has lost digits of x.
SMALL = 0.1
STEPS = 5


@lowers(ErfcInv)
def erfc_inv(w: Writer, eqn: Equation) -> None:
    """`func.call @erfc_inv`."""
    call_formula(w, eqn, inverse)


def inverse(x: Number) -> Number:
    """The y with erfc y = x; erfc(-y) is 2 - erfc y."""
    mirrored = where(x > 1, 2 - x, x)
    is_small = (mirrored > 0) & (mirrored < SMALL)
    middle = (1 - where(is_small, 1.0, x)).apply(ErfInv())
    far = _far(where(is_small, mirrored, SMALL))
    return where(is_small, where(x > 1, -far, far), middle)


def _far(x: Number) -> Number:
    """For small x by Newton's method for log erfc y = log x, which is nearly a parabola in y.

    It starts at y^2 = -log(x sqrt(pi) s), with s^2 = -log x, the first terms of the asymptotic expansion of erfc.
    """
    logarithm = log(x)
    y = sqrt(-logarithm - 0.5 * log(-math.pi * logarithm))
    for _ in range(STEPS):
        value = erfc(y)
        slope = -2 / math.sqrt(math.pi) * exp(-y * y) / value
        y = y - (log(value) - logarithm) / slope
    return y
