"""Gather, scatter and dynamic slices: any dimension numbers, indices outside, overlaps, what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.indexing import Gather, Scatter, ScatterAdd, ScatterMaximum, ScatterMultiply
from rematc.ir.types import BOOL, F32, F64, I8, I32, I64, U8, TensorType
from rematc.ir.values import Array
from rematc.lowering.module import stablehlo_text
from rematc.passes.jvp import jvp
from rematc.passes.linearize import linearize, vjp
from tests.support.samples import graph_of, type_of
from tests.support.xla import run_stablehlo

ROWS = GatherDimensions((1,), (0,), (0,), 1)
SCATTERED_ROWS = ScatterDimensions.of(ROWS)
X, AT = TensorType(F32, (4, 3)), TensorType(I32, (2, 1))
UPDATES = TensorType(F32, (2, 3))


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (replace(ROWS, index_vector_dim=3), "index_vector_dim up to the rank"),
        (replace(ROWS, collapsed_slice_dims=()), "one offset dimension for each that is not collapsed"),
        (replace(ROWS, collapsed_slice_dims=(0, 0)), "distinct collapsed"),
        (replace(ROWS, offset_dims=(2,)), "distinct offset dimensions"),
        (replace(ROWS, offset_dims=(1, 0), collapsed_slice_dims=()), "increasing"),
        (replace(ROWS, start_index_map=(0, 1)), "index vector of length 2"),
        (replace(ROWS, start_index_map=(2,)), "distinct indexed"),
        (replace(ROWS, start_index_map=()), "an indexed dimension"),
        (replace(ROWS, collapsed_slice_dims=(), operand_batching_dims=(0,)), "distinct indexed and batching"),
        (GatherDimensions((), (1,), (1,), 1, (0,), (0,)), "batching dimensions of one size"),
        (GatherDimensions((), (1,), (1,), 1, (0,), (1,)), "index vectors along no batching dimension"),
        (GatherDimensions((), (1,), (1,), 2, (0,), (2,)), "distinct batching dimensions of the indices"),
    ],
)
def test_dimension_numbers_that_do_not_fit_are_refused(dims: GatherDimensions, message: str) -> None:
    sizes = tuple(1 if d in dims.collapsed_slice_dims + dims.operand_batching_dims else 3 for d in range(2))
    with pytest.raises(TypeMismatchError, match=message):
        Gather(dims, sizes).infer([X, AT])


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Gather(ROWS, (1, 4)), [X, AT], "windows that fit"),
        (Gather(ROWS, (2, 3)), [X, AT], "size 1 along collapsed"),
        (Gather(ROWS, (1,)), [X, AT], "one size for each dimension"),
        (Gather(ROWS, (1, 3)), [X, AT.with_dtype(F32)], "integer indices"),
        (Scatter(SCATTERED_ROWS), [X, AT, UPDATES.with_dtype(F64)], "updates of its element type"),
        (Scatter(SCATTERED_ROWS), [X, AT, TensorType(F32, (3, 3))], r"takes updates f32\[2,3\], got f32\[3,3\]"),
        (Scatter(SCATTERED_ROWS), [X, AT, TensorType(F32, (2,))], r"with dimensions \[1\]"),
        (ScatterMaximum(SCATTERED_ROWS), [TensorType(F32, (4, 3)), AT], "takes 3 operands"),
        (DynamicSlice((2,)), [X, TensorType(I32, ())], "one entry of slice_sizes"),
        (DynamicSlice((2, 4)), [X, TensorType(I32, ()), TensorType(I32, ())], "a window that fits"),
        (DynamicSlice((2, 2)), [X, TensorType(I32, ())], r"takes 2 scalar integers of one type as the start"),
        (DynamicSlice((2, 2)), [X, TensorType(I32, ()), TensorType(I64, ())], "of one type"),
        (DynamicSlice(()), [], "got no operands"),
        (DynamicUpdateSlice(), [X], "got 1 operands"),
        (DynamicUpdateSlice(), [X, UPDATES.with_dtype(F64)], "an update of its element type"),
        (DynamicUpdateSlice(), [X, TensorType(F32, (5, 1))], "a window that fits"),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: Op, operands: list[TensorType], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        op.infer(operands)


# -- any dimension numbers -------------------------------------------------------------------------------------------


@st.composite
def gathers(draw: st.DrawFn) -> tuple[GatherDimensions, tuple[int, ...], tuple[int, ...], Array]:
    """Dimension numbers, window sizes, the operand's shape and indices, some of them outside."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    rank = len(shape)
    roles = draw(st.lists(st.sampled_from("cbww"), min_size=rank, max_size=rank))
    batching = [d for d in range(rank) if roles[d] == "b"]
    indexed = draw(st.permutations([d for d in range(rank) if roles[d] != "b"]))
    if not indexed:
        roles[0], batching, indexed = "w", batching[1:], [0]
    indexed = indexed[: draw(st.integers(1, len(indexed)))]
    batch = draw(st.permutations([shape[d] for d in batching] + draw(st.lists(st.integers(1, 3), max_size=2))))
    # Which dimension of the indices each batching dimension is paired with: any of its size.
    free, paired = list(range(len(batch))), []
    for d in batching:
        position = draw(st.sampled_from([k for k in free if batch[k] == shape[d]] or [-1]))
        if position < 0:
            position = free[0]
            batch[position] = shape[d]
        free.remove(position)
        paired.append(position)
    vector = draw(st.integers(0, len(batch)))
    indices_shape = [*batch[:vector], len(indexed), *batch[vector:]]
    walking = [d for d in range(rank) if roles[d] == "w"]
    sizes = tuple(draw(st.integers(1, shape[d])) if d in walking else 1 for d in range(rank))
    offsets = sorted(draw(st.permutations(range(len(batch) + len(walking))))[: len(walking)])
    dims = GatherDimensions(
        tuple(offsets),
        tuple(d for d in range(rank) if roles[d] == "c"),
        tuple(indexed),
        vector,
        tuple(batching),
        tuple(position + (position >= vector) for position in paired),
    )
    indices = np.random.default_rng(draw(st.integers(0, 99))).integers(-2, 6, indices_shape)
    return dims, sizes, tuple(shape), indices.astype(draw(st.sampled_from([np.int32, np.int8, np.int64])))


