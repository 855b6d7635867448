"""Ufuncs over pairs of dtypes, Python's scalars, dimensions and sizes: the dtype and the value are NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, run, traced

DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
]
SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (0,), (2, 0), (1, 3), (1,)]
BINARY = [
    *(np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.fmod, np.maximum, np.minimum),
    *(np.fmax, np.fmin, np.equal, np.not_equal, np.less, np.greater_equal, np.logical_and, np.logical_xor, np.hypot),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.arctan2, np.copysign, np.float_power, np.gcd),
    *(np.power, np.heaviside, np.logaddexp, np.ldexp),
]
UNARY = [
    *(np.negative, np.positive, np.absolute, np.sign, np.square, np.sqrt, np.exp, np.expm1, np.sin, np.tanh, np.rint),
    *(np.floor, np.trunc, np.isnan, np.isfinite, np.signbit, np.logical_not, np.invert, np.conjugate, np.reciprocal),
    *(np.bitwise_count, np.fabs, np.deg2rad, np.spacing),
]
OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.and_, operator.or_, operator.xor, operator.lt, operator.ge, operator.eq),
]
# Small enough that no product of two leaves an integer of 8 bits, and no power of 2 to it the floats of 16.
NUMBERS: dict[str, list[complex]] = {
    "b": [0, 1],
    "u": [0, 1, 2, 3, 5],
    "i": [-3, -1, 0, 1, 2, 4],
    "f": [-2.5, -1, -0.5, 0, 0.75, 2, 3.5],
}
COMPLEX: list[complex] = [0, 1, -0.5 + 2j, 1j, 2.5 - 1j]
#: Functions in which NumPy's 16-bit floats, or the complex ones, are rounded another way than by a wider type.
TOLERANCE = {2: 4e-3, 4: 5e-6, 8: 1e-12}


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> Any:
    """An array of any dtype and a small shape, of numbers that are exact in every dtype of its kind."""
    dtype: Any = np.dtype(draw(st.sampled_from(DTYPES)))
    sizes = draw(st.sampled_from(SHAPES)) if shape is None else shape
    pool = COMPLEX if dtype.kind == "c" else NUMBERS[dtype.kind]
    count = int(np.prod(sizes))
    chosen = draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))
    return np.array(chosen).astype(dtype).reshape(sizes)


SCALARS = st.one_of(
    st.sampled_from([0, 1, 3, -2, True, False, 0.5, -1.0, 2.0, 1j, 1 + 2j]),
    st.sampled_from([np.float32(2), np.int8(2), np.float64(1.5), np.uint8(3), np.complex64(1j), np.bool_(True)]),
)
OPERANDS = st.one_of(arrays(), arrays(), SCALARS)


def _assert_agrees(function: Callable[..., Any], *arguments: Any) -> None:
    """NumPy's dtype and value; where NumPy has no loop or refuses a Python integer, an error here too."""
    with np.errstate(all="ignore"):
        try:
            expected = np.asarray(function(*arguments))
        except OverflowError:
            return  # a Python integer that is an argument has no value while it is traced; in the graph: the test below
        except (TypeError, ValueError):
            with pytest.raises((CompileError, TypeError)):
                traced(function, *arguments)
            return
    width = expected.dtype.itemsize // (2 if expected.dtype.kind == "c" else 1)
    narrowest = min([width, *(x.dtype.itemsize for x in arguments if np.asarray(x).dtype == np.float16)])
    assert_as_numpy(function, *arguments, tolerance=TOLERANCE.get(narrowest))


@settings(max_examples=200)
@given(ufunc=st.sampled_from(BINARY), x=OPERANDS, y=OPERANDS)
def test_binary_ufuncs_agree_with_numpy(ufunc: np.ufunc, x: Any, y: Any) -> None:
    if ufunc is np.power and np.asarray(y).dtype.kind == "i" and (np.asarray(y) < 0).any():
        y = abs(y)  # NumPy raises for the values, which a traced function does not know
    _assert_agrees(ufunc, x, y)


@settings(max_examples=100)
@given(ufunc=st.sampled_from(UNARY), x=OPERANDS)
def test_unary_ufuncs_agree_with_numpy(ufunc: np.ufunc, x: Any) -> None:
    if ufunc is np.reciprocal and np.asarray(x).dtype.kind in "biu":
        return  # 1 / 0 of integers has no value
    if ufunc is np.spacing and np.asarray(x).dtype == np.float16:
        return  # of powers of two below zero NumPy gives the distance to the other side
    _assert_agrees(ufunc, x)


