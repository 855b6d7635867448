"""Rows for ir/ops/special.py."""

from __future__ import annotations

import math

from jax import lax

from rematc.ir.ops.special import ComplexErf, ComplexErfc, Digamma, Erf, Erfc, ErfcInv, ErfInv, Lgamma, Polygamma, Zeta
from rematc.ir.types import BF16, C64, C128, F16, F32, F64
from tests.support.samples import Sample, Tolerance, literal, normal, uniform

AT_ROOT = Tolerance(1e-6, 1e-6, "XLA's sum of terms of size 1 leaves a unit of 1 at the root 1")
EXPANDED = Tolerance(1e-13, 1e-13, "another expansion than SciPy's")
EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]
POLES = [0.0, -0.0, -1.0, -2.0, 1.0, 2.0, math.inf, math.nan]

SAMPLES = (
    *(Sample(Erf(), (normal(dtype, 3, 4),), (0,), lax.erf) for dtype in (F32, F64, BF16, F16)),
    *(Sample(Erfc(), (normal(dtype, 3, 4),), (0,), lax.erfc) for dtype in (F32, F64, BF16, F16)),
    *(Sample(ErfInv(), (uniform(dtype, -0.9, 0.9, 3, 4),), (0,), lax.erf_inv) for dtype in (F32, F64, BF16, F16)),
    *(Sample(ErfcInv(), (uniform(dtype, 0.02, 1.98, 3, 4),), (0,), step=1e-6) for dtype in (F32, F64, BF16, F16)),
    *(Sample(Lgamma(), (uniform(dtype, 0.5, 8, 3, 4),), (0,), lax.lgamma) for dtype in (F32, F64, BF16, F16)),
    *(Sample(Digamma(), (uniform(dtype, 0.5, 8, 3, 4),), (0,), lax.digamma) for dtype in (F32, F64, BF16, F16)),
    *(
        Sample(
            Polygamma(),
            (literal(dtype, [1, 2, 3, 0]), uniform(dtype, 0.5, 4, 4)),
            (1,),
            lax.polygamma,
        )
        for dtype in (F32, F64, BF16, F16)
    ),
    *(
        Sample(Zeta(), (uniform(dtype, 1.5, 6, 3, 4), uniform(dtype, 0.5, 4, 3, 4)), (), lax.zeta)
        for dtype in (F32, F64, BF16, F16)
    ),
    # JAX has no derivative of it.
    *(
        Sample(Zeta(), (uniform(dtype, 1.5, 6, 3, 4), uniform(dtype, 0.5, 4, 3, 4)), (1,), label="differentiated")
        for dtype in (F32, F64)
    ),
    Sample(Zeta(), (literal(F32, [2.0, 1.0, 0.5, math.nan]), literal(F32, [2.0, 2.0, 2.0, 1.0])), label="edges"),
    *(
        Sample(
            op,
            (normal(dtype, 3, 4, scale=scale),),
            (0,),
            tolerance=EXPANDED if dtype is C128 else None,
            label=str(scale),
        )
        for op in (ComplexErf(), ComplexErfc())
        for dtype in (C64, C128)
        for scale in (0.5, 2.0)
    ),
    Sample(Erf(), (literal(F32, EDGES),), signed_zeros=True, label="edges"),
    Sample(Erfc(), (literal(F32, EDGES),), label="edges"),
    Sample(ErfInv(), (literal(F32, EDGES),), signed_zeros=True, label="edges"),
    Sample(ErfcInv(), (literal(F64, [0.0, 2.0, 1.0, -1.0, 3.0, math.nan, 1e-290, 1e-17, 0.1]),), label="edges"),
    Sample(Lgamma(), (literal(F32, [*POLES, -math.inf]),), tolerance=AT_ROOT, label="edges"),
    # Not at 0, where jaxlib 0.10 has NaN and 0.12 -inf.
    Sample(Digamma(), (literal(F32, POLES[2:]),), label="edges"),
    Sample(Polygamma(), (literal(F32, [0.5, -1.0, math.nan]), literal(F32, [1.0, 1.0, 1.0])), label="edges"),
)
