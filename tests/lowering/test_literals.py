"""Literals: their text, and that XLA reads back every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.types import BF16, BOOL, C64, DTYPES, F8E4M3FN, F16, F32, F64, I4, I32, U8, DType
from rematc.ir.values import Array
from rematc.lowering.literals import dense
from rematc.lowering.module import stablehlo_text
from tests.support.samples import type_of
from tests.support.xla import run_stablehlo


@pytest.mark.parametrize(
    ("dtype", "values", "text"),
    [
        (F32, 1.0, "dense<1.0>"),
        (F32, [2.0, 2.0], "dense<2.0>"),
        (F32, [0.0, -0.0], "dense<[0.0, -0.0]>"),
        (F32, [[0.1, 1e-05], [1e30, -3.4e38]], "dense<[[0.1, 1.0e-05], [1.0e+30, -3.4e+38]]>"),
        (F32, [np.nan, np.inf, -np.inf], "dense<[0x7FC00000, 0x7F800000, 0xFF800000]>"),
        (F64, [1 / 3, -np.inf], "dense<[0.3333333333333333, 0xFFF0000000000000]>"),
        (F16, np.inf, "dense<0x7C00>"),
        (BF16, [1.5, -np.inf], "dense<[1.5, 0xFF80]>"),
        (F8E4M3FN, [1.5, np.nan], "dense<[1.5, 0x7F]>"),
        (C64, [1 + 2j, complex(np.inf, -0.0)], "dense<[(1.0, 2.0), (0x7F800000, -0.0)]>"),
        (BOOL, [True, False], "dense<[true, false]>"),
        (BOOL, [True] * 99, "dense<true>"),
        (I32, [[1], [-2]], "dense<[[1], [-2]]>"),
        (I4, [-8, 7], "dense<[-8, 7]>"),
        (U8, 255, "dense<255>"),
        (U8, np.arange(33), 'dense<"0x' + "".join(f"{n:02X}" for n in range(33)) + '">'),
        (F32, np.zeros((0, 2)), "dense<>"),
    ],
)
def test_text(dtype: DType, values: Any, text: str) -> None:
    array = np.asarray(values).astype(dtype.numpy)
    assert dense(type_of(array), array) == text


def random_bits(dtype: DType, *shape: int) -> Array:
    """Elements of any bits: subnormals, infinities and NaNs of all kinds among them."""
    raw = np.random.default_rng(dtype.bits).integers(0, 256, (*shape, dtype.numpy.itemsize)).astype(np.uint8)
    if dtype.is_bool:
        return (raw[..., 0] & 1).astype(np.bool_)
    if dtype.bits < 8:
        # The numbers from 0 up: what lies above the element's own bits in its byte is not part of it.
        return (raw[..., 0] & ((1 << (dtype.bits - 1)) - 1)).astype(dtype.numpy)
    return raw.view(dtype.numpy).reshape(shape)


def test_xla_reads_back_every_bit() -> None:
    arrays = [random_bits(dtype, *shape) for dtype in DTYPES.values() for shape in ((), (3, 5), (7, 9))]
    b = Builder()
    text = stablehlo_text(b.build(*[b.constant(array) for array in arrays]))
    for actual, expected in zip(run_stablehlo(text, []), arrays, strict=True):
        assert actual.dtype == expected.dtype
        assert actual.tobytes() == expected.tobytes()
