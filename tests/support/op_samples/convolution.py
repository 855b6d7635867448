"""Rows for ir/ops/convolution.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.types import BF16, C64, F32, F64, I32
from tests.support.samples import Sample, Tolerance, integers, normal

BATCH_FEATURES_FIRST = ConvolutionDimensions((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
FEATURES_LAST = ConvolutionDimensions((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
MIXED = ConvolutionDimensions((2, 0, 3, 1), (1, 3, 2, 0), (3, 1, 0, 2))
LINE = ConvolutionDimensions((0, 1, 2), (0, 1, 2), (0, 1, 2))

PLAIN = Convolution((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), (False, False), BATCH_FEATURES_FIRST)
ON_LINE = Convolution((1,), ((0, 0),), (1,), (1,), (False,), LINE)

ORDER = Tolerance(1e-5, 1e-5, "XLA sums in another order, and the sums cancel")


def in_jax(op: Convolution) -> Any:
    """The same convolution by lax."""
    dimensions = lax.ConvDimensionNumbers(op.dimensions.input, op.dimensions.kernel, op.dimensions.output)
    turned = [d for d, is_turned in zip(op.dimensions.kernel[2:], op.window_reversal, strict=True) if is_turned]

    wider: Any = None if op.result_dtype is None else op.result_dtype.numpy

    def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            jnp.flip(kernel, turned),
            op.window_strides,
            op.padding,
            op.lhs_dilation,
            op.rhs_dilation,
            dimensions,
            op.feature_group_count,
            op.batch_group_count,
            preferred_element_type=wider,
        )

    return convolve


def row(op: Convolution, x: tuple[int, ...], kernel: tuple[int, ...], label: str) -> Sample:
    return Sample(op, (normal(F32, *x), normal(F32, *kernel)), (0, 1), in_jax(op), ORDER, label=label)


SAMPLES = (
    row(PLAIN, (2, 3, 6, 5), (4, 3, 3, 2), "plain"),
    row(
        replace(PLAIN, dimensions=FEATURES_LAST, padding=((1, 1), (2, 0))), (2, 6, 5, 3), (3, 2, 3, 4), "features-last"
    ),
    row(replace(PLAIN, dimensions=MIXED, padding=((1, 0), (0, 1))), (3, 6, 2, 5), (2, 4, 3, 3), "mixed-dimensions"),
    row(replace(PLAIN, window_strides=(2, 3), padding=((1, 2), (0, 1))), (2, 3, 8, 9), (4, 3, 3, 2), "strides"),
    row(replace(PLAIN, lhs_dilation=(2, 3), padding=((1, 2), (0, 1))), (2, 3, 4, 3), (4, 3, 3, 2), "input-dilation"),
    row(replace(PLAIN, rhs_dilation=(2, 3), padding=((1, 2), (0, 1))), (2, 3, 6, 7), (4, 3, 3, 2), "kernel-dilation"),
    row(replace(PLAIN, window_reversal=(True, False)), (2, 3, 6, 5), (4, 3, 3, 2), "reversal"),
    row(replace(ON_LINE, padding=((-2, -1),)), (2, 3, 9), (4, 3, 3), "negative-padding"),
    row(replace(ON_LINE, padding=((7, 6),)), (2, 3, 4), (4, 3, 3), "windows-in-padding"),
    row(
        Convolution((3,), ((5, -2),), (2,), (2,), (True,), LINE),
        (2, 3, 7),
        (4, 3, 3),
        "all-at-once",
    ),
    row(
        replace(
            PLAIN, feature_group_count=2, window_strides=(2, 1), padding=((1, 1), (1, 1)), dimensions=FEATURES_LAST
        ),
        (2, 6, 5, 4),
        (3, 2, 2, 6),
        "feature-groups",
    ),
    row(replace(ON_LINE, feature_group_count=3, padding=((1, 1),)), (2, 3, 5), (6, 1, 3), "depthwise"),
    row(
        replace(PLAIN, batch_group_count=2, rhs_dilation=(1, 2), padding=((1, 1), (1, 1)), dimensions=MIXED),
        (3, 6, 4, 5),
        (2, 4, 3, 3),
        "batch-groups",
    ),
    row(ON_LINE, (2, 3, 2), (4, 3, 3), "no-window-fits"),
    row(Convolution((), (), (), (), (), ConvolutionDimensions((0, 1), (0, 1), (0, 1))), (2, 3), (4, 3), "no-spatial"),
    Sample(ON_LINE, (normal(F64, 2, 3, 9), normal(F64, 4, 3, 3)), (0, 1), in_jax(ON_LINE)),
    Sample(ON_LINE, (normal(C64, 2, 3, 9), normal(C64, 4, 3, 3)), (0, 1), in_jax(ON_LINE)),
    Sample(ON_LINE, (normal(BF16, 2, 3, 9), normal(BF16, 4, 3, 3)), (0, 1), in_jax(ON_LINE)),
    Sample(ON_LINE, (integers(I32, -9, 9, 2, 3, 9), integers(I32, -9, 9, 4, 3, 3)), (), in_jax(ON_LINE)),
    Sample(
        replace(ON_LINE, result_dtype=F32, precision="HIGHEST"),
        (normal(BF16, 2, 3, 9), normal(BF16, 4, 3, 3)),
        (),  # the harness differentiates in double precision, which is no operand of a sum in single
        in_jax(replace(ON_LINE, result_dtype=F32)),
        label="wider-result",
    ),
)
