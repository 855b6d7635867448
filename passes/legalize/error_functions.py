"""The inverse of the complementary error function by Newton's method far out, and erfc of narrow floats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops.special import Erfc, ErfcInv, ErfInv
from rematc.ir.types import F32
from rematc.ir.values import Value
from rematc.passes.legalize.numbers import Number, by_formula, erfc, exp, log, sqrt, where
from rematc.passes.legalize.rules import expands

#: Below it 1 - x has lost digits of x.
SMALL = 0.1
STEPS = 5


@expands(Erfc)
def erfc_of_narrow(b: Builder, op: Erfc, x: Value) -> Sequence[Value] | None:
    """XLA expands `chlo.erfc` for floats of 16 bits and more; of fewer it is that of the same numbers in f32."""
    if x.type.dtype.bits > 8:
        return None
    return [b.convert(b.emit1(op, b.convert(x, F32)), x.type.dtype)]


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


expands(ErfcInv)(by_formula(inverse))
