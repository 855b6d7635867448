"""The functions of rematc.numpy that NumPy does not have, or has otherwise: traced as on concrete arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
import rematc.numpy as rnp
from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, run, traced

RNG = np.random.default_rng(5)
A = RNG.normal(size=(3, 4))
V = RNG.normal(size=4)
INTS = RNG.integers(0, 9, 12)
OTHERS = RNG.integers(0, 9, 7)

# On concrete arrays these are NumPy's, which assert_as_numpy compares with.
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *[
        (lambda x, y, f=f, n=n: f(x, y, size=n, fill_value=-7), (INTS, OTHERS))
        for f in (rnp.union1d, rnp.intersect1d, rnp.setdiff1d, rnp.setxor1d)
        for n in (2, 7, 20)
    ],
    *[(lambda m, x, n=n: rnp.extract(m > 0, x, size=n, fill_value=-1.0), (A, A)) for n in (0, 3, 9, 15)],
    *[(lambda m, n=n: rnp.where(m > 0, size=n, fill_value=-1), (A,)) for n in (3, 9)],
    (lambda m, x: rnp.where(m > 0, x, 0.0), (A, A)),
    (lambda m, x: rnp.compress([True, False, True], x, 0, size=1), (A, A)),
    *[(lambda x, k=k: rnp.sort(x, k, descending=True), (A,)) for k in (0, -1, None)],
    *[(lambda x, k=k: rnp.argsort(x, k, descending=True), (np.round(A),)) for k in (0, -1, None)],
    (lambda x: rnp.clip(x, min=-0.5, max=0.5), (A,)),
    (lambda x: rnp.clip(x, a_max=0.5), (A,)),
    (lambda x: rnp.at_set(x, x > 0, 0.0), (A,)),
    (lambda x: rnp.at_add(x, x[:, 0] > 0, np.arange(4.0)), (A,)),
    (lambda x: rnp.at_multiply(x, (x[:, 0] > 0, ...), 2.0), (A,)),
    (lambda x: rnp.at_max(x, (x[:, 0] > 0, slice(None)), [[0.5]]), (A,)),
    (lambda x, i: rnp.put_along_axis(x, i, -x[:, :1], 1), (A, np.array([[1], [0], [3]]))),
    (lambda x, i: rnp.put_along_axis(x, i, 9.0, None), (A, np.array([1, 7]))),
    (rnp.fill_diagonal, (A, np.array([5.0, 6.0]))),
    (lambda x: rnp.fill_diagonal(np.tile(x.T, (3, 1)), 1.0, wrap=True), (A,)),
    (rnp.vectorize(lambda x, y: np.where(x > y, x * y, x - y)), (A, V)),
    (lambda x: rnp.vectorize(lambda u, v: u * v + 1)(x, 2.0), (A,)),
    (lambda x: rnp.vectorize(lambda u, p: np.polyval(p, u), excluded={1})(x, [1, 2, 3]), (A,)),
    (lambda x: rnp.vectorize(lambda u, p: np.polyval(p, u), excluded={"p"})(x, p=[1, 2, 3]), (A,)),
    (rnp.vectorize(np.dot, signature="(n),(n)->()"), (A, V)),
    (rnp.vectorize(lambda x, y: (np.outer(x, y), x.sum()), signature="(n),(m)->(n,m),()"), (A[:, None], A)),
    (rnp.vectorize(lambda x: x + 1, otypes=[np.float32]), (A,)),
    (lambda x: rnp.vectorize(lambda u, v: u - v)(x[0, 0], 2.0), (A,)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_traced_as_on_concrete_arrays(case: int) -> None:
    function, arguments = CASES[case]
    assert_as_numpy(function, *arguments)


def test_sets_at_their_own_size_are_numpy_s() -> None:
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        expected = getattr(np, name)(INTS, OTHERS)
        found = run(lambda x, y, f=getattr(rnp, name), n=expected.size: f(x, y, size=n), INTS, OTHERS)  # noqa: B008
        np.testing.assert_array_equal(found, expected)


def test_compress_along_an_axis_fills_up() -> None:
    kept = run(lambda m, x: rnp.compress(m > 0, x, 1, size=4, fill_value=9.0), V, A)
    expected = A[:, V > 0]
    np.testing.assert_array_equal(kept, np.pad(expected, ((0, 0), (0, 4 - expected.shape[1])), constant_values=9.0))


def test_repeat_to_a_length_cuts_and_fills_up() -> None:
    times = np.array([2, 0, 3, 1])
    whole = np.repeat(A, times, 1)
    for length in (4, 6, 8):
        found = run(lambda x, n, k=length: rnp.repeat(x, n, 1, total_repeat_length=k), A, times)
        expected = np.concatenate([whole, whole[:, -1:], whole[:, -1:]], 1)[:, :length]
        np.testing.assert_array_equal(found, expected)


def test_writing_functions_leave_their_arguments_alone() -> None:
    x = np.zeros((2, 2))
    np.testing.assert_array_equal(rnp.fill_diagonal(x, 1.0), np.eye(2))
    np.testing.assert_array_equal(rnp.put_along_axis(x, np.array([[1], [0]]), 3.0, 1), [[0, 3], [3, 0]])
    np.testing.assert_array_equal(x, 0)


def test_a_vectorized_function_has_derivatives() -> None:
    slope: Any = rematc.grad(lambda x: rnp.vectorize(lambda u: np.sin(u) * u)(x).sum())(A)
    # jit computes in float64 only where JAX is asked to; float32 has seven digits.
    np.testing.assert_allclose(slope, np.cos(A) * A + np.sin(A), rtol=1e-5, atol=1e-6)


def test_finfo_and_iinfo_take_arrays() -> None:
    assert run(lambda x: x * rnp.finfo(x).eps, np.float32(1)) == np.finfo(np.float32).eps
    assert rnp.iinfo(np.arange(3, dtype=np.int8)).max == 127
    assert rnp.iinfo(np.int16).max == 32767


# -- out= and where= ---------------------------------------------------------------------------------------------------


def _out_and_where(a: Any, b: Any) -> Any:
    ratio = np.zeros_like(a)
    np.divide(a, b, out=ratio, where=b != 0)
    same = ratio[:]
    np.add(same, 1, out=same)
    logs = np.log(a, out=np.ones_like(a), where=a > 0)
    total = np.zeros_like(a[0])
    np.sum(a, axis=0, out=total)
    whole, rest = np.zeros_like(a), np.zeros_like(a)
    np.divmod(a, 0.7, out=(whole, rest))
    np.add.accumulate(whole, axis=1, out=whole)
    c = b * 1
    np.clip(c, 0, 1, out=c)
    return ratio, same, logs, total, whole, rest, c


def test_results_are_written_into_traced_arrays() -> None:
    assert_as_numpy(_out_and_where, A, np.array([1.0, 0.0, 2.0, 0.0]))


def test_the_dtype_of_the_array_stays() -> None:
    def function(x: Any) -> Any:
        target = np.zeros_like(x, dtype=np.float32)
        np.exp(x, out=target)
        return target

    assert_as_numpy(function, A)


def test_what_the_mask_leaves_out_has_no_part_in_the_derivative() -> None:
    def loss(a: Any, b: Any) -> Any:
        ratios = np.divide(a, b, out=np.zeros_like(a), where=b != 0)
        roots = np.sqrt(a, out=a * 2, where=a > 0)
        return ratios.sum() + np.log(b, out=np.zeros_like(b), where=b > 0).sum() + roots.sum()

    of_a, of_b = run(rematc.grad(loss, (0, 1)), np.array([1.0, -2.0, 3.0]), np.array([2.0, 0.0, 4.0]))
    np.testing.assert_allclose(of_a, [1 / 2 + 1 / 2, 2, 1 / 4 + 1 / (2 * np.sqrt(3))])
    np.testing.assert_allclose(of_b, [-1 / 4 + 1 / 2, 0, -3 / 16 + 1 / 4])


def test_a_copy_does_not_see_what_is_written() -> None:
    def function(x: Any) -> Any:
        y = x * 1
        before = y.copy()
        np.add(y, 1, out=y)
        return before, y

    assert_as_numpy(function, A)


def test_vectorize_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="signature"):
        rnp.vectorize(abs, signature="n->()")
    refused: list[tuple[Callable[..., Any], str]] = [
        (lambda x: rnp.vectorize(abs)(x[:0]), "no elements"),
        (rnp.vectorize(np.dot, signature="(n),(n)->()"), "2 arguments"),
        (lambda x: rnp.vectorize(np.sum, signature="(n,m)->()")(x[0]), "no core of 2 dimensions"),
    ]
    for function, phrase in refused:
        with pytest.raises(CompileError, match=phrase):
            traced(function, A)
