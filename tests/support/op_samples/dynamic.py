"""Rows for ir/ops/dynamic.py."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax import numpy as jnp

from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.types import F32, F64, I8, I32, I64, U32, DType
from tests.support.samples import Factory, Sample, booleans, integers, literal, normal


def clamped(starts: Any, sizes: Any, shape: Any) -> Any:
    """JAX counts negative starts from the end; here they are outside."""
    return [jnp.clip(s, 0, n - size).astype("int64") for s, size, n in zip(starts, sizes, shape, strict=True)]


def at(dtype: DType, *starts: int) -> tuple[Factory, ...]:
    return tuple(literal(dtype, start) for start in starts)


def read(x: Factory, starts: tuple[Factory, ...], *sizes: int) -> Sample:
    return Sample(
        DynamicSlice(sizes),
        (x, *starts),
        differentiable=(0,),
        jax=lambda x, *starts: lax.dynamic_slice(x, clamped(starts, sizes, x.shape), sizes),
    )


def written(
    x: Factory, update: Factory, starts: tuple[Factory, ...], differentiable: tuple[int, ...] = (0, 1), label: str = ""
) -> Sample:
    return Sample(
        DynamicUpdateSlice(),
        (x, update, *starts),
        differentiable=differentiable,
        jax=lambda x, update, *starts: lax.dynamic_update_slice(x, update, clamped(starts, update.shape, x.shape)),
        label=label,
    )


SAMPLES = (
    read(normal(F32, 4, 5), at(I32, 1, 2), 2, 3),
    read(normal(F64, 4, 5), at(I64, -3, 4), 2, 3),
    read(normal(F32, 4), at(U32, 2**32 - 1), 3),
    read(normal(F32), ()),
    read(normal(F32, 4, 6), at(I32, 1, 0), 2, 6),
    Sample(DynamicSlice((2,)), (integers(I32, -9, 9, 4), literal(I8, 1))),
    written(normal(F32, 4, 5), normal(F32, 2, 3), at(I32, 1, 2)),
    written(normal(F64, 4, 5), normal(F64, 2, 3), at(I64, -3, 4)),
    written(normal(F32, 4, 6), normal(F32, 2, 6), at(I32, 1, 0)),
    written(normal(F32, 4), normal(F32, 2), at(I32, 1), (0,), "tangent of x"),
    written(normal(F32, 4), normal(F32, 2), at(I32, 1), (1,), "tangent of the update"),
    Sample(DynamicUpdateSlice(), (booleans(4), booleans(2), literal(I32, 1))),
)
