"""The traced forms of NumPy's functions have the right derivatives: reverse mode against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import rematc
import rematc.numpy as rnp
from tests.support.tracing import run

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4))
P: Any = np.abs(A) + 0.5
S = RNG.uniform(-0.8, 0.8, (3, 4))
V = RNG.normal(size=5)
PLACES = np.array([2, 0, -1, 2])

NAMED: list[tuple[Callable[[Any], Any], Any]] = [
    *[(getattr(np, name), P) for name in ("log", "log2", "log10", "sqrt", "cbrt", "reciprocal", "exp2", "square")],
    *[(getattr(np, name), P) for name in ("sinc", "deg2rad", "cumsum", "cumprod", "prod", "max", "min", "var", "std")],
    *[(getattr(np, name), S) for name in ("arcsin", "arccos", "arctanh", "sinh", "tan", "abs", "ptp", "mean")],
    *[(getattr(scipy.special, name), P) for name in ("gammaln", "digamma", "entr", "erf", "expit", "ndtr")],
    (scipy.special.log_expit, A),
    (scipy.special.logit, np.abs(S)),
    *[(getattr(scipy.special, name), P) for name in ("gamma", "rgamma", "log_ndtr")],
    (scipy.special.gamma, np.array([-1.5, -0.3, -2.7])),
    (scipy.special.log_ndtr, np.array([-50.0, -21, -3, 0.1, 4])),
    (scipy.special.erfcinv, np.abs(S)),
    *[(getattr(scipy.special, name), P) for name in ("j0", "y1", "i0", "i1e", "k1e")],
    (scipy.special.ndtri, np.abs(S)),
    (np.linalg.norm, A),
]
OTHERS: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda x: np.logaddexp(x, x[::-1]), A),
    (lambda x: np.logaddexp(x, x * 1.0), A),  # at the kink of |x - y|
    (lambda x: np.hypot(x, 2 * x[::-1]), A),
    (lambda x: np.arctan2(x, x[::-1] + 0.1), A),
    (lambda x: np.copysign(x, A[::-1]), A),
    (lambda x: x % 0.7 + np.fmod(x, 0.6) + 1.3 % (x + 3), A),
    (lambda x: x**x + x**2.5 + x**3 + x**-1 + x**0.5 + x**-0.5 + 2.0**x, P),
    (lambda x: np.heaviside(x, 0.5) * x, A),
    (lambda x: np.fmax(x, x[::-1]) + np.minimum(x, 0.3), A),
    (lambda x: np.clip(x, -0.5, 0.5) * 2, A),
    (lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1)), x * 2), A),
    (lambda x: x * (x // 0.3) + np.modf(x)[0], A),
    (lambda x: scipy.special.xlogy(x, x + 1) + scipy.special.xlog1py(x, x) + scipy.special.xlogy(0 * x, x), P),
    *[(lambda x, m=m: np.pad(x, ((2, 1), (0, 5)), mode=m), A) for m in ("constant", "edge", "reflect", "wrap", "mean")],
    (lambda x: np.convolve(x, x[:3]), V),
    (lambda x: np.correlate(x[:2], x, "full"), V),
    (lambda x: np.trapezoid(x, x**2), A),
    (lambda x: x[PLACES % 3] * x[:, PLACES][:, :3].sum(), A),
    (lambda x: np.take_along_axis(x, np.array([[1, 1, 0, 2]]), 1), A),
    (lambda x: rnp.at_set(x, np.s_[1:, ::2], x[:1, :2] * 2) ** 2, A),
    (lambda x: rnp.at_add(x, (slice(None), PLACES), x**2) ** 2, A),
    (lambda x: rnp.at_set(x, ([0, 2], [1, 3]), x[1, :2] * 3) ** 2, A),
    (lambda x: np.einsum("ab,cb,db->acd", x, x, x), A),
    (lambda x: np.diag(x[0], 1) @ np.ones((5, 2)) * np.diag(x).sum(), A),
    (lambda x: np.tril(x) @ np.kron(x, x[:2]).reshape(-1, 3)[:4], A),
    (lambda x: np.linalg.matrix_power(x @ x.T, 3), A),
    (lambda x: np.linalg.norm(x, 3, axis=1) + np.linalg.norm(x, np.inf, axis=1) + np.linalg.norm(x, 1), A),
    (lambda x: np.linspace(x[0], x[1], 5), A),
    (lambda x: np.interp(x, [-1.0, 0, 1], x[0, :3]), A),
    (lambda x: np.nanmean(np.where(A > 0.5, np.nan, x) * 2), A),
    (lambda x: np.average(x, axis=1, weights=np.abs(x)), A),
    (lambda x: np.maximum.accumulate(x, axis=1), A),
    (lambda x: scipy.special.beta(x, x[::-1]) + scipy.special.betaln(x, 2.0), P),
    (lambda x: scipy.special.gammainc(x, 2.0) * scipy.special.gammaincc(1.5, x), P),
    (lambda x: scipy.special.betainc(x, 2.0, 0.3) * scipy.special.betainc(1.5, x, 0.8), P),
    (lambda x: scipy.special.zeta(2.5, x) + scipy.special.ndtri(x / 100), P),
    (lambda x: scipy.special.jv(2.5, x) + scipy.special.yn(2, x) * scipy.special.ive(0.5, x), P),
    (lambda x: scipy.special.chdtr(3, x) + scipy.special.pdtr(2.0, x) + scipy.special.gdtr(2.0, x, 1.5), P),
    (lambda x: np.std(x[:1], axis=0) + x, A),  # sqrt(0)
    (lambda x: np.gradient(x, 0.5, axis=1, edge_order=2) ** 2, A),
    (lambda x: np.gradient(x, np.cumsum(x[0] ** 2 + 1), axis=1), A),
    (lambda x: np.unwrap(x * 5), A),
    (lambda x: np.insert(x, [1, 2], x[0, :2], axis=1) ** 2, np.array(A[:2, :2])),
    (lambda x: np.polyint(np.polymul(np.polyder(x), np.poly(x[:2]))), V),
    (lambda x: np.piecewise(x, [x < 0, x > 1], [np.exp, lambda t: t**2, 3.0]), A),
    (lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1) ** 2, A),
]


def _differences(loss: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[place] = step
        result[place] = (loss(x + shift) - loss(x - shift)) / (2 * step)
    return result


@pytest.mark.parametrize("case", range(len(NAMED) + len(OTHERS)))
def test_reverse_mode_is_the_slope(case: int) -> None:
    function, x = [*NAMED, *OTHERS][case]
    weights = np.random.default_rng(1).normal(size=np.shape(function(x)))

    def loss(at: Any) -> Any:
        return np.sum(function(at) * weights)

    slope = _differences(loss, x)
    # The error of central differences: the step squared, and rounding divided by the step.
    np.testing.assert_allclose(run(rematc.grad(loss), x), slope, rtol=1e-6, atol=1e-6 * (1 + np.abs(slope).max()))


@pytest.mark.parametrize("x", [0.0, 1e-6, -1e-4, 0.01, 0.3, 0.32, 1.7])
def test_derivatives_of_sinc_lose_no_digits_near_zero(x: float) -> None:
    """By the series of the two derivatives, of sin(y) / y at y = pi x, to which the quotient's cancel."""
    y = np.pi * x
    first = sum((-1) ** k * 2 * k * y ** (2 * k - 1) / math.factorial(2 * k + 1) for k in range(1, 20))
    second = sum((-1) ** k * 2 * k * (2 * k - 1) * y ** (2 * k - 2) / math.factorial(2 * k + 1) for k in range(1, 20))
    sinc: Any = np.sinc
    found: Any = rematc.grad(sinc)(np.float64(x)), rematc.hessian(sinc)(np.float64(x))
    np.testing.assert_allclose(found, (np.pi * first, np.pi**2 * second), rtol=1e-14, atol=1e-300)


def test_sinc_is_finite_where_its_argument_is_not() -> None:
    sinc: Any = np.sinc
    found = rematc.jit(sinc)(np.array([np.inf, -np.inf, 1e300]))
    assert np.isnan(found[:2]).all()
    assert found[2] == np.sinc(1e300)
