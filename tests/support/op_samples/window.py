"""Rows for ir/ops/window.py."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax

from rematc.ir.ops.window import (
    ReduceWindowMax,
    ReduceWindowMin,
    ReduceWindowSum,
    SelectAndGather,
    SelectAndScatter,
    Selection,
    WindowReduction,
)
from rematc.ir.types import BF16, BOOL, C64, F16, F32, F64, I8, I32, U8, DType
from tests.support.samples import Sample, booleans, distinct, integers, literal, normal

SUM = ReduceWindowSum((3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
MAX = ReduceWindowMax((3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
MIN = ReduceWindowMin((3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
CUMULATIVE_SUM = ReduceWindowSum((6,), (1,), ((5, 0),), (1,), (1,))
CUMULATIVE_MAX = ReduceWindowMax((6,), (1,), ((5, 0),), (1,), (1,))
GATHER = SelectAndGather("GE", (3, 2), (2, 1), ((1, 1), (0, 1)))
SCATTER = SelectAndScatter("GE", (3, 2), (2, 1), ((1, 1), (0, 1)))


def in_jax(op: WindowReduction) -> Any:
    """The same reduction by lax."""
    combine: Any = {ReduceWindowSum: lax.add, ReduceWindowMax: lax.max, ReduceWindowMin: lax.min}[type(op)]

    def reduce(x: jax.Array) -> Any:
        dtype = {d.numpy: d for d in (BOOL, BF16, C64, F16, F32, F64, I8, I32, U8)}[x.dtype]
        neutral = op.reduction(()).neutral(dtype)[()]
        return lax.reduce_window(
            x,
            neutral,
            combine,
            op.window_dimensions,
            op.window_strides,
            op.padding,
            op.base_dilations,
            op.window_dilations,
        )

    return reduce


def scattered_by_jax(op: Selection) -> Any:
    """The cotangent of pooling by lax, which is what select_and_scatter computes."""
    combine: Any = lax.max if op.direction == "GE" else lax.min
    worst = -math.inf if op.direction == "GE" else math.inf

    def scatter(x: jax.Array, source: jax.Array) -> Any:
        def pool(x: jax.Array) -> Any:
            neutral = np.asarray(worst, x.dtype)[()]
            return lax.reduce_window(x, neutral, combine, op.window_dimensions, op.window_strides, op.padding)

        return jax.vjp(pool, x)[1](source)[0]

    return scatter


def reductions(op: WindowReduction, dtype: DType, *shape: int, label: str = "") -> Sample:
    return Sample(op, (distinct(dtype, *shape),), (0,), in_jax(op), label=label)


def with_windows_in_padding(op: WindowReduction, *shape: int, label: str) -> Sample:
    """Some results are infinite, so that they have no differences."""
    return replace(reductions(op, F64, *shape, label=label), step=None)


def tied(*shape: int) -> Any:
    """Few different numbers, so that windows have several equal extrema."""
    return integers(F64, 0, 2, *shape)


SAMPLES = (
    *(reductions(SUM, dtype, 5, 4) for dtype in (F32, F64, BF16, F16)),
    Sample(SUM, (normal(C64, 5, 4),), (0,), in_jax(SUM)),
    Sample(SUM, (integers(I32, -9, 9, 5, 4),), (), in_jax(SUM)),
    reductions(replace(SUM, window_strides=(2, 3), padding=((1, 2), (0, 1))), F64, 8, 9, label="strides"),
    reductions(replace(SUM, base_dilations=(2, 3), padding=((1, 2), (0, 1))), F64, 4, 3, label="base-dilation"),
    reductions(replace(SUM, window_dilations=(2, 3), padding=((1, 2), (0, 1))), F64, 6, 7, label="window-dilation"),
    reductions(replace(SUM, padding=((-2, -1), (1, -1))), F64, 7, 5, label="negative-padding"),
    reductions(ReduceWindowSum((3,), (3,), ((5, -2),), (2,), (2,)), F64, 7, label="all-at-once"),
    reductions(CUMULATIVE_SUM, F32, 6, label="cumulative"),
    reductions(replace(CUMULATIVE_SUM, padding=((0, 5),)), F32, 6, label="cumulative-from-the-end"),
    reductions(SUM, F32, 2, 4, label="no-window-fits"),
    *(reductions(MAX, dtype, 5, 4) for dtype in (F32, F64, BF16, F16)),
    *(reductions(MIN, dtype, 5, 4) for dtype in (F32, F64, BF16, F16)),
    reductions(replace(MAX, window_strides=(2, 3), padding=((1, 2), (0, 1))), F64, 8, 9, label="strides"),
    reductions(replace(MIN, window_strides=(2, 3), padding=((1, 2), (0, 1))), F64, 8, 9, label="strides"),
    reductions(CUMULATIVE_MAX, F64, 6, label="cumulative"),
    reductions(MAX, F32, 2, 4, label="no-window-fits"),
    # JAX has no transpose of these; the rows compare values and tangents with it, and the transpose with the jvp.
    reductions(replace(MAX, window_dilations=(2, 3), padding=((1, 2), (0, 1))), F64, 6, 7, label="window-dilation"),
    with_windows_in_padding(replace(MIN, base_dilations=(2, 3), padding=((1, 2), (0, 1))), 4, 3, label="base-dilation"),
    with_windows_in_padding(replace(MAX, padding=((4, 0), (0, 3))), 5, 4, label="windows-in-padding"),
    *(
        Sample(op, (integers(dtype, -9 if dtype is I8 else 0, 9, 5, 4),), (), in_jax(op))
        for op in (MAX, MIN)
        for dtype in (I8, U8)
    ),
    Sample(MAX, (booleans(5, 4),), (), in_jax(MAX)),
    Sample(MAX, (literal(F32, [[math.nan, 1.0], [-math.inf, math.inf], [-math.inf, -math.inf]] * 2),), label="edges"),
    *(Sample(GATHER, (distinct(dtype, 6, 4), normal(dtype, 6, 4)), (1,)) for dtype in (F32, F64, BF16)),
    Sample(replace(GATHER, direction="LE"), (distinct(F32, 6, 4), normal(F32, 6, 4)), (1,), label="minimum"),
    Sample(GATHER, (tied(6, 4), normal(F64, 6, 4)), (1,), label="ties"),
    Sample(GATHER, (literal(F32, [[-math.inf] * 4] * 6), normal(F32, 6, 4)), (1,), label="infinities"),
    Sample(GATHER, (integers(I32, -9, 9, 6, 4), integers(I32, -9, 9, 6, 4))),
    *(
        Sample(SCATTER, (distinct(dtype, 6, 4), normal(dtype, 3, 4)), (1,), scattered_by_jax(SCATTER))
        for dtype in (F32, F64, BF16)
    ),
    Sample(
        replace(SCATTER, direction="LE"),
        (distinct(F32, 6, 4), normal(F32, 3, 4)),
        (1,),
        scattered_by_jax(replace(SCATTER, direction="LE")),
        label="minimum",
    ),
    Sample(SCATTER, (tied(6, 4), normal(F64, 3, 4)), (1,), scattered_by_jax(SCATTER), label="ties"),
    Sample(SCATTER, (literal(F32, [[-math.inf] * 4] * 6), normal(F32, 3, 4)), (1,), label="infinities"),
)