def one_by_one(
    dims: GatherDimensions, sizes: tuple[int, ...], x: Array, indices: Array
) -> tuple[Numeric, Numeric, Numeric]:
    """StableHLO's definition, element by element: what is gathered, from where, and whether a scatter would fit."""
    shape = dims.windows_shape(indices.shape, sizes)
    values, places, fits = np.zeros(shape, x.dtype), np.zeros(shape, np.int64), np.ones(shape, np.bool_)
    walking = dims.window_dims(x.ndim)
    for place in np.ndindex(*shape):
        batch = [place[k] for k in range(len(shape)) if k not in dims.offset_dims]
        head, tail = batch[: dims.index_vector_dim], batch[dims.index_vector_dim :]
        vector = [indices[(*head, k, *tail)] for k in range(len(dims.start_index_map))]
        found = [0] * x.ndim
        for d, start in zip(dims.start_index_map, vector, strict=True):
            found[d] = int(np.clip(start, 0, x.shape[d] - sizes[d]))
            fits[place] &= found[d] == start
        for d, k in zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True):
            found[d] = batch[k - (k > dims.index_vector_dim)]
        for d, k in zip(walking, dims.offset_dims, strict=True):
            found[d] += place[k]
        values[place], places[place] = x[tuple(found)], np.ravel_multi_index(found, x.shape)
    return values, places, fits


@given(gathers())
def test_any_gather_and_its_adjoint(case: tuple[GatherDimensions, tuple[int, ...], tuple[int, ...], Array]) -> None:
    dims, sizes, shape, indices = case
    random = np.random.default_rng(0)
    x = random.integers(-9, 9, shape).astype(np.float64)
    pair = vjp(graph_of(Gather(dims, sizes), [type_of(x), type_of(indices)]), [True, False])
    result, *residuals = evaluate(pair.forward, [x, indices])
    values, places, _ = one_by_one(dims, sizes, x, indices)
    np.testing.assert_array_equal(result, values)
    ct = random.integers(-9, 9, result.shape).astype(np.float64)
    (ct_x,) = evaluate(pair.backward, [*residuals, ct])
    expected = np.zeros(x.size)
    np.add.at(expected, places.reshape(-1), ct.reshape(-1))
    np.testing.assert_array_equal(ct_x, expected.reshape(shape))


@given(gathers())
def test_any_scatter_add_and_its_adjoint(
    case: tuple[GatherDimensions, tuple[int, ...], tuple[int, ...], Array],
) -> None:
    dims, sizes, shape, indices = case
    random = np.random.default_rng(0)
    x = random.integers(-9, 9, shape).astype(np.float64)
    _, places, fits = one_by_one(dims, sizes, x, indices)
    updates = random.integers(-9, 9, places.shape).astype(np.float64)
    graph = graph_of(ScatterAdd(ScatterDimensions.of(dims)), [type_of(x), type_of(indices), type_of(updates)])
    pair = vjp(graph, [True, False, True])
    result, *residuals = evaluate(pair.forward, [x, indices, updates])
    expected = x.reshape(-1).copy()
    np.add.at(expected, places[fits], updates[fits])
    np.testing.assert_array_equal(result, expected.reshape(shape))
    ct = random.integers(-9, 9, shape).astype(np.float64)
    ct_x, ct_updates = evaluate(pair.backward, [*residuals, ct])
    np.testing.assert_array_equal(ct_x, ct)
    np.testing.assert_array_equal(ct_updates, np.where(fits, ct.reshape(-1)[places], 0))


