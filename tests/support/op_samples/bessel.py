"""Rows for ir/ops/bessel.py."""

from __future__ import annotations

import math

from jax import lax

from rematc.ir.ops.bessel import BesselI, BesselI1e, BesselIe, BesselJ, BesselK, BesselKe, BesselY
from rematc.ir.types import BF16, F16, F32, F64
from tests.support.samples import Sample, Tolerance, literal, uniform

RECURRENCES = Tolerance(1e-12, 1e-13, "XLA goes up and down in orders, SciPy has another way for each region")
ORDERS = [0.0, 1.0, 2.0, 5.0, 0.5, 2.25, 7.5, -1.0, -2.0, -0.5, -1.75, 12.0]
OPS = (BesselJ(), BesselY(), BesselI(), BesselIe(), BesselK(), BesselKe())
EDGES_V = [0.0, 1.0, 0.0, 1.0, 0.5, 0.5, -1.0, 0.0, 1.0, 0.5, 0.0, 3.0, 0.5, math.inf, math.nan, 1.0]
EDGES_X = [0.0, 0.0, *[-math.inf] * 3, 0.0, 0.0, *[math.inf] * 3, -1.5, -1.5, -1.5, 1.0, 1.0, math.nan]

SAMPLES = (
    *(
        Sample(op, (literal(F64, ORDERS), uniform(F64, 0.5, 30, 12)), (1,), tolerance=RECURRENCES)
        for op in OPS
        if op != BesselI()
    ),
    Sample(BesselI(), (literal(F64, ORDERS), uniform(F64, 0.5, 6, 12)), (1,), tolerance=RECURRENCES),
    *(Sample(op, (literal(F32, ORDERS), uniform(F32, 0.5, 6, 12)), (1,)) for op in OPS),
    # All are computed in double precision; one op shows how narrow types come and go.
    *(Sample(BesselJ(), (literal(dtype, ORDERS[:4]), uniform(dtype, 1, 6, 4)), (1,)) for dtype in (BF16, F16)),
    *(Sample(op, (literal(F32, EDGES_V), literal(F32, EDGES_X)), label="edges") for op in OPS),
    *(Sample(BesselI1e(), (uniform(dtype, -9, 9, 3, 4),), (0,), lax.bessel_i1e) for dtype in (F32, F64, BF16, F16)),
    Sample(BesselI1e(), (literal(F32, [0.0, 1e30, -1e30, math.nan]),), label="edges"),
)
