"""Every supported ufunc gives NumPy's values and dtypes, for every combination of operand dtypes that NumPy takes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from rematc.compiler.frontends.numpy.ufuncs import SUPPORTED_UFUNCS
from tests.support.tracing import assert_as_numpy, run, traced

# NumPy's and SciPy's ufuncs, without the products, which have their own tests.
PRODUCTS = {"matmul", "vecdot", "matvec", "vecmat"}
UFUNCS = sorted(
    {
        found if isinstance(found := getattr(np, name, None), np.ufunc) else getattr(scipy.special, name)
        for name in SUPPORTED_UFUNCS - PRODUCTS
        if hasattr(np, name) or hasattr(scipy.special, name)
    },
    key=lambda ufunc: ufunc.__name__,
)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan]
# Outside these the reference and NumPy may differ in sign or value of a result that means nothing.
UNEQUAL_AT_SPECIAL_VALUES = {
    "sign",
    "divmod",
    "modf",
    "floor_divide",
    "nextafter",
    "gammaln",
    "digamma",
    "psi",
    "ldexp",
    "beta",
    "betaln",
    # SciPy has NaN at infinity, where these have limits.
    *("j0", "j1", "jv", "y0", "y1", "yn", "yv", "i0", "i1", "iv", "ive", "kn", "kv", "kve"),
}
#: They have poles, with limits of either sign, among numbers that are not positive.
WITH_POLES = {"beta", "betaln", "ive", "yv", "pdtr", "pdtrc"}


def _samples(dtype: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    match np.dtype(dtype).kind:
        case "b":
            return rng.integers(0, 2, (2, 3)).astype(bool)
        case "i":
            return rng.integers(-4, 5, (2, 3)).astype(dtype)
        case "u":
            return rng.integers(0, 6, (2, 3)).astype(dtype)
    return (rng.random((2, 3)) * 0.9 + 0.05).astype(dtype)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.uint8, np.bool_])
def test_of_one_dtype(ufunc: np.ufunc, dtype: type) -> None:
    arguments = [_samples(dtype, seed) for seed in range(ufunc.nin)]
    if ufunc.__name__ in {"psi", "digamma", "reciprocal"}:
        arguments[0] = np.abs(arguments[0]) + arguments[0].dtype.type(1)  # poles, and integer division by zero
    if ufunc.__name__ in {"beta", "betaln"}:
        arguments = [np.abs(x) + x.dtype.type(1) for x in arguments]  # poles have limits of either sign
    if ufunc in {np.power, np.left_shift, np.right_shift} and dtype is np.int32:
        arguments[1] = np.abs(arguments[1])
    _assert_as_numpy_or_refused(ufunc, *arguments)


def _assert_as_numpy_or_refused(ufunc: Callable[..., Any], *arguments: object) -> None:
    """Where NumPy has a loop, its result; where NumPy raises TypeError, an error too."""
    try:
        with np.errstate(all="ignore"):
            ufunc(*arguments)
    except TypeError:
        with pytest.raises(Exception, match="not defined for dtypes"):
            traced(ufunc, *arguments)
        return
    # SciPy's own rounding is a few units in the last place.
    assert_as_numpy(ufunc, *arguments, tolerance=1e-2 if np.asarray(arguments[0]).dtype.itemsize <= 2 else 1e-5)


BINARY = [ufunc for ufunc in UFUNCS if ufunc.nin == 2 and getattr(np, ufunc.__name__, None) is ufunc]


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda ufunc: ufunc.__name__)
def test_of_two_dtypes(ufunc: np.ufunc) -> None:
    for first, second in itertools.permutations([np.float32, np.int64, np.uint8, np.bool_, np.float16], 2):
        y = _samples(second, 1)
        _assert_as_numpy_or_refused(ufunc, _samples(first, 0), np.abs(y) if y.dtype.kind == "i" else y)


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("scalar", [2, 3.0, True, np.float32(2), np.int8(2), np.float64(1.5)], ids=repr)
def test_with_scalars_python_s_are_weak_and_numpy_s_are_not(ufunc: np.ufunc, scalar: object) -> None:
    for dtype in (np.float32, np.int16, np.float64, np.float16):
        x = np.abs(_samples(dtype, 0))
        _assert_as_numpy_or_refused(lambda a: ufunc(a, scalar), x)  # the scalar in the graph
        _assert_as_numpy_or_refused(lambda a: ufunc(scalar, a), x)
        _assert_as_numpy_or_refused(ufunc, x, scalar)  # the scalar as an argument


@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin == 1], ids=lambda ufunc: ufunc.__name__)
def test_special_values_of_one_operand(ufunc: np.ufunc) -> None:
    values = [v for v in SPECIAL if np.isfinite(v) or ufunc.__name__ not in UNEQUAL_AT_SPECIAL_VALUES]
    if ufunc.__name__ in {"psi", "digamma"}:
        values = [v for v in values if v > 0]  # SciPy gives its pole at 0 a sign
    x = np.array(values, np.float64)
    try:
        ufunc(x[:0])
    except TypeError:
        return
    assert_as_numpy(ufunc, x, tolerance=1e-9)


@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin == 2], ids=lambda ufunc: ufunc.__name__)
def test_special_values_of_two_operands(ufunc: np.ufunc) -> None:
    values = [v for v in SPECIAL if np.isfinite(v) or ufunc.__name__ not in UNEQUAL_AT_SPECIAL_VALUES]
    if ufunc.__name__ in WITH_POLES:
        values = [v for v in values if v > 0]
    x, y = np.meshgrid(np.array(values), np.array(values))
    try:
        ufunc(x[:0], y[:0])
    except TypeError:
        return
    assert_as_numpy(ufunc, x, y, tolerance=1e-9)


def test_integer_division_by_zero_is_zero() -> None:
    x, y = np.array([5, -5, 0, 7]), np.array([0, 0, 0, -2])
    for ufunc in (np.floor_divide, np.remainder, np.fmod, np.divmod):
        assert_as_numpy(ufunc, x, y)


@pytest.mark.parametrize(
    "exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0, 7, 40, np.float32(2), np.int8(3)], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_powers_with_a_known_exponent(dtype: type, exponent: float) -> None:
    x = np.array([0.5, 1.5, 2.0, 3.0]).astype(dtype) + dtype(1)
    if dtype is np.int32 and isinstance(exponent, (int, np.integer)) and exponent < 0:
        with pytest.raises(Exception, match="negative power"):
            traced(lambda a: a**exponent, x)
        return
    assert_as_numpy(lambda a: a**exponent, x, tolerance=1e-5)


def test_a_floored_quotient_of_zero_has_the_sign_of_the_exact_one() -> None:
    x, y = np.meshgrid([0.0, -0.0, 2.0, -2.0], [3.0, -3.0, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        expected = np.signbit(np.floor_divide(x, y))
    np.testing.assert_array_equal(np.signbit(run(np.floor_divide, x, y)), expected)


def test_known_exponents_need_no_power() -> None:
    def ops(exponent: float) -> list[str]:
        return [eqn.op.name for eqn in traced(lambda x: x**exponent, np.ones(3)).graph.equations]

    assert ops(2) == ["multiply"]
    assert ops(0.5) == ["sqrt"]
    assert ops(-0.5) == ["rsqrt"]
    assert ops(3) == ["integer_power"]
    assert "power" in ops(1.3)


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
]


@pytest.mark.parametrize("apply", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "other", [2, 2.5, np.float32(3), np.array([1.0, 2.0, 4.0]), np.array([[1], [2]], np.int8)], ids=repr
)
def test_operators_both_ways(apply: Callable[[Any, Any], Any], other: object) -> None:
    for x in (np.array([1, 2, 3], np.int32), np.array([1.5, 2, 3], np.float32)):
        assert_as_numpy(lambda a: apply(a, other), x)
        assert_as_numpy(lambda a: apply(other, a), x)


@pytest.mark.parametrize("apply", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_bitwise_operators(apply: Callable[[Any, Any], Any]) -> None:
    assert_as_numpy(apply, np.array([1, 6, 3]), np.array([2, 3, 1]))
    assert_as_numpy(lambda x: apply(x, 2), np.array([1, 6, 3], np.uint8))


def test_unary_operators() -> None:
    x = np.array([1.5, -2.0])
    assert_as_numpy(lambda a: (-a, +a, abs(a), divmod(a, 0.7)), x)
    assert_as_numpy(lambda a: ~a, np.array([True, False]))


def test_in_place_operators_rebind() -> None:
    def function(x: Any) -> Any:
        y = x
        y = y + 0
        y += 1
        y *= 2
        y -= x
        y /= 4
        return y

    assert_as_numpy(function, np.array([1.0, 2.0]))


def test_in_place_operators_keep_the_dtype() -> None:
    def function(x: Any, y: Any) -> Any:
        x = x + 0
        x += y
        x **= 2
        x @= y
        x /= np.float64(3)
        x -= 1
        return x

    assert_as_numpy(function, np.ones((2, 2), np.float32), np.array([[0.1, 2], [3, 4]]), tolerance=1e-5)


def test_python_scalars_stay_weak_through_operators_and_not_through_ufuncs() -> None:
    x = np.ones(2, np.float32)
    assert run(lambda a, s: a * (s * 2 + 1), x, 0.5).dtype == np.float32
    assert run(lambda a, s: a * np.sin(s), x, 0.5).dtype == np.float64
    assert run(lambda a, s: a * (s // 2), np.ones(2, np.int8), 5).dtype == np.int8
    assert traced(lambda s: (s * 2, np.sin(s)), 0.5).out_weak == (True, False)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_stays_with_python_scalars(dtype: type) -> None:
    x: Any = np.array([0.5, 1.0, 2.0], dtype)

    def model(a: Any) -> list[Any]:
        return [a * 2.0, 1 - a, a / 3, np.exp(a), np.maximum(a, 0.0), np.clip(a, 0.0, 1.0), a @ a, np.tanh(a) ** 2,
                np.where(a > 1, a, 0.0), a.mean(), a.var(), np.sqrt(a + 1e-2), np.logaddexp(a, a)]  # fmt: skip

    results = run(model, x)
    assert [r.dtype for r in results] == [np.dtype(dtype)] * len(results)
    exact = model(x.astype(np.float64))
    for got, want in zip(results, exact, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-2)


def test_bfloat16_with_float32_is_float32() -> None:
    x, y = np.ones(2, ml_dtypes.bfloat16), np.ones(2, np.float32)
    assert run(np.add, x, y).dtype == np.float32


def test_reduce_accumulate_and_outer() -> None:
    x = np.array([[1.0, 3.0, 2.0], [4.0, -1.0, 0.5]])
    assert_as_numpy(np.add.reduce, x)
    assert_as_numpy(lambda a: np.add.reduce(a, axis=1, keepdims=True), x)
    assert_as_numpy(lambda a: np.multiply.reduce(a, axis=None), x)
    assert_as_numpy(lambda a: np.maximum.reduce(a, axis=1), x)
    assert_as_numpy(lambda a: np.minimum.reduce(a, axis=(0, 1)), x)
    assert_as_numpy(lambda a: np.logical_and.reduce(a > 0, axis=0), x)
    assert_as_numpy(lambda a: np.logical_or.reduce(a > 3, axis=0), x)
    assert_as_numpy(lambda a: np.add.accumulate(a, axis=1), x)
    assert_as_numpy(lambda a: np.maximum.accumulate(a, axis=1), x)
    assert_as_numpy(lambda a: np.subtract.outer(a, a[0]), x)
    assert_as_numpy(lambda a: np.multiply.outer(np.arange(3.0), a), x)


def test_arrays_in_lists_and_lists_of_tracers_are_operands() -> None:
    x = np.array([1.0, 2.0])
    assert_as_numpy(lambda a: a + [3.0, 4.0], x)  # noqa: RUF005  # an operator of an array
    assert_as_numpy(lambda a: np.add([[1.0, 2.0], [3.0, 4.0]], a), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_logarithm_of_beta_reaches_operands_far_apart(dtype: Any) -> None:
    """Where log gamma has no digits left of the smaller operand, or is infinite."""
    most = np.finfo(dtype).max
    x = np.array([np.inf, np.inf, most, most, 1e10, 1e9, 1e9, 1e-10], dtype)
    y = np.array([1, 0.5, 1, 1e-30, 0.3, 2e-9, 2, 1e-10], dtype)
    found = run(scipy.special.betaln, x, y)
    # SciPy's own are exact to 1e-5 at 1e9.
    expected = scipy.special.betaln(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(found, expected, 2e-5 if dtype is np.float32 else 2e-6)
