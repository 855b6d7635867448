"""Windowed ops: their gradients against JAX, the adjoint for any geometry, ties, cumulative forms, errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.window import (
    ReduceWindowMax,
    ReduceWindowSum,
    SelectAndGather,
    SelectAndScatter,
    WindowReduction,
)
from rematc.ir.types import BOOL, F32, F64, TensorType
from rematc.ir.values import Array
from rematc.passes.jvp import jvp
from rematc.passes.transpose import transpose
from tests.support.op_samples.window import CUMULATIVE_MAX, CUMULATIVE_SUM, GATHER, MAX, SAMPLES, SCATTER, SUM
from tests.support.samples import Sample, assert_close, graph_of, tolerance_of, type_of


def is_transposed_by_jax(op: Op) -> bool:
    """JAX has the gradient of dilated sums, but not of dilated extrema."""
    if not isinstance(op, WindowReduction):
        return False
    return isinstance(op, ReduceWindowSum) or set(op.base_dilations + op.window_dilations) == {1}


POOLING = [
    sample
    for sample in SAMPLES
    if sample.differentiable and sample.types[0].dtype in (F32, F64) and is_transposed_by_jax(sample.op)
]


def pulled_back(op: WindowReduction, x: Array, ct: Array) -> Array:
    """The cotangent of the operand, by the jvp rule and the transposition of what it emits."""
    differentiated = jvp(graph_of(op, [type_of(x)]), [True])
    if not differentiated.has_tangent[0]:
        return np.zeros_like(x)
    graph = differentiated.graph
    linear = Graph("linear", graph.params, graph.equations, graph.results[1:])
    return evaluate(transpose(linear, [False, True]).graph, [x, ct])[0]


def inner(x: Any, y: Any) -> float:
    return float(np.vdot(x, y))


def ct_for(sample: Sample) -> Array:
    (result,) = sample.op.infer(sample.types)
    return np.random.default_rng(1).standard_normal(result.shape).astype(result.dtype.numpy)


@cache
def jax_cotangents() -> dict[str, Any]:
    """Of all rows in one compilation."""

    def pull_back(rows: Sequence[Any]) -> list[Any]:
        return [jax.vjp(s.jax, row[0])[1](row[1])[0] for s, row in zip(POOLING, rows, strict=True) if s.jax]

    with jax.enable_x64(True):
        found = jax.jit(pull_back)([(*sample.arrays(), ct_for(sample)) for sample in POOLING])
    return dict(zip([sample.id for sample in POOLING], found, strict=True))


@pytest.mark.parametrize("sample", POOLING, ids=lambda sample: str(sample.id))
def test_cotangents_agree_with_jax(sample: Sample) -> None:
    assert isinstance(sample.op, WindowReduction)
    (x,) = sample.arrays()
    actual = pulled_back(sample.op, x, ct_for(sample))
    assert_close(actual, np.asarray(jax_cotangents()[sample.id]), tolerance_of(sample, actual))


@st.composite
def geometries(draw: st.DrawFn) -> tuple[WindowReduction, tuple[int, ...]]:
    """Any windowed reduction over one or two dimensions, with small sizes."""
    rank = draw(st.integers(1, 2))

    def each(numbers: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(numbers, min_size=rank, max_size=rank)))

    family = draw(st.sampled_from([ReduceWindowSum, ReduceWindowMax]))
    padding = tuple(zip(each(st.integers(-2, 4)), each(st.integers(-2, 4)), strict=True))
    dilations = [each(st.integers(1, 3)), each(st.integers(1, 3))]
    op = family(each(st.integers(1, 3)), each(st.integers(1, 3)), padding, *dilations)
    return op, each(st.integers(0, 5))


@given(geometries())
def test_transpose_is_adjoint(geometry: tuple[WindowReduction, tuple[int, ...]]) -> None:
    """<J v, ct> = <v, J' ct>, exactly: the numbers are small integers."""
    op, shape = geometry
    random = np.random.default_rng(0)
    x, t = random.integers(-2, 3, shape).astype(np.float64), random.integers(-9, 10, shape).astype(np.float64)
    differentiated = jvp(graph_of(op, [type_of(x)]), [True])
    result, *tangent = evaluate(differentiated.graph, [x, t])
    ct = random.integers(-9, 10, result.shape).astype(np.float64)
    assert inner(t, pulled_back(op, x, ct)) == (inner(tangent[0], ct) if tangent else 0)


def test_the_tangent_of_a_maximum_is_read_at_its_first_place() -> None:
    x = np.array([1.0, 3.0, 3.0, 0.0, 2.0, 2.0])
    op = SelectAndGather("GE", (3,), (3,), ((0, 0),))
    np.testing.assert_array_equal(op.reference((x, np.arange(6.0)))[0], [1.0, 4.0])
    op = replace(op, direction="LE")
    np.testing.assert_array_equal(op.reference((x, np.arange(6.0)))[0], [0.0, 3.0])


