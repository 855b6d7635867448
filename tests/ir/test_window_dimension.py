"""How windows lie along a dimension: counts against enumeration, and the two adjoint sets of windows."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.ops.window_dimension import WindowDimension, windows_of

DIMENSIONS = st.builds(
    WindowDimension,
    size=st.integers(1, 4),
    stride=st.integers(1, 4),
    low=st.integers(-4, 6),
    high=st.integers(-4, 6),
    base_dilation=st.integers(1, 4),
    dilation=st.integers(1, 4),
)


def reads(window: WindowDimension, n: int) -> set[tuple[int, int, int]]:
    """All (window, position, element) such that the position of the window reads the element: the definition."""
    return {
        (o, k, i)
        for o, k, i in product(range(window.count(n)), range(window.size), range(n))
        if o * window.stride + k * window.dilation - window.low == i * window.base_dilation
    }


@given(DIMENSIONS, st.integers(0, 7))
def test_every_window_fits_and_no_more(window: WindowDimension, n: int) -> None:
    padded = window.low + max(0, (n - 1) * window.base_dilation + 1) + window.high
    last_place_of = [o * window.stride + (window.size - 1) * window.dilation for o in range(window.count(n) + 1)]
    assert [place < padded for place in last_place_of] == [True] * window.count(n) + [False]


@given(DIMENSIONS, st.integers(0, 7))
def test_reads_counts_pairs_that_read_an_element(window: WindowDimension, n: int) -> None:
    assert window.reads(n) == len(reads(window, n))


@given(DIMENSIONS, st.integers(1, 7))
def test_windows_over_results_read_what_was_read(window: WindowDimension, n: int) -> None:
    m = window.count(n)
    if m:
        adjoint = window.over_results(n)
        assert adjoint.count(m) == n
        assert reads(adjoint, m) == {(i, window.size - 1 - k, o) for o, k, i in reads(window, n)}


@given(DIMENSIONS, st.integers(1, 7))
def test_windows_over_positions_read_what_was_read(window: WindowDimension, n: int) -> None:
    if window.count(n):
        adjoint = window.over_positions(n)
        assert adjoint.count(n) == window.size
        assert reads(adjoint, n) == {(k, o, i) for o, k, i in reads(window, n)}


@given(DIMENSIONS, st.integers(0, 7))
def test_windows_of_shows_the_elements_read_and_fills_the_rest(window: WindowDimension, n: int) -> None:
    expected = np.full((2, window.count(n), window.size), -1)
    for o, k, i in reads(window, n):
        expected[:, o, k] = [i, n + i]
    np.testing.assert_array_equal(windows_of(np.arange(2 * n).reshape(2, n), [window], np.asarray(-1)), expected)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(-2, 6), st.integers(-2, 6), st.integers(1, 7))
def test_every_window_reads(size: int, stride: int, low: int, high: int, n: int) -> None:
    window = WindowDimension(size, stride, low, high, 1, 1)
    reading = {o for o, _, _ in reads(window, n)}
    assert window.every_window_reads(n) == (len(reading) == window.count(n))
