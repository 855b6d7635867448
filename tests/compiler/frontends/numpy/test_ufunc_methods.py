"""`reduce` and `accumulate` of the ufuncs that may combine elements in any order, and `view`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, run, traced

RNG = np.random.default_rng(2)
A = RNG.normal(size=(3, 5, 4))
INTS = RNG.integers(1, 30, (3, 5, 4))
BOOLS = A > 0
WITH_NAN = np.where(A > 1, np.nan, A)
MASK = RNG.random(A.shape) > 0.4

FOLDS: list[tuple[np.ufunc, Any]] = [
    *[(ufunc, INTS) for ufunc in (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.gcd, np.lcm, np.logaddexp)],
    *[(ufunc, BOOLS) for ufunc in (np.bitwise_and, np.logical_xor)],
    *[(ufunc, A) for ufunc in (np.logaddexp, np.logaddexp2, np.hypot, np.logical_xor)],
    *[(ufunc, WITH_NAN) for ufunc in (np.fmax, np.fmin)],
    (np.hypot, A.astype(np.float32)),
]


@pytest.mark.parametrize("case", range(len(FOLDS)))
def test_reduce_and_accumulate_are_numpy_s(case: int) -> None:
    ufunc, x = FOLDS[case]
    axes: list[Any] = [0, 1, -1] if ufunc is np.lcm else [0, 1, -1, None, (0, 2)]
    for axis in axes:
        assert_as_numpy(lambda a, k=axis: ufunc.reduce(a, axis=k), x)
        assert_as_numpy(lambda a, k=axis: ufunc.reduce(a, axis=k, keepdims=True, initial=a.dtype.type(1)), x)
    for along in (0, 1, -1):
        assert_as_numpy(lambda a, k=along: ufunc.accumulate(a, k), x)


@pytest.mark.parametrize("ufunc", [np.bitwise_or, np.gcd, np.logaddexp, np.logical_xor], ids=lambda u: u.__name__)
def test_a_mask_leaves_elements_out(ufunc: np.ufunc) -> None:
    assert_as_numpy(lambda a, m: ufunc.reduce(a, axis=1, where=m), INTS, MASK)
    assert_as_numpy(lambda a: ufunc.reduce(a[:0], axis=0), INTS)


def test_what_has_no_neutral_element_needs_one() -> None:
    for function in (lambda a: np.fmax.reduce(a[:0]), lambda a: np.fmax.reduce(a, where=a > 0)):
        with pytest.raises(CompileError, match=r"np\.fmax\.reduce has no neutral element.*initial="):
            traced(function, A)
    assert_as_numpy(lambda a, m: np.fmin.reduce(a, axis=1, where=m, initial=0.5), WITH_NAN, MASK)


def test_the_derivative_of_a_folded_logaddexp_is_a_softmax() -> None:
    found = run(rematc.grad(lambda a: np.logaddexp.reduce(a, axis=None)), A)
    np.testing.assert_allclose(found, np.exp(A) / np.exp(A).sum(), rtol=1e-12)


def test_view_reads_the_same_bits() -> None:
    assert_as_numpy(lambda a: [a.view(np.int64), a.view(np.uint64).view(np.float64)], A)
    assert_as_numpy(lambda a: a.view(np.float16), INTS.astype(np.int16))
    with pytest.raises(CompileError, match="as many bits"):
        traced(lambda a: a.view(np.int32), A)


def test_zeros_have_numpy_s_signs() -> None:
    zeros = np.array([0.0, -0.0])
    for function in (np.sign, lambda a: a % 3.0, lambda a: a % -3.0, np.conjugate, lambda a: np.sign(a * 1j).real):
        np.testing.assert_array_equal(np.signbit(run(function, zeros)), np.signbit(function(zeros)))
    np.testing.assert_array_equal(run(np.signbit, np.array([np.nan, -np.nan])), [False, True])


def test_mantissas_and_exponents_are_exact() -> None:
    x = np.array([0.0, -0.0, 1, -1, 3.7, 1e-310, 5e-324, np.inf, -np.inf, np.nan, 1.7e308, -2e-320])
    for values in (x, x[:5].astype(np.float32), x[:5].astype(np.float16)):
        for got, want in zip(run(np.frexp, values), np.frexp(values), strict=True):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype
        for exponent in (-2000, -60, -3, 0, 5, 700, 2100):
            with np.errstate(all="ignore"):
                want = np.ldexp(values, exponent)
            np.testing.assert_array_equal(run(lambda a, n=exponent: np.ldexp(a, n), values), want)
