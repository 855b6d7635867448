"""Reductions: exact derivatives at zeros and ties, few residuals, rounding, what they refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rematc.ir.core import Graph, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.reduction import (
    Argmax,
    IndexOfExtremum,
    ReduceAnd,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
)
from rematc.ir.types import BF16, BOOL, C64, DTYPES, F16, F32, F64, I8, I32, DType, TensorType
from rematc.ir.values import Array
from rematc.lowering.module import stablehlo_text
from rematc.passes.jvp import jvp
from rematc.passes.linearize import linearize, vjp
from tests.support.samples import graph_of
from tests.support.xla import run_stablehlo

MATRIX = TensorType(F32, (2, 3))


@pytest.mark.parametrize(
    ("op", "operand", "message"),
    [
        (ReduceSum((2,)), MATRIX, "rank 2"),
        (ReduceSum((0, 0)), MATRIX, "distinct"),
        (ReduceSum((0,)), TensorType(BOOL, (2,)), "'reduce_sum' takes .* got bool"),
        (ReduceMax((0,)), TensorType(C64, (2,)), "'reduce_max' takes .* got c64"),
        (ReduceAnd((0,)), MATRIX, "'reduce_and' takes .* got f32"),
        (Argmax(1, I32), TensorType(F32, (2, 0)), "no elements"),
        (Argmax(0, F32), MATRIX, "takes an integer type .* got f32"),
        (Argmax(0, I8), TensorType(F32, (200,)), "indices up to 199, got i8"),
    ],
)
def test_what_does_not_fit_is_refused(op: Op, operand: TensorType, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        op.infer([operand])


def residual_types(graph: Graph) -> list[TensorType]:
    return sorted((residual.value.type for residual in linearize(graph, [True]).residuals), key=str)


@pytest.mark.parametrize("op", [ReduceMax((1,)), ReduceMin((1,))])
def test_an_extremum_needs_a_mask_of_bytes_and_the_counts(op: Op) -> None:
    graph = graph_of(op, [TensorType(F32, (4, 100))])
    assert residual_types(graph) == [TensorType(BOOL, (4, 100)), TensorType(F32, (4,))]


def test_a_sum_needs_nothing_and_a_product_its_other_factors() -> None:
    assert residual_types(graph_of(ReduceSum((1,)), [MATRIX])) == []
    assert residual_types(graph_of(ReduceProd((1,)), [MATRIX])) == [MATRIX]


def gradient(op: Op, x: Array) -> Array:
    """Of the sum of the results."""
    pair = vjp(graph_of(op, [TensorType(F64, x.shape)]), [True])
    result, *residuals = evaluate(pair.forward, [x])
    return evaluate(pair.backward, [*residuals, np.ones_like(result)])[0]


def test_equal_extrema_share_the_gradient() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    np.testing.assert_array_equal(gradient(ReduceMax((1,)), x), [[0, 1 / 2, 1 / 2], [1 / 3] * 3])
    np.testing.assert_array_equal(gradient(ReduceMin((1,)), x), [[1, 0, 0], [1 / 3] * 3])


@pytest.mark.parametrize("zeros", [0, 1, 2, 7])
def test_the_gradient_of_a_product_is_exact_at_zeros(zeros: int) -> None:
    x = np.arange(1.0, 8.0)
    x[:zeros] = 0
    expected = [np.prod(np.delete(x, i)) for i in range(x.size)]
    np.testing.assert_array_equal(gradient(ReduceProd((0,)), x), expected)


def test_the_second_derivative_of_a_product_is_exact_at_zeros() -> None:
    x = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
    first = jvp(graph_of(ReduceProd((0,)), [TensorType(F64, (5,))]), [True]).graph
    second = jvp(first, [True, False]).graph
    basis = np.eye(5)
    hessian = [[evaluate(second, [x, basis[i], basis[j]])[-1] for i in range(5)] for j in range(5)]
    expected = [[0 if i == j else np.prod(np.delete(x, [i, j])) for i in range(5)] for j in range(5)]
    np.testing.assert_array_equal(hessian, expected)


def test_the_derivative_of_a_product_has_logarithmically_many_equations() -> None:
    counts = [
        len(jvp(graph_of(ReduceProd((0,)), [TensorType(F32, (n,))]), [True]).graph.equations) for n in (2**10, 2**20)
    ]
    assert counts[1] <= 2 * counts[0]


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_narrow_sums_are_rounded_once(dtype: DType) -> None:
    """4096 halves: adding in the narrow type stops where a half is below half a unit in the last place."""
    x = np.full((4096,), 0.5, dtype.numpy)
    graph = graph_of(ReduceSum((0,)), [TensorType(dtype, x.shape)])
    assert evaluate(graph, [x])[0] == 2048
    assert run_stablehlo(stablehlo_text(graph), [x])[0] == 2048


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.is_float or dtype.is_integer])
def test_neutral_elements_lose_against_all_elements(dtype: DType) -> None:
    lowest, highest = (op.neutral(dtype).astype(np.float64) for op in (ReduceMax(()), ReduceMin(())))
    limits: Any = ml_dtypes.finfo if dtype.is_float else ml_dtypes.iinfo
    assert lowest <= float(limits(dtype.numpy).min)
    assert highest >= float(limits(dtype.numpy).max)


@pytest.mark.parametrize("index", range(3))
def test_the_first_nan_wins_however_xla_splits_the_array(index: int) -> None:
    x = np.random.default_rng(index).standard_normal(100_000).astype(np.float32)
    x[[50_000 + index, 70_000, 99_999]] = np.nan
    graph = graph_of(Argmax(0, I32), [TensorType(F32, x.shape)])
    assert run_stablehlo(stablehlo_text(graph), [x])[0] == 50_000 + index


def test_every_reduction_counts_a_flop_a_term() -> None:
    for op in (ReduceSum((0,)), ReduceMax((0, 1))):
        assert op.flops([MATRIX], op.infer([MATRIX])) == 6
    assert issubclass(ReduceSum, Reduction) and issubclass(Argmax, IndexOfExtremum)
