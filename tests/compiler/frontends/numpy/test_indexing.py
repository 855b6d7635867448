"""x[index], and its functional assignment, are NumPy's for every index that NumPy takes."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc.numpy as rnp
from tests.support.tracing import assert_as_numpy, run, traced

X = np.arange(120.0).reshape(2, 3, 4, 5)
I1 = np.array([1, 0, -1])
I2 = np.array([[0, 2], [-1, 1]])
MASK = np.array([True, False, True])

INDICES = [
    *(0, -1, (1, -2), (0, 1, 2, 3), ..., None, (), (slice(None), 0), np.int64(1), (..., 0), (0, ..., -1)),
    *(np.s_[1:], np.s_[:, ::2], np.s_[:, ::-1], np.s_[..., 3:0:-2], np.s_[5:], np.s_[:, 2:1], np.s_[:, -2:, 1:100]),
    *((None, 0, None, ..., None), np.s_[:, None, 1:, ..., None]),
    *(I1[:2], (slice(None), I1), (slice(None), I2), (I2[0] % 2, I1[:2]), (slice(None), I1, slice(None), 0)),
    *((0, slice(None), I1), (I1 % 2, slice(None), I1), (slice(None), I1, I1), (slice(None), I1, I1, I1)),
    *((..., I1), (..., I1, 0), (None, slice(None), I1), (slice(None), I1, None, I1), (slice(None), None, I1, I1)),
    *(
        (slice(None), I1[:, None], I1),
        ([0, 1], [1, 2]),
        ((0, 1), (1, 2)),
        [1, 0],
        (slice(None), [[0], [2]], slice(1, 3)),
    ),
    *((slice(None), MASK), (slice(None), MASK, [0, 1]), X > 60, (0, X[0] > 30), (..., X[0, 0, 0] > 2)),
    *((slice(None), np.arange(2)), (slice(None), np.arange(2, -1, -1)), (slice(None), np.array([0, 2]))),
    *((slice(None), np.zeros(0, int)), (slice(None), np.zeros(3, bool)), (slice(1, 1), I1)),
    *((slice(None), np.array(2)), (1, np.uint8(2)), (slice(None), np.array([1, 2], np.uint8))),
]


@pytest.mark.parametrize("index", INDICES, ids=lambda i: repr(i).replace("\n", "")[:60])
def test_reading(index: Any) -> None:
    assert_as_numpy(lambda x: x[index], X)


@pytest.mark.parametrize("index", INDICES, ids=lambda i: repr(i).replace("\n", "")[:60])
def test_writing(index: Any) -> None:
    value = np.arange(X[index].size).reshape(X[index].shape) * 1.5 - 3
    for update in (rnp.at_set, rnp.at_add, rnp.at_multiply, rnp.at_min, rnp.at_max):
        if update is rnp.at_set and _repeats(index):
            continue  # which of two values wins is open
        want = update(X, index, value)
        np.testing.assert_array_equal(run(lambda x, v, u=update: u(x, index, v), X, value), want)
        np.testing.assert_array_equal(run(lambda x, u=update: u(x, index, 7), X), update(X, index, 7))


def _repeats(index: Any) -> bool:
    places = np.arange(X.size).reshape(X.shape)[index]
    return bool(np.unique(places).size != places.size)


def test_writing_is_numpy_s_assignment() -> None:
    want = X.copy()
    want[:, 1:, ::2] = 5
    np.testing.assert_array_equal(rnp.at_set(X, np.s_[:, 1:, ::2], 5), want)
    np.testing.assert_array_equal(run(lambda x: rnp.at_set(x, np.s_[:, 1:, ::2], 5), X), want)
    assert X[0, 1, 0, 0] == 20  # the array itself is as it was


TRACED = [
    (lambda x, i: x[i], 1),
    (lambda x, i: x[i], -1),
    (lambda x, i: x[:, i], np.int32(-2)),
    (lambda x, i: x[i, 1:, None, i], 1),
    (lambda x, i: x[0, i, ::-1, 2], np.uint8(2)),
    (lambda x, i: x[..., i], 3),
    (lambda x, i: x[:, i], I1),
    (lambda x, i: x[:, i], I1.astype(np.int8)),
    (lambda x, i: x[:, i], np.array([2, 0], np.uint32)),
    (lambda x, i: x[:, i, 0], I2),
    (lambda x, i: x[0, :, i], I2),
    (lambda x, i: x[:, i, :, i], I1),
    (lambda x, i: x[:, i, i], I2),
    (lambda x, i: x[:, i, [0, 1]], I2),
    (lambda x, i: x[0, i[0]], I2),
    (lambda x, i: x[i[0], i[1]], np.array([1, 2])),
    (lambda x, i: x[:, i + np.arange(2)], 1),
]


@pytest.mark.parametrize("case", range(len(TRACED)))
def test_reading_at_traced_indices(case: int) -> None:
    function, index = TRACED[case]
    assert_as_numpy(function, X, index)


@pytest.mark.parametrize(
    ("index", "select"),
    [
        (1, lambda i: i),
        (-1, lambda i: np.s_[:, i]),
        (2, lambda i: np.s_[:, i, 1:3]),
        (2, lambda i: np.s_[0, i, ..., None]),
        (1, lambda i: np.s_[:, i, ::2]),
        (I1, lambda i: np.s_[:, i]),
        (I1, lambda i: np.s_[:, i, 1:3]),
        (I1, lambda i: np.s_[:, i, ::2, i]),
        (I1, lambda i: np.s_[1:, i, None, ::2]),
    ],
)
def test_writing_at_traced_indices(index: Any, select: Any) -> None:
    for update in (rnp.at_set, rnp.at_add):
        want = update(X, select(index), -1.0)
        np.testing.assert_array_equal(run(lambda x, i, u=update: u(x, select(i), -1.0), X, index), want)


def test_updates_stand_at_the_line_that_calls_them() -> None:
    def function(x: Any) -> Any:
        y = -x
        return rnp.at_set(y, 0, 1.0)

    graph = traced(function, X).graph
    assert graph.equations[-1].loc is not None
    assert graph.equations[-1].loc.line == function.__code__.co_firstlineno + 2


def test_added_values_pile_up_where_indices_repeat() -> None:
    x, i, v = np.zeros(4), np.array([1, 1, 3, 1]), np.array([1.0, 2.0, 4.0, 8.0])
    np.testing.assert_array_equal(run(rnp.at_add, x, i, v), [0, 11, 0, 4])


def test_traced_indices_outside_are_clamped_when_read_and_skipped_when_written() -> None:
    x, i = np.arange(4.0), np.array([9, -9])
    np.testing.assert_array_equal(run(lambda x, i: x[i], x, i), [3, 0])
    np.testing.assert_array_equal(run(lambda x, i: rnp.at_set(x, i, 7.0), x, i), x)


def test_evenly_spaced_concrete_indices_are_slices() -> None:
    def ops(index: Any) -> set[str]:
        return {eqn.op.name for eqn in traced(lambda x: x[index], X).graph.equations}

    assert ops(np.s_[:, 1:]) == {"slice"}
    assert ops((slice(None), np.arange(2))) == {"slice"}
    assert ops(np.s_[..., ::-1]) == {"slice", "reverse"} or ops(np.s_[..., ::-1]) == {"reverse"}
    assert "gather" in ops((slice(None), I1))


def test_one_traced_integer_is_a_dynamic_slice() -> None:
    ops = [eqn.op.name for eqn in traced(lambda x, i: x[:, i], X, 1).graph.equations]
    assert "dynamic_slice" in ops
    assert "gather" not in ops


@settings(max_examples=150)
@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    x = np.arange(float(np.prod(shape))).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    assert_as_numpy(lambda a: a[index], x)


@settings(max_examples=150)
@given(st.data())
def test_mixed_indices(data: st.DataObject) -> None:
    """Slices, integers, new axes and integer arrays, concrete or traced, in any order."""
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    x = np.arange(float(np.prod(shape))).reshape(shape)
    block = data.draw(hnp.broadcastable_shapes((2, 3), max_dims=2, max_side=3))
    template: list[Any] = []
    arrays: list[Any] = []
    for size in shape:
        kind = data.draw(st.sampled_from(["slice", "array", "traced", "point", "new"]))
        if kind == "new":
            template.append(None)
            kind = "slice"
        if kind == "slice":
            template.append(data.draw(st.slices(size)))
        elif kind == "point":
            template.append(data.draw(st.integers(-size, size - 1)))
        else:
            indices = data.draw(hnp.arrays(np.int64, block, elements=st.integers(-size, size - 1)))
            if kind == "traced":
                template.append(len(arrays) * 1j)  # a mark for the place of the traced array
                arrays.append(indices)
            else:
                template.append(indices)

    def read(a: Any, *traced_indices: Any) -> Any:
        index = tuple(traced_indices[int(item.imag)] if isinstance(item, complex) else item for item in template)
        return a[index]

    assert_as_numpy(read, x, *arrays)


@settings(max_examples=100)
@given(st.data())
def test_added_where_basic_indices_say(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    x = np.arange(float(np.prod(shape))).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    want = x.copy()
    want[index] += 10
    np.testing.assert_array_equal(run(lambda a: rnp.at_add(a, index, 10), x), want)
    value = -np.arange(float(x[index].size)).reshape(x[index].shape)
    want = x.copy()
    want[index] = value
    np.testing.assert_array_equal(run(lambda a, v: rnp.at_set(a, index, v), x, value), want)
