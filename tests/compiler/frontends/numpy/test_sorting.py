"""Sorts, quantiles, places in sorted arrays, and functions of a named size give NumPy's values; their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
import rematc.numpy as rnp
from tests.support.tracing import assert_as_numpy, run

RNG = np.random.default_rng(5)
A = RNG.normal(size=(4, 5))
N = np.where(A > 0.7, np.nan, A)
N[2] = np.nan
TIES = RNG.integers(0, 3, (4, 6))
EDGES = np.array([1.0, np.nan, -0.0, np.inf, 0.0, -np.inf, np.nan, -1.0])
C = RNG.integers(-1, 2, 8) + 1j * RNG.integers(-1, 2, 8)

METHODS = ["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
           "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased"]  # fmt: skip


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_sorts(axis: Any) -> None:
    for x in (A, A.astype(np.float32), TIES, TIES.astype(np.uint8), TIES > 1, N):
        assert_as_numpy(lambda a: [np.sort(a, axis), np.argsort(a, axis=axis, kind="stable")], x)


def test_sorts_of_what_is_special() -> None:
    assert_as_numpy(lambda a: [np.sort(a), np.argsort(a, stable=True)], EDGES)
    assert_as_numpy(lambda a: [np.sort(a), np.argsort(a, kind="stable"), np.sort_complex(a)], C)
    assert_as_numpy(np.sort_complex, TIES)
    assert_as_numpy(lambda a: [np.sort(a, axis=0), np.argsort(a)], np.zeros((3, 0)))
    assert_as_numpy(lambda a: [a.argsort(kind="stable"), a[0].searchsorted(a)], np.sort(TIES))


def test_partitions_are_sorts() -> None:
    for k in (0, 2, 4):
        found = run(lambda a, k=k: [np.partition(a, k), np.argpartition(a, k), a.argpartition(k)], A)
        np.testing.assert_array_equal(found[0], np.sort(A))
        np.testing.assert_array_equal(found[1], np.argsort(A))
        np.testing.assert_array_equal(found[2], np.argsort(A))


def test_lexsort() -> None:
    assert_as_numpy(lambda x, y: [np.lexsort((x, y)), np.lexsort((x, y), axis=0)], A, TIES[:, :5])
    assert_as_numpy(np.lexsort, TIES)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: Any) -> None:
    for line in (np.sort(EDGES), np.sort(TIES[0]), np.arange(9.0), np.zeros(0), np.ones(1)):
        for targets in (EDGES, np.array([[0.5, 1.0], [7.0, -3.0]]), 2):
            assert_as_numpy(lambda a, v: np.searchsorted(a, v, side), line, targets)
    order = np.argsort(A[0])
    assert_as_numpy(lambda a, s: np.searchsorted(a, 0.1, side, sorter=s), A[0], order)


def test_digitize_and_membership() -> None:
    for bins in ([-1.0, 0.0, 0.5], [0.5, 0.0, -1.0], [0.0, 0.0, 1.0]):
        for right in (False, True):
            assert_as_numpy(lambda x, b=bins, r=right: np.digitize(x, b, right=r), A)
    many = np.arange(-20, 20) / 4
    for known in ([0, 2, 7], many, np.append(many, np.nan)):
        assert_as_numpy(lambda x, k=known: [np.isin(x, k), np.isin(x, k, invert=True)], np.append(TIES, [np.nan, 0.3]))
    assert_as_numpy(lambda x: np.isin(x, [0, 1j]), C)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_medians(axis: Any, keepdims: bool) -> None:
    for x in (A, A.astype(np.float32), A.astype(np.float16), TIES, N, np.array([[np.inf, np.inf]])):
        assert_as_numpy(lambda a: np.median(a, axis=axis, keepdims=keepdims), x)
    for x in (A, N, N.astype(np.float32), TIES):
        assert_as_numpy(lambda a: np.nanmedian(a, axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("method", METHODS)
def test_quantiles(method: Any) -> None:
    for q in (0.5, 0, 1, [0.1, 0.25, 1.0], np.array([[0.3], [0.77]])):
        for x in (A, A.astype(np.float32), TIES, N):
            assert_as_numpy(lambda a, q=q: np.quantile(a, q, axis=1, method=method), x)
    assert_as_numpy(lambda a: np.percentile(a, [5, 50], axis=0, keepdims=True, method=method), A)
    assert_as_numpy(lambda a: np.percentile(a, 30.0, method=method), A)


@pytest.mark.parametrize("method", METHODS[:5])
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_quantiles_of_numbers_alone(method: Any) -> None:
    for q in (0.5, [0.1, 0.25, 1.0]):
        for axis in (None, 0, 1):
            assert_as_numpy(lambda a, q=q, axis=axis: np.nanquantile(a, q, axis=axis, method=method), N)
    assert_as_numpy(lambda a: np.nanpercentile(a, [5, 50], axis=0, keepdims=True, method=method), N)
    assert_as_numpy(lambda a: np.nanpercentile(a, 40, method=method), TIES)


# -- a named size ------------------------------------------------------------------------------------------------------

FILLED: list[tuple[Callable[..., Any], Any]] = [
    *[(lambda x, n=n: rnp.flatnonzero(x, size=n, fill_value=-1), TIES) for n in (0, 3, 12, 40)],
    *[(lambda x, n=n: rnp.nonzero(x, size=n, fill_value=(7, 9)), TIES) for n in (2, 40)],
    (lambda x: rnp.nonzero(x, size=3), TIES[0] > 1),
    (lambda x: rnp.argwhere(x > 0, size=30), A),
    *[(lambda x, n=n: rnp.unique(x, True, True, True, size=n), TIES) for n in (1, 2, 3, 6)],
    (lambda x: rnp.unique(x, size=9, fill_value=-5.0), EDGES),
    (lambda x: rnp.unique(x, return_counts=True, size=5, fill_value=0), C),
]


@pytest.mark.parametrize("case", range(len(FILLED)))
def test_what_is_traced_with_a_size_is_what_numpy_finds_and_fills(case: int) -> None:
    """On concrete arrays these functions cut and fill up NumPy's own results."""
    assert_as_numpy(*FILLED[case])


