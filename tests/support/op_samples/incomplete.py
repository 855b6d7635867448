"""Rows for ir/ops/incomplete.py."""

from __future__ import annotations

import math

from jax.scipy import special as jax_special

from rematc.ir.ops.incomplete import (
    BetaDensity,
    GammaDensity,
    IncompleteBeta,
    IncompleteBetaSlope,
    IncompleteGamma,
    IncompleteGammaComplement,
    IncompleteGammaSlope,
)
from rematc.ir.types import BF16, F16, F32, F64
from tests.support.samples import Sample, Tolerance, literal, uniform

JAX_SERIES = Tolerance(2e-4, 1e-5, "JAX sums its series in single precision")
JAX_DOUBLE = Tolerance(1e-10, 1e-10, "JAX sums another series")
CANCELS = Tolerance(1e-13, 1e-13, "the reference's logarithms of gamma functions cancel, XLA's formula does not")
QUADRATURE = Tolerance(1e-9, 1e-10, "the reference integrates, XLA differentiates a series")

EDGES_A = [0.0, 0.0, 1.0, 1.0, math.inf, math.inf, -1.0, 1.0, math.nan]
EDGES_X = [0.0, 1.0, 0.0, math.inf, 1.0, math.inf, 1.0, -1.0, 1.0]
BETA_A = [0.0, 2.0, math.inf, 2.0, 2.0, 2.0, 0.0, math.inf, -1.0, 1.0]
BETA_B = [2.0, 0.0, 2.0, math.inf, 2.0, 2.0, 0.0, math.inf, 1.0, math.nan]
BETA_X = [0.5, 0.5, 0.5, 0.5, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5]


SAMPLES = (
    *(
        Sample(op, (uniform(F64, 0.5, 8, 3, 4), uniform(F64, 0.5, 8, 3, 4)), (1,), function, JAX_DOUBLE)
        for op, function in (
            (IncompleteGamma(), jax_special.gammainc),
            (IncompleteGammaComplement(), jax_special.gammaincc),
        )
    ),
    *(
        Sample(op, (uniform(F32, 0.5, 8, 3, 4), uniform(F32, 0.5, 8, 3, 4)), (1,), function, JAX_SERIES)
        for op, function in (
            (IncompleteGamma(), jax_special.gammainc),
            (IncompleteGammaComplement(), jax_special.gammaincc),
        )
    ),
    *(
        Sample(op, (uniform(dtype, 0.5, 8, 3, 4), uniform(dtype, 0.5, 8, 3, 4)))
        for op in (IncompleteGamma(),)
        for dtype in (BF16, F16)
    ),
    *(
        Sample(
            IncompleteGammaSlope(),
            (uniform(dtype, 0.5, 8, 3, 4), uniform(dtype, 0.5, 8, 3, 4)),
            (1,),
            tolerance=QUADRATURE if dtype is F64 else None,
        )
        for dtype in (F64, F32)
    ),
    *(
        Sample(
            GammaDensity(),
            (uniform(dtype, 0.5, 12, 3, 4), uniform(dtype, 0.5, 8, 3, 4)),
            (0, 1),
            tolerance=CANCELS if dtype is F64 else None,
        )
        for dtype in (F64, F32)
    ),
    *(
        Sample(op, (literal(F32, EDGES_A), literal(F32, EDGES_X)), label="edges")
        for op in (IncompleteGamma(), IncompleteGammaComplement())
    ),
    Sample(
        GammaDensity(),
        (literal(F32, [0.0, 1.0, 2.0, -1.5, 0.5, 2.0]), literal(F32, [1.0, 0.0, 0.0, 1.0, 0.0, math.inf])),
        label="edges",
    ),
    Sample(
        IncompleteGammaSlope(),
        (literal(F32, [1.0, 1.0, -1.0, 1.0]), literal(F32, [0.0, math.inf, 1.0, -1.0])),
        label="edges",
    ),
    Sample(
        IncompleteBeta(),
        (uniform(F64, 0.5, 8, 3, 4), uniform(F64, 0.5, 8, 3, 4), uniform(F64, 0.1, 0.9, 3, 4)),
        (2,),
    ),
    Sample(
        IncompleteBeta(),
        (uniform(F32, 0.5, 8, 3, 4), uniform(F32, 0.5, 8, 3, 4), uniform(F32, 0.1, 0.9, 3, 4)),
        (2,),
        jax_special.betainc,
        JAX_SERIES,
    ),
    *(
        Sample(
            op,
            (uniform(dtype, 0.5, 8, 12), uniform(dtype, 0.5, 8, 12), uniform(dtype, 0.1, 0.9, 12)),
            (2,),
            tolerance=QUADRATURE if dtype is F64 else None,
        )
        for op in (IncompleteBetaSlope("a"), IncompleteBetaSlope("b"))
        for dtype in (F64, F32)
    ),
    *(
        Sample(
            BetaDensity(),
            (uniform(dtype, 0.5, 12, 12), uniform(dtype, 0.5, 12, 12), uniform(dtype, 0.1, 0.9, 12)),
            (0, 1, 2),
            tolerance=CANCELS if dtype is F64 else None,
        )
        for dtype in (F64, F32)
    ),
    Sample(IncompleteBeta(), (literal(F32, BETA_A), literal(F32, BETA_B), literal(F32, BETA_X)), label="edges"),
    Sample(
        BetaDensity(),
        (
            literal(F32, [1.0, 2.0, 0.5, 1.0, 2.0, -1.0, 1.0]),
            literal(F32, [2.0, 1.0, 0.5, 2.0, 0.5, 1.0, 1.0]),
            literal(F32, [0.0, 0.0, 0.0, 1.0, 1.0, 0.5, 2.0]),
        ),
        label="edges",
    ),
)
