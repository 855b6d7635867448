"""Export of matrix products, convolutions and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.ir.core import Equation
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.fourier import Fft
from rematc.ir.types import DType
from rematc.lowering.jax_export.evaluating import exports, lax
from rematc.lowering.ops.convolution import permutation_between
from rematc.lowering.targeting import current_target


def _precision(name: str) -> Any:
    return None if name == "DEFAULT" else lax.Precision[name]


def _dtype(dtype: DType | None) -> Any:
    return None if dtype is None else dtype.numpy


@exports(DotGeneral)
def dot_general(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.dot_general`."""
    op = eqn.op
    assert isinstance(op, DotGeneral)
    result = lax.dot_general(
        *operands,
        dimension_numbers=(op.contract, op.batch),
        precision=_precision(op.precision),
        preferred_element_type=_dtype(op.result_dtype),
    )
    return (result,)


@exports(Convolution)
def convolution(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.conv_general_dilated`, which turns no kernel around: it is turned before.

    What is exported may become part of a loop or a function, where XLA:CPU is fast with one order of dimensions only.
    """
    op = eqn.op
    assert isinstance(op, Convolution)
    x, kernel = operands
    dimensions = op.dimensions
    if current_target().platform == "cpu":
        dimensions = ConvolutionDimensions.features_last(len(op.window_strides))
        x = lax.transpose(x, permutation_between(op.dimensions.input, dimensions.input))
        kernel = lax.transpose(kernel, permutation_between(op.dimensions.kernel, dimensions.kernel))
    turned = [d for d, is_set in zip(dimensions.kernel[2:], op.window_reversal, strict=True) if is_set]
    result = lax.conv_general_dilated(
        x,
        lax.rev(kernel, turned) if turned else kernel,
        window_strides=op.window_strides,
        padding=op.padding,
        lhs_dilation=op.lhs_dilation,
        rhs_dilation=op.rhs_dilation,
        dimension_numbers=lax.ConvDimensionNumbers(dimensions.input, dimensions.kernel, dimensions.output),
        feature_group_count=op.feature_group_count,
        batch_group_count=op.batch_group_count,
        precision=_precision(op.precision),
        preferred_element_type=_dtype(op.result_dtype),
    )
    return (lax.transpose(result, permutation_between(dimensions.output, op.dimensions.output)),)


@exports(Fft)
def fft(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.fft`."""
    assert isinstance(eqn.op, Fft)
    return (lax.fft(operands[0], lax.FftType[eqn.op.kind], eqn.op.lengths),)