@given(st.lists(gathers(), min_size=6, max_size=6))
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
def test_xla_agrees(cases: list[tuple[GatherDimensions, tuple[int, ...], tuple[int, ...], Array]]) -> None:
    """Six at once: a compilation costs more than the cases."""
    b, arguments, results = Builder("cases"), [], []
    for dims, sizes, shape, indices in cases:
        random = np.random.default_rng(0)
        x = random.integers(-9, 9, shape).astype(np.float32)
        updates = random.integers(-9, 9, dims.windows_shape(indices.shape, sizes)).astype(np.float32)
        values = [b.parameter(type_of(array)) for array in (x, indices, updates)]
        arguments += [x, indices, updates]
        results.append(b.emit1(Gather(dims, sizes), values[0], values[1]))
        for op in (Scatter, ScatterAdd):
            results.append(b.emit1(op(ScatterDimensions.of(dims)), *values))
    graph = b.build(*results)
    for actual, expected in zip(
        run_stablehlo(stablehlo_text(graph), arguments), evaluate(graph, arguments), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


# -- overlaps and windows outside ------------------------------------------------------------------------------------


def test_a_window_partly_outside_is_moved_by_gather_and_skipped_by_scatter() -> None:
    dims = GatherDimensions((1,), (), (0,), 1)
    x, at = np.arange(5.0), np.array([[4], [-1]])
    (read,) = Gather(dims, (2,)).reference([x, at])
    np.testing.assert_array_equal(read, [[3, 4], [0, 1]])
    (written,) = ScatterAdd(ScatterDimensions.of(dims)).reference([x, at, np.full((2, 2), 100.0)])
    np.testing.assert_array_equal(written, x)


def test_the_update_that_wins_gets_the_cotangent() -> None:
    x, updates = np.zeros((3, 1)), np.array([[1.0], [2.0], [3.0]])
    at = np.array([[1], [1], [9]], np.int32)
    graph = graph_of(Scatter(SCATTERED_ROWS), [type_of(x), type_of(at), type_of(updates)])
    pair = vjp(graph, [True, False, True])
    result, *residuals = evaluate(pair.forward, [x, at, updates])
    np.testing.assert_array_equal(result, [[0], [2], [0]])
    ct_x, ct_updates = evaluate(pair.backward, [*residuals, np.array([[10.0], [20.0], [30.0]])])
    np.testing.assert_array_equal(ct_x, [[10], [0], [30]])
    np.testing.assert_array_equal(ct_updates, [[0], [20], [0]])


def test_unique_indices_spare_the_search_for_the_winner() -> None:
    types = [X, AT, UPDATES]
    unique = linearize(graph_of(Scatter(SCATTERED_ROWS, unique_indices=True), types), [True, False, True])
    assert [residual.value.type for residual in unique.residuals] == [AT]
    repeated = linearize(graph_of(Scatter(SCATTERED_ROWS), types), [True, False, True])
    assert {residual.value.type for residual in repeated.residuals} == {AT, UPDATES.with_dtype(BOOL)}


def test_the_derivative_of_overlapping_products_is_refused_with_its_reason() -> None:
    graph = graph_of(ScatterMultiply(SCATTERED_ROWS), [X, AT, UPDATES])
    with pytest.raises(MissingRuleError, match=r"jvp of 'scatter_multiply' .* unique_indices alone"):
        jvp(graph, [False, False, True])
    jvp(graph, [True, False, False])


def test_indices_too_narrow_to_reach_the_end_are_clamped_all_the_same() -> None:
    x = np.arange(300.0).reshape(300, 1)
    at = np.array([[-128], [127], [5]], np.int8)
    pair = vjp(graph_of(Gather(ROWS, (1, 1)), [type_of(x), TensorType(I8, at.shape)]), [True, False])
    result, *residuals = evaluate(pair.forward, [x, at])
    np.testing.assert_array_equal(result, [[0], [127], [5]])
    (ct,) = evaluate(pair.backward, [*residuals, np.ones((3, 1))])
    assert np.flatnonzero(ct).tolist() == [0, 5, 127]


def test_dynamic_slices_are_clamped_by_the_size_of_the_window() -> None:
    x, far, before = np.arange(5.0), np.uint8(255), np.int32(-7)
    assert DynamicSlice((2,)).infer([type_of(x), TensorType(U8, ())]) == (TensorType(F64, (2,)),)
    np.testing.assert_array_equal(DynamicSlice((2,)).reference([x, np.asarray(far)])[0], [3, 4])
    np.testing.assert_array_equal(DynamicSlice((2,)).reference([x, np.asarray(before)])[0], [0, 1])
    (written,) = DynamicUpdateSlice().reference([x, np.zeros(2), np.asarray(far)])
    np.testing.assert_array_equal(written, [0, 1, 2, 0, 0])
