"""Rows for ir/ops/complex_parts.py, and for what other families do to complex numbers alone."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from rematc.ir.ops.arithmetic import Abs, Power, Sign
from rematc.ir.ops.complex_parts import Complex, Conj, Imag, Real
from rematc.ir.types import C64, C128, F32, F64
from tests.support.samples import Sample, literal, normal, uniform

EDGES = [0.0, 1.5, -1j, complex("inf"), complex("nanj"), complex(0.0, -0.0), complex(-0.0, 1.0)]


def direction(z: jax.Array) -> Any:
    """z / |z|: lax.sign of jaxlib 0.10 has no derivative."""
    return z / jnp.abs(z)


SAMPLES = (
    *(Sample(Complex(), (normal(dtype, 3, 4), normal(dtype, 3, 4)), (0, 1), lax.complex) for dtype in (F32, F64)),
    *(Sample(Complex(), (normal(F64, 3), normal(F64, 3)), (index,), lax.complex) for index in (0, 1)),
    Sample(Complex(), (literal(F32, [0.0, -0.0, float("inf")]), literal(F32, [-0.0, float("nan"), 1.0]))),
    *(
        Sample(op, (normal(dtype, 3, 4),), (0,), jax)
        for op, jax in ((Real(), lax.real), (Imag(), lax.imag), (Conj(), lax.conj))
        for dtype in (C64, C128)
    ),
    *(Sample(op, (literal(C64, EDGES),), signed_zeros=True, label="edges") for op in (Real(), Imag(), Conj())),
    *(Sample(Abs(), (normal(dtype, 3, 4),), (0,), lax.abs) for dtype in (C64, C128)),
    Sample(Abs(), (literal(C128, [0.0, 3 + 4j]),), (0,), lax.abs, step=None, label="zero"),
    Sample(Abs(), (literal(C64, EDGES),), label="edges"),
    *(Sample(Sign(), (normal(dtype, 3, 4),), (0,), direction) for dtype in (C64, C128)),
    Sample(Sign(), (literal(C128, [0.0, 3 + 4j]),), (0,), step=None, label="zero"),
    *(Sample(Power(), (uniform(dtype, 0.5, 2, 3, 4), normal(dtype, 3, 4)), (0, 1), lax.pow) for dtype in (C64, C128)),
)
