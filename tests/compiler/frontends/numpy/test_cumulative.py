"""Running combinations: NumPy's values, their derivatives, and programs that do not grow with the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.lowering.module import stablehlo_text
from tests.support.tracing import assert_as_numpy, run, traced

A = np.random.default_rng(3).normal(size=(3, 5))
UFUNCS = [np.add, np.multiply, np.maximum, np.minimum, np.logical_or, np.logical_and, np.logaddexp, np.logaddexp2]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8, np.bool_])
def test_accumulate_is_numpys(ufunc: np.ufunc, dtype: type) -> None:
    if dtype is np.bool_ and ufunc in (np.logaddexp, np.logaddexp2):
        return  # NumPy computes these in float16
    x: Any = (A * 2).astype(dtype)
    assert_as_numpy(lambda a: [ufunc.accumulate(a), ufunc.accumulate(a, axis=1)], x)


def test_dtypes_of_sums_and_products() -> None:
    x = (A * 3).astype(np.int8)
    assert_as_numpy(lambda a: [np.cumsum(a, dtype=np.int8), np.cumprod(a, 1, np.float32)], x)
    assert_as_numpy(lambda a: [np.cumsum(a, dtype=bool), np.cumprod(a, dtype=bool)], x)
    assert_as_numpy(lambda a: [np.cumsum(a, 1), np.cumprod(a, 0)], A + 1j * A[::-1])


def test_a_scalar_and_no_elements() -> None:
    assert_as_numpy(np.cumsum, 3.0)
    assert_as_numpy(lambda a: [np.cumsum(a), np.cumsum(a, 1), np.cumprod(a, 0)], np.zeros((3, 0)))


WEIGHTS = np.arange(1.0, 6.0)


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        # The product of the others, without dividing by what may be zero.
        (lambda x: np.cumprod(x)[-1], [2.0, 0.0, 3.0], [0, 6, 0]),
        (lambda x: np.cumprod(x).sum(), [0.0, 0.0, 3.0], [1, 0, 0]),
        (lambda x: np.maximum.accumulate(x) @ WEIGHTS, [1.0, 3.0, 3.0, 2.0, 4.0], [1, 9, 0, 0, 5]),
        (lambda x: np.logaddexp.accumulate(x)[-1], [-np.inf, 0.0, 0.0], [0, 0.5, 0.5]),
        (lambda x: np.logaddexp.accumulate(x)[-1], [800.0, 800.0], [0.5, 0.5]),
        (lambda x: np.cumsum(x[::-1]) @ WEIGHTS, [0.0] * 5, [5, 9, 12, 14, 15]),
    ],
)
def test_gradients_at_zeros_ties_and_infinities(function: Callable[[Any], Any], x: list[float], expected: Any) -> None:
    np.testing.assert_allclose(run(rematc.grad(function), np.array(x)), expected, rtol=1e-12)


def test_second_derivatives_of_products() -> None:
    def slopes(x: Any) -> Any:
        return rematc.grad(lambda y: np.cumprod(y)[-1])(x)

    hessian = run(rematc.grad(lambda x: slopes(x) @ np.array([1.0, 10.0, 100.0])), np.array([2.0, 0.0, 5.0]))
    # d/dx_j of sum_i w_i prod_{k != i} x_k
    np.testing.assert_allclose(hessian, [10 * 5.0, 1 * 5.0 + 100 * 2.0, 10 * 2.0], rtol=1e-14)


def test_the_program_grows_with_the_logarithm_of_the_size() -> None:
    def lines(size: int) -> int:
        return stablehlo_text(traced(np.cumsum, np.zeros(size)).graph).count("\n")

    small, large = lines(10**3), lines(10**6)
    assert large < 2.5 * small  # five rounds more, of ten
    assert large < 500