@settings(max_examples=150)
@given(apply=st.sampled_from(OPERATORS), x=arrays(), y=SCALARS, is_reflected=st.booleans())
def test_operators_with_scalars_in_the_graph_agree_with_numpy(
    apply: Callable[..., Any], x: Any, y: Any, is_reflected: bool
) -> None:
    if apply is operator.pow and not isinstance(y, complex) and (y < 0 or (is_reflected and x.dtype.kind == "i")):
        return  # integers to negative powers: NumPy raises for the values
    _assert_agrees(lambda a: apply(y, a) if is_reflected else apply(a, y), x)


@settings(max_examples=60)
@given(x=arrays((2, 3)), y=arrays((2, 3)), mask=arrays((2, 3)))
def test_selections_promote_as_numpy_s(x: Any, y: Any, mask: Any) -> None:
    _assert_agrees(np.where, mask != 0, x, y)
    _assert_agrees(lambda a, b: np.concatenate([a, b]), x, y)
    _assert_agrees(lambda a: np.where(a != 0, a, 2), x)


@settings(max_examples=60)
@given(x=arrays(), dtype=st.sampled_from(DTYPES), ufunc=st.sampled_from([np.add, np.multiply, np.less, np.power]))
def test_the_option_dtype_takes_numpy_s_loop(x: Any, dtype: Any, ufunc: np.ufunc) -> None:
    _assert_agrees(lambda a: ufunc(a, abs(a), dtype=dtype), x)


def test_bfloat16_stays_bfloat16_with_python_s_scalars() -> None:
    import ml_dtypes  # noqa: PLC0415  # its dtypes are NumPy's only where it is imported

    x = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    for function in (lambda a: a * 2.0 + 1, lambda a: np.sin(a), lambda a: np.maximum(a, 0)):  # noqa: PLW0108
        assert run(function, x).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("value", [-1, 300])
def test_a_python_integer_in_the_graph_must_fit_except_in_comparisons(value: int) -> None:
    x = np.array([0, 7, 255], np.uint8)
    with pytest.raises(CompileError, match=f"{value} is out of bounds for uint8"):
        traced(lambda a: a + value, x)
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        assert_as_numpy(lambda a, f=compare: [f(a, value), f(value, a)], x)
        assert_as_numpy(lambda a, v, f=compare: [f(a, v), f(v, a)], x, value)


def test_signed_and_unsigned_integers_compare_by_value() -> None:
    x, y = np.array([0, 2**63 + 5, 2**64 - 1], np.uint64), np.array([-1, 5, 2**63 - 1])
    for compare in (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal):
        assert_as_numpy(lambda a, b, f=compare: [f(a, b), f(b, a)], x, y)


F32 = np.linspace(0, 3, 12, dtype=np.float32)


@pytest.mark.parametrize(
    "function",
    [
        *(
            lambda x: np.dot(x, 2),
            lambda x: np.inner(3.0, x),
            lambda x: np.outer(x, 2),
            lambda x: np.tensordot(x, 2, 0),
        ),
        *(lambda x: np.kron(x, 2), lambda x: np.clip(2, None, x), lambda x: np.clip(x, 0, 2)),
        *(
            lambda x: (x > 1) ** 2,
            lambda x: (x > 1) ** 3,
            lambda x: np.power(x > 1, 2),
            lambda x: (x > 1) ** np.int8(2),
        ),
        lambda x: np.histogram(x, 4, (0, 1)),
        lambda x: np.histogram(x, 4, (0.5, 0.5)),
        lambda x: np.histogram(x, weights=x),
        lambda x: np.histogram(x, weights=x, density=True),
        lambda x: np.histogram2d(x, x, 3, [[0, 1], [0, 2]]),
        lambda x: np.histogram_bin_edges(x, 4, (0, 1)),
        lambda x: (np.fft.irfft(x / 2), np.fft.hfft(x / 2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float16])
def test_dtypes_of_functions_that_make_arrays_of_python_scalars(function: Any, dtype: Any) -> None:
    assert_as_numpy(function, F32.astype(dtype))


def test_an_exponent_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CompileError, match="300 is out of bounds for int8"):
        traced(lambda x: x**300, np.array([1, 2], np.int8))
