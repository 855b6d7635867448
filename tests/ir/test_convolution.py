"""Convolution: its gradients against JAX, the adjoint for any geometry, its errors and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.convolution import Convolution
from rematc.ir.types import BF16, F32, F64, I32, DType, TensorType
from rematc.ir.values import Array, LinearOperand
from tests.support.geometries import geometries
from tests.support.op_samples.convolution import FEATURES_LAST, LINE, MIXED, ON_LINE, ORDER, PLAIN, SAMPLES, in_jax
from tests.support.samples import Sample, assert_close, in_double, type_of

DIFFERENTIABLE = [sample for sample in SAMPLES if sample.differentiable and sample.types[0].dtype in (F32, F64)]


def transposed(op: Convolution, x: TensorType, kernel: TensorType, operand: int) -> Graph:
    """(ct, the other operand) to the cotangent of one operand."""
    b = Builder("transposed")
    ct, other = b.parameter(op.infer([x, kernel])[0]), b.parameter(kernel if operand == 0 else x)
    operands = (LinearOperand(x), other) if operand == 0 else (other, LinearOperand(kernel))
    found = op.transpose(b, [ct], operands)[operand]
    assert found is not None
    return b.build(found)


def cotangents(op: Convolution, x: Array, kernel: Array, ct: Array) -> list[Array]:
    types = type_of(x), type_of(kernel)
    return [evaluate(transposed(op, *types, 0), [ct, kernel])[0], evaluate(transposed(op, *types, 1), [ct, x])[0]]


def inner(x: Any, y: Any) -> float:
    return float(np.vdot(x, y))


def ct_for(sample: Sample) -> Array:
    (result,) = sample.op.infer(sample.types)
    return np.random.default_rng(1).standard_normal(result.shape).astype(result.dtype.numpy)


@cache
def jax_cotangents() -> dict[str, Any]:
    """Of all rows in one compilation."""

    def pull_back(rows: Sequence[Any]) -> list[Any]:
        return [jax.vjp(s.jax, *row[:2])[1](row[2]) for s, row in zip(DIFFERENTIABLE, rows, strict=True) if s.jax]

    with jax.enable_x64(True):
        found = jax.jit(pull_back)([(*sample.arrays(), ct_for(sample)) for sample in DIFFERENTIABLE])
    return dict(zip([sample.id for sample in DIFFERENTIABLE], found, strict=True))


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=lambda sample: str(sample.id))
def test_cotangents_agree_with_jax(sample: Sample) -> None:
    assert isinstance(sample.op, Convolution)
    x, kernel = sample.arrays()
    expected = jax_cotangents()[sample.id]
    for actual, wanted in zip(cotangents(sample.op, x, kernel, ct_for(sample)), expected, strict=True):
        assert_close(actual, np.asarray(wanted), ORDER)


@given(geometries())
def test_transpose_is_adjoint(geometry: tuple[Convolution, tuple[int, ...], tuple[int, ...]]) -> None:
    """<conv(x, k), ct> = <x, ct_x> = <k, ct_k>, exactly: the numbers are small integers."""
    op, x_shape, kernel_shape = geometry
    random = np.random.default_rng(0)
    x, kernel = (random.integers(-4, 5, shape).astype(np.float64) for shape in (x_shape, kernel_shape))
    (result,) = op.reference((x, kernel))
    ct = random.integers(-4, 5, result.shape).astype(np.float64)
    ct_x, ct_kernel = cotangents(op, x, kernel, ct)
    assert inner(x, ct_x) == inner(result, ct)
    assert inner(kernel, ct_kernel) == inner(result, ct)


@given(geometries())
def test_both_transposes_cost_what_the_convolution_costs(
    geometry: tuple[Convolution, tuple[int, ...], tuple[int, ...]],
) -> None:
    op, x_shape, kernel_shape = geometry
    x, kernel = TensorType(F32, x_shape), TensorType(F32, kernel_shape)
    results = op.infer([x, kernel])
    if results[0].size and x.size:
        for operand in (0, 1):
            products = [eqn for eqn in transposed(op, x, kernel, operand).equations if eqn.op.is_product]
            assert [eqn.flops for eqn in products] == [op.flops([x, kernel], results)]


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=lambda sample: str(sample.id))
def test_no_window_of_a_derivative_is_reversed(sample: Sample) -> None:
    """XLA on CPUs takes ten times as long for one."""
    assert isinstance(sample.op, Convolution)
    x, kernel = sample.types
    for operand in (0, 1):
        for eqn in transposed(sample.op, x, kernel, operand).equations:
            assert not isinstance(eqn.op, Convolution) or not any(eqn.op.window_reversal)


def test_flops_of_windows_inside_the_input() -> None:
    x, kernel = TensorType(F32, (2, 6, 5, 3)), TensorType(F32, (3, 2, 3, 4))
    op = replace(PLAIN, dimensions=FEATURES_LAST)
    (result,) = op.infer([x, kernel])
    assert result == TensorType(F32, (2, 4, 4, 4))
    assert op.flops([x, kernel], [result]) == 2 * result.size * 3 * 2 * 3


def test_flops_are_those_that_xla_reports() -> None:
    op = replace(PLAIN, dimensions=FEATURES_LAST, window_strides=(2, 1), padding=((1, 1), (2, 0)), rhs_dilation=(1, 2))
    x, kernel = TensorType(F32, (2, 9, 8, 3)), TensorType(F32, (3, 3, 3, 4))
    arrays = [np.zeros(type.shape, np.float32) for type in (x, kernel)]
    reported: Any = jax.jit(in_jax(op)).lower(*arrays).cost_analysis()
    assert reported["flops"] == op.flops([x, kernel], op.infer([x, kernel]))


def test_sums_in_a_wider_type_differentiate_in_that_type() -> None:
    op = replace(ON_LINE, result_dtype=F32)
    random = np.random.default_rng(0)
    x, kernel = (random.standard_normal(shape).astype(BF16.numpy) for shape in ((2, 3, 9), (4, 3, 3)))
    ct = random.standard_normal((2, 4, 7)).astype(np.float32)
    exact = cotangents(ON_LINE, *[array.astype(np.float64) for array in (x, kernel, ct)])
    for actual, wanted in zip(cotangents(op, x, kernel, ct), exact, strict=True):
        # Only the last rounding, to 8 bits of mantissa, is left.
        np.testing.assert_allclose(in_double(actual), in_double(wanted), rtol=2**-8, atol=1e-5)


def test_builder_writes_a_convolution() -> None:
    b = Builder()
    x, kernel = b.parameter(TensorType(F32, (2, 8, 8, 3))), b.parameter(TensorType(F32, (3, 3, 3, 5)))
    assert b.convolution(x, kernel, FEATURES_LAST).type.shape == (2, 6, 6, 5)
    assert b.convolution(x, kernel, FEATURES_LAST, [2, 2], [(1, 1), (1, 1)]).type.shape == (2, 4, 4, 5)


@pytest.mark.parametrize(
    ("change", "x", "kernel", "message"),
    [
        ({}, (2, 3, 9), (4, 2, 3), "the input has 3 features in 1 groups, so the kernel takes 3 input features, got 2"),
        ({}, (2, 3, 9), (4, 3), "takes operands of one rank, at least 2"),
        ({"feature_group_count": 2}, (2, 3, 9), (4, 3, 3), "2 groups do not divide the input features, 3"),
        ({"feature_group_count": 3}, (2, 3, 9), (4, 1, 3), "3 groups do not divide the output features, 4"),
        ({"batch_group_count": 4}, (2, 3, 9), (4, 3, 3), "4 groups do not divide the input batch, 2"),
        ({"batch_group_count": 2, "feature_group_count": 2}, (2, 4, 9), (4, 2, 3), "and one of them 1"),
        ({"batch_group_count": 0}, (2, 3, 9), (4, 3, 3), "expected numbers of at least 1"),
        ({"window_strides": (0,)}, (2, 3, 9), (4, 3, 3), r"takes strides of at least 1, got \[0\]"),
        ({"window_strides": (1, 1)}, (2, 3, 9), (4, 3, 3), "takes 1 strides, one a dimension"),
        ({"padding": ()}, (2, 3, 9), (4, 3, 3), "takes 1 paddings, one a dimension"),
        ({"rhs_dilation": (-1,)}, (2, 3, 9), (4, 3, 3), "takes dilations of the window of at least 1"),
        ({"lhs_dilation": (0,)}, (2, 3, 9), (4, 3, 3), "takes dilations of the operand of at least 1"),
        ({"window_reversal": ()}, (2, 3, 9), (4, 3, 3), "takes 1 entries of window_reversal"),
        ({"dimensions": MIXED}, (2, 3, 9), (4, 3, 3), r"each of 0 to 2 once as input dimensions, got \[2, 0, 3, 1\]"),
        ({"dimensions": replace(LINE, kernel=(0, 0, 1))}, (2, 3, 9), (4, 3, 3), "once as kernel dimensions"),
        ({"precision": "BEST"}, (2, 3, 9), (4, 3, 3), "takes precision DEFAULT, HIGH, HIGHEST, got 'BEST'"),
        ({"result_dtype": BF16}, (2, 3, 9), (4, 3, 3), "cannot give bf16"),
        ({}, (2, 3, 9), (4, 3, 0), "takes window sizes of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: dict[str, Any], x: tuple[int, ...], kernel: tuple[int, ...], message: str
) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        replace(ON_LINE, **change).infer([TensorType(F32, x), TensorType(F32, kernel)])


@pytest.mark.parametrize(("x", "kernel"), [(F32, F64), (F32, I32)])
def test_mixed_element_types_are_refused(x: DType, kernel: DType) -> None:
    with pytest.raises(TypeMismatchError, match="takes operands of one element type"):
        ON_LINE.infer([TensorType(x, (2, 3, 9)), TensorType(kernel, (4, 3, 3))])
