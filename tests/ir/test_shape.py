"""Shape ops: what they refuse, and what their adjoints do at edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.types import F32, F64, I32, TensorType
from rematc.passes.transpose import transpose
from tests.support.samples import graph_of

MATRIX = TensorType(F32, (2, 3))
SCALAR = TensorType(F32, ())


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (BroadcastInDim((2, 4), (0, 1)), [MATRIX], "size 3 is neither 1 nor 4"),
        (BroadcastInDim((3, 2), (1, 0)), [MATRIX], "increasing"),
        (BroadcastInDim((2, 3), (0,)), [MATRIX], "one entry of dimensions for each dimension"),
        (BroadcastInDim((2, 3), (0, 2)), [MATRIX], "distinct dimensions from 0 up to the rank 2"),
        (Reshape((5,)), [MATRIX], r"6 elements\) to f32\[5\]"),
        (Reshape((-2, -3)), [MATRIX], "reshape"),
        (Transpose((0, 0)), [MATRIX], r"distinct dimensions .* got \[0, 0\]"),
        (Transpose((0,)), [MATRIX], "permutation"),
        (Reverse((2,)), [MATRIX], "rank 2"),
        (Slice((0, 0), (2, 4), (1, 1)), [MATRIX], "limit <= size"),
        (Slice((0, 0), (2, 3), (1, 0)), [MATRIX], "at least 1"),
        (Slice((0,), (2,), (1,)), [MATRIX], "start"),
        (Pad((0, 0), (0, 0), (0, -1)), [MATRIX, SCALAR], "at least 0"),
        (Pad((-3, 0), (0, 0), (0, 0)), [MATRIX, SCALAR], r"leaves \[-1, 3\]"),
        (Pad((0, 0), (0, 0), (0, 0)), [MATRIX, TensorType(I32, ())], r"takes a scalar f32\[\]"),
        (Concatenate(0), [], "at least one"),
        (Concatenate(0), [MATRIX, TensorType(F64, (2, 3))], "dimension 0 alone"),
        (Concatenate(1), [MATRIX, TensorType(F32, (3, 3))], "dimension 1 alone"),
        (Concatenate(2), [MATRIX], "rank 2"),
    ],
)
def test_what_does_not_fit_is_refused(op: Op, operands: list[TensorType], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        op.infer(operands)


def test_the_cotangent_of_a_fill_ignores_infinities_inside() -> None:
    graph = graph_of(Pad((1,), (1,), (0,)), [TensorType(F32, (2,)), SCALAR])
    adjoint = transpose(graph, [True, True])
    ct_x, ct_fill = evaluate(adjoint.graph, [np.array([1, np.inf, np.nan, 2], np.float32)])
    np.testing.assert_array_equal(ct_x, [np.inf, np.nan])
    assert ct_fill == 3


@given(
    size=st.integers(0, 5),
    low=st.integers(-4, 4),
    high=st.integers(-4, 4),
    gap=st.integers(0, 3),
)
def test_pad_puts_element_i_at_low_plus_i_times_gap_plus_one(size: int, low: int, high: int, gap: int) -> None:
    length = size + max(size - 1, 0) * gap + low + high
    if length < 0:
        return
    x = np.arange(1, size + 1, dtype=np.float32)
    (padded,) = Pad((low,), (high,), (gap,)).reference([x, np.zeros((), np.float32)])
    expected = np.zeros(length, np.float32)
    for i in range(size):
        if 0 <= low + i * (gap + 1) < length:
            expected[low + i * (gap + 1)] = x[i]
    np.testing.assert_array_equal(padded, expected)


@given(size=st.integers(0, 9), stride=st.integers(1, 4), data=st.data())
def test_slice_then_its_adjoint_keeps_what_was_taken(size: int, stride: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size))
    limit = data.draw(st.integers(start, size))
    graph = graph_of(Slice((start,), (limit,), (stride,)), [TensorType(F32, (size,))])
    x = np.arange(1, size + 1, dtype=np.float32)
    (taken,) = evaluate(graph, [x])
    (spread,) = evaluate(transpose(graph, [True]).graph, [taken])
    expected = np.zeros_like(x)
    expected[start:limit:stride] = x[start:limit:stride]
    np.testing.assert_array_equal(spread, expected)


def test_the_builder_leaves_out_what_changes_nothing() -> None:
    b = Builder()
    x, zero = b.parameter(MATRIX), b.parameter(SCALAR)
    same = [
        b.reshape(x, (2, 3)),
        b.transpose(x, (0, 1)),
        b.reverse(x, ()),
        b.concatenate([x], 0),
        b.slice(x, (0, 0), (2, 3)),
        b.pad(x, zero, (0, 0), (0, 0)),
        b.broadcast_in_dim(x, (2, 3), (0, 1)),
        b.reduce_sum(x, ()),
    ]
    assert all(value is x for value in same)
    assert b.equations == []