def test_concrete_arrays_need_no_size() -> None:
    np.testing.assert_array_equal(rnp.unique(TIES), np.unique(TIES))
    np.testing.assert_array_equal(rnp.nonzero(TIES), np.nonzero(TIES))
    np.testing.assert_array_equal(rnp.argwhere(TIES), np.argwhere(TIES))
    np.testing.assert_array_equal(rnp.flatnonzero(TIES), np.flatnonzero(TIES))
    np.testing.assert_array_equal(rnp.unique(TIES, size=2), [0, 1])


# -- derivatives -------------------------------------------------------------------------------------------------------


def test_gradients_follow_the_elements() -> None:
    x, weights = np.array([3.0, 1.0, 2.0]), np.array([10.0, 20.0, 30.0])
    np.testing.assert_array_equal(run(rematc.grad(lambda x: np.sort(x) @ weights), x), [30, 10, 20])
    np.testing.assert_array_equal(run(rematc.grad(np.median), x), [0, 0, 1])
    np.testing.assert_array_equal(run(rematc.grad(np.median), np.append(x, 7.0)), [0.5, 0, 0.5, 0])
    np.testing.assert_allclose(run(rematc.grad(lambda x: np.quantile(x, 0.75)), x), [0.5, 0, 0.5])
    np.testing.assert_allclose(run(rematc.grad(lambda x: np.nanmedian(np.append(x, np.nan))), x), [0, 0, 1])
    np.testing.assert_array_equal(run(rematc.grad(lambda x: rnp.unique(x, size=4) @ np.arange(1.0, 5)), x), [3, 5, 2])


def test_a_sort_and_its_gradient_need_one_sort() -> None:
    lowered = rematc.lower(rematc.value_and_grad(lambda x: (np.sort(x) ** 2 * np.arange(4.0)).sum()), np.ones(4))
    assert lowered.stablehlo().count("stablehlo.sort") == 1


def test_compiled_results_are_numpys() -> None:
    def function(x: Any) -> Any:
        return np.sort(x, 0), np.argsort(x), np.median(x, 1), np.searchsorted(np.sort(x[0]), x), rnp.unique(x, size=30)

    expected = function(A)
    for found, wanted in zip(rematc.jit(function)(A), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