def test_padding_is_not_picked_even_from_infinities() -> None:
    x = np.full(4, -math.inf)
    op = SelectAndGather("GE", (3,), (1,), ((2, 2),))
    np.testing.assert_array_equal(op.reference((x, np.arange(4.0)))[0], [0.0, 0.0, 0.0, 1.0, 2.0, 3.0])


def test_dilated_windows_differentiate_at_the_first_of_equal_maxima_too() -> None:
    op = ReduceWindowMax((3,), (1,), ((0, 0),), (1,), (2,))
    x = np.array([1.0, 5.0, 1.0, 5.0, 0.0, 5.0])
    np.testing.assert_array_equal(pulled_back(op, x, np.array([1.0, 10.0])), [1.0, 10.0, 0.0, 0.0, 0.0, 0.0])


def test_cumulative_forms() -> None:
    x: Any = np.random.default_rng(0).standard_normal(6)
    summed: Any = CUMULATIVE_SUM.reference((x,))[0]
    from_the_end: Any = pulled_back(CUMULATIVE_SUM, x, x)
    np.testing.assert_allclose(summed, np.cumsum(x), rtol=1e-14)
    np.testing.assert_array_equal(CUMULATIVE_MAX.reference((x,))[0], np.maximum.accumulate(x))
    np.testing.assert_allclose(from_the_end, np.cumsum(x[::-1])[::-1], rtol=1e-14)


def test_the_transpose_of_a_cumulative_sum_runs_from_the_end() -> None:
    b = Builder("transposed")
    ct = b.parameter(TensorType(F32, (6,)))
    found = CUMULATIVE_SUM.transpose(b, [ct], [ct])
    (eqn,) = b.build(*[value for value in found if value is not None]).equations
    assert eqn.op == replace(CUMULATIVE_SUM, padding=((0, 5),))


@pytest.mark.parametrize("op", [SUM, MAX])
def test_flops_are_one_an_element_of_each_window(op: WindowReduction) -> None:
    x = TensorType(F32, (5, 4))
    (result,) = op.infer([x])
    assert result.shape == (3, 3)
    assert op.flops([x], [result]) == 9 * 6


def test_builder_writes_a_windowed_sum() -> None:
    b = Builder()
    x = b.parameter(TensorType(F32, (8, 8)))
    assert b.reduce_window_sum(x, (3, 2)).type.shape == (6, 7)
    assert b.reduce_window_sum(x, (2, 2), (2, 2), ((0, 0), (1, 1))).type.shape == (4, 5)


def test_pooling_compiles_to_the_gather_and_the_scatter_of_its_geometry() -> None:
    x = TensorType(F32, (6, 4))
    op = ReduceWindowMax((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1), (1, 1))
    graph = jvp(graph_of(op, [x]), [True]).graph
    assert [eqn.op for eqn in graph.equations] == [op, GATHER]
    linear = Graph("linear", graph.params, graph.equations, graph.results[1:])
    adjoint = transpose(linear, [False, True]).graph
    assert SCATTER in [eqn.op for eqn in adjoint.equations]


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (SUM, [TensorType(BOOL, (5, 4))], "takes complex, float, int, uint elements"),
        (SUM, [TensorType(F32, (5,))], "takes one entry of window_dimensions for each dimension"),
        (replace(SUM, window_dimensions=(3, 0)), [TensorType(F32, (5, 4))], "takes window sizes of at least 1"),
        (replace(SUM, window_strides=(1,)), [TensorType(F32, (5, 4))], "takes 2 strides, one a dimension"),
        (replace(SUM, base_dilations=(0, 1)), [TensorType(F32, (5, 4))], "dilations of the operand of at least 1"),
        (replace(SUM, window_dilations=(0, 1)), [TensorType(F32, (5, 4))], "dilations of the window of at least 1"),
        (replace(GATHER, direction="GT"), [TensorType(F32, (6, 4))] * 2, "takes the direction GE or LE, got 'GT'"),
        (replace(GATHER, padding=((3, 0), (0, 0))), [TensorType(F32, (6, 4))] * 2, "lie in the padding alone"),
        (replace(GATHER, padding=((0, 3), (0, 2))), [TensorType(F32, (6, 4))] * 2, "lie in the padding alone"),
        (GATHER, [TensorType(F32, (6, 4)), TensorType(F64, (6, 4))], "takes operands of one type"),
        (SCATTER, [TensorType(F32, (6, 4)), TensorType(F32, (6, 4))], r"takes f32\[3,4\] to scatter, got f32\[6,4\]"),
    ],
)
def test_what_does_not_fit_is_refused(op: Op, operands: list[TensorType], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        op.infer(operands)


def test_scatter_adds_where_windows_overlap() -> None:
    x = np.array([0.0, 9.0, 0.0, 0.0])
    op = SelectAndScatter("GE", (2,), (1,), ((0, 0),))
    np.testing.assert_array_equal(op.reference((x, np.array([1.0, 2.0, 4.0])))[0], [0.0, 3.0, 4.0, 0.0])
