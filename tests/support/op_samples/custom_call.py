"""Rows for ir/ops/custom_call.py: kernels of LAPACK's. Other calls are judged in tests/lowering/test_custom_call.py."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax import numpy as jnp

from rematc.ir.ops.custom_call import CustomCall
from rematc.ir.types import C128, F32, F64, I32, DType, TensorType
from tests.support.samples import Sample, normal, uniform

TAKES_BATCHES = ("mhlo.frontend_attributes", '{num_batch_dims = "0"}')


def hessenberg(dtype: DType, letter: str, *attributes: tuple[str, str]) -> CustomCall:
    """gehrd of a 4 by 4 matrix, which it overwrites: reflections, their scales, and whether it went well."""
    return CustomCall(
        f"lapack_{letter}gehrd_ffi",
        (TensorType(dtype, (4, 4)), TensorType(dtype, (3,)), TensorType(I32, ())),
        (
            ("api_version", "4 : i32"),
            ("backend_config", "{high = 4 : i32, low = 1 : i32}"),
            *attributes,
        ),
        operand_layouts=((0, 1),),
        result_layouts=((0, 1), (0,), ()),
        aliases=((0, 0),),
    )


def tridiagonal_solve() -> CustomCall:
    """gtsv, which overwrites all of its operands, as JAX writes it."""
    row = TensorType(F32, (4,))
    return CustomCall(
        "lapack_sgtsv_ffi",
        (row, row, row, TensorType(F32, (4, 3)), TensorType(I32, ())),
        (("backend_config", '""'), ("mhlo.backend_config", "{}"), TAKES_BATCHES),
        operand_layouts=((0,), (0,), (0,), (0, 1)),
        result_layouts=((0,), (0,), (0,), (0, 1), ()),
        aliases=((0, 0), (1, 1), (2, 2), (3, 3)),
    )


def hessenberg_of_jax(a: Any) -> Any:
    return *lax.linalg.hessenberg(a), jnp.zeros((), jnp.int32)


SAMPLES = (
    Sample(hessenberg(F32, "s", TAKES_BATCHES), (normal(F32, 4, 4),), jax=hessenberg_of_jax, label="takes batches"),
    Sample(hessenberg(F64, "d"), (normal(F64, 4, 4),), jax=hessenberg_of_jax, label="one by one"),
    Sample(hessenberg(C128, "z"), (normal(C128, 4, 4),), jax=hessenberg_of_jax),
    Sample(
        tridiagonal_solve(), (normal(F32, 4), uniform(F32, 3, 4, 4), normal(F32, 4), normal(F32, 4, 3)), label="gtsv"
    ),
)
