"""Polynomials as vectors of coefficients, the highest power first.

The parameters are those of the NumPy functions of the same names. They are written in NumPy: its functions trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    dispatching,
    fail,
    shape_of,
    static_int,
    value_of,
    wrap,
)

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any


def _coefficients(p: ArrayLike) -> Traced:
    given: Traced = wrap(value_of(p))
    vector: Traced = np.atleast_1d(given)
    if vector.ndim != 1:
        fail(f"a polynomial is a vector of coefficients, got shape {vector.shape}")
    return vector


def _aligned(first: ArrayLike, second: ArrayLike) -> tuple[Traced, Traced]:
    x, y = _coefficients(first), _coefficients(second)
    size = max(x.size, y.size)
    return np.pad(x, (size - x.size, 0)), np.pad(y, (size - y.size, 0))


def polyadd(a1: ArrayLike, a2: ArrayLike) -> Traced:
    """As np.polyadd."""
    x, y = _aligned(a1, a2)
    return x + y


def polysub(a1: ArrayLike, a2: ArrayLike) -> Traced:
    """As np.polysub."""
    x, y = _aligned(a1, a2)
    return x - y


def polymul(a1: ArrayLike, a2: ArrayLike) -> Traced:
    """As np.polymul."""
    return np.convolve(_coefficients(a1), _coefficients(a2))


def polydiv(u: ArrayLike, v: ArrayLike) -> tuple[Traced, Traced]:
    """As np.polydiv, but the remainder keeps its leading zeros: how many there are depends on data."""
    rest, divisor = _coefficients(u) * 1.0, _coefficients(v) * 1.0
    quotient = []
    for place in range(rest.size - divisor.size + 1):
        factor = rest[place] / divisor[0]
        quotient.append(factor)
        rest = rest - np.pad(factor * divisor, (place, rest.size - divisor.size - place))
    if not quotient:
        return np.zeros(1, rest.dtype), rest
    return np.stack(quotient), rest[len(quotient) :] if divisor.size > 1 else rest[-1:]


def polyder(p: ArrayLike, m: int = 1) -> Traced:
    """As np.polyder."""
    vector = _coefficients(p)
    for _ in range(static_int(m, "order of np.polyder")):
        vector = vector[:-1] * np.arange(vector.size - 1, 0, -1)
    return vector


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike = None) -> Traced:
    """As np.polyint."""
    vector, count = _coefficients(p), static_int(m, "order of np.polyint")
    constants: Traced = np.zeros(count) if k is None else as_operand(k)
    if len(shape_of(constants)) == 0 or shape_of(constants) == (1,):
        constants = np.ravel(constants) * np.ones(count)
    for step in range(count):
        vector = np.append(vector / np.arange(vector.size, 0, -1), constants[step])
    return vector


def poly(seq_of_zeros: ArrayLike) -> Traced:
    """As np.poly, of a vector of zeros, or of a matrix: its eigenvalues. Of complex zeros the result stays complex."""
    given: Traced = wrap(value_of(seq_of_zeros))
    is_matrix = given.ndim == 2 and given.shape[0] == given.shape[1] != 0
    zeros = np.linalg.eigvals(given) if is_matrix else _coefficients(given)
    zeros = zeros.astype(np.mintypecode(zeros.dtype.char))
    result: Traced = np.ones(1, zeros.dtype)
    for place in range(zeros.size):
        result = np.pad(result, (0, 1)) - np.pad(zeros[place] * result, (1, 0))
    return result if zeros.size else 1.0


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: object,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike = None,
    cov: object = False,
) -> Traced:
    """As np.polyfit, the coefficients alone: least squares over the scaled powers of x."""
    if full or cov:
        fail("np.polyfit(..., full=True or cov=...) is not supported on traced arrays; use np.linalg.lstsq")
    places = dispatching.add(wrap(value_of(x)), 0.0)
    heights = dispatching.add(wrap(value_of(y)), 0.0)
    if places.ndim != 1 or heights.ndim not in (1, 2) or heights.shape[0] != places.size or not places.size:
        fail(f"np.polyfit: places of shape {places.shape} and values of shape {heights.shape}")
    powers = np.vander(places, static_int(deg, "degree of np.polyfit") + 1)
    if w is not None:
        weights: Traced = as_operand(w)
        powers = powers * np.reshape(weights, (-1, 1))
        heights = heights * (np.reshape(weights, (-1, 1)) if heights.ndim == 2 else weights)
    scale = np.sqrt(np.sum(powers * powers, axis=0))
    cut = places.size * np.finfo(places.dtype).eps if rcond is None else rcond
    found = np.linalg.lstsq(powers / scale, heights, cut)[0]
    return (found.T / scale).T


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.polyadd: polyadd,
    np.polysub: polysub,
    np.polymul: polymul,
    np.polydiv: polydiv,
    np.polyder: polyder,
    np.polyint: polyint,
    np.poly: poly,
    np.polyfit: polyfit,
}
