"""Counting and locating: bins, histograms, covariances, and indices as numbers.

The parameters are those of the NumPy functions of the same names. They are written in NumPy: its functions trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematc.compiler.numpy.operands import ArrayLike, as_operand, fail, static_int, static_shape, value_of, wrap
from rematc.compiler.tracing.trace import Tracer

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any


def bincount(x: ArrayLike, weights: ArrayLike = None, minlength: object = 0) -> Traced:
    """As np.bincount, with `minlength` bins: numbers beyond them count nowhere, for their bins depend on data."""
    length = static_int(minlength, "minlength of np.bincount")
    if not length:
        fail("np.bincount has as many bins as its largest element says; give the number of bins: minlength=...")
    places: Traced = wrap(value_of(x))
    if places.ndim != 1 or not np.issubdtype(places.dtype, np.integer):
        fail(f"np.bincount takes a vector of integers, got {places.value.type}")
    hits = places[:, None] == np.arange(length)
    if weights is None:
        return np.sum(hits, axis=0)
    heights: Traced = wrap(value_of(weights))
    return np.sum(np.where(hits, heights.astype(np.float64)[:, None], 0.0), axis=0)


def histogram(
    a: ArrayLike, bins: ArrayLike = 10, range: Any = None, density: object = None, weights: ArrayLike = None
) -> tuple[Traced, Traced]:
    """As np.histogram, for a number of bins or their edges."""
    x: Traced = np.ravel(wrap(value_of(a)))  # type: ignore[call-overload]  # traced
    edges: Traced = as_operand(bins)
    if isinstance(edges, str):
        fail(f"np.histogram: how many bins {edges!r} makes depends on data; give their number or edges")
    if not isinstance(edges, Tracer) and np.ndim(edges) == 0:
        low, high = (np.min(x), np.max(x)) if range is None else range
        if range is None:
            # A range of no width is widened by a half on either side.
            is_point = low == high
            low, high = np.where(is_point, low - 0.5, low), np.where(is_point, high + 0.5, high)
        edges = np.linspace(low, high, static_int(edges, "number of bins") + 1)
    inside = x[:, None] >= edges[:-1]
    below = np.concatenate([x[:, None] < edges[1:-1], x[:, None] <= edges[-1:]], axis=1)
    hits = inside & below
    if weights is None:
        counts: Traced = np.sum(hits, axis=0)
    else:
        heights: Traced = np.ravel(wrap(value_of(weights)))  # type: ignore[call-overload]  # traced
        counts = np.sum(np.where(hits, heights[:, None], heights.dtype.type(0)), axis=0)
    if density:
        counts = counts / np.diff(edges) / np.sum(counts)
    return counts, edges


def unravel_index(indices: ArrayLike, shape: object, order: str = "C") -> tuple[Traced, ...]:
    """As np.unravel_index; indices outside are not noticed."""
    sizes = static_shape(shape, "np.unravel_index")
    rest: Traced = wrap(value_of(indices))
    places = []
    for size in sizes if order == "F" else sizes[::-1]:
        places.append(rest % size)
        rest = rest // size
    return tuple(places if order == "F" else places[::-1])


def ravel_multi_index(
    multi_index: Sequence[ArrayLike], dims: object, mode: str | Sequence[str] = "raise", order: str = "C"
) -> Traced:
    """As np.ravel_multi_index; mode "raise" does not notice indices outside."""
    sizes = static_shape(dims, "np.ravel_multi_index")
    modes = (mode,) * len(sizes) if isinstance(mode, str) else tuple(mode)
    result: Traced = 0
    own: list[Traced] = [as_operand(index) for index in multi_index]
    triples = list(zip(own, sizes, modes, strict=True))
    for index, size, how in triples if order == "C" else triples[::-1]:
        place = index % size if how == "wrap" else np.clip(index, 0, size - 1) if how == "clip" else index
        result = result * size + place
    return result


def cov(
    m: ArrayLike,
    y: ArrayLike = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: None = None,
    aweights: None = None,
    *,
    dtype: Any = None,
) -> Traced:
    """As np.cov, without weights."""
    rows = _variables(m, rowvar, dtype)
    if y is not None:
        rows = np.concatenate([rows, _variables(y, rowvar, dtype)], axis=0)
    count = rows.shape[1] - (ddof if ddof is not None else 0 if bias else 1)
    centred = rows - np.mean(rows, axis=1, keepdims=True)
    conjugate = np.conj(centred) if np.iscomplexobj(centred) else centred
    return np.squeeze((centred @ conjugate.T) / (count if count > 0 else 0.0))


def _variables(m: ArrayLike, rowvar: bool, dtype: Any) -> Traced:
    x: Traced = wrap(value_of(m))
    if x.ndim > 2:
        fail(f"np.cov takes a vector or a matrix, got shape {x.shape}")
    x = x.astype(np.result_type(x.dtype, np.float64) if dtype is None else dtype)
    return x[None] if x.ndim < 2 else x if rowvar or x.shape[0] == 1 else x.T


def corrcoef(x: ArrayLike, y: ArrayLike = None, rowvar: bool = True, *, dtype: Any = None) -> Traced:
    """As np.corrcoef."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    deviation = np.sqrt(np.diag(c))
    return np.clip(c / deviation[:, None] / deviation[None, :], -1, 1)


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Traced:
    """As np.array_equiv, as a traced boolean."""
    x, y = wrap(value_of(a1)), wrap(value_of(a2))
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return wrap(value_of(np.asarray(False)))
    return np.all(x == y)


def extract(condition: ArrayLike, arr: ArrayLike) -> Traced:
    """As np.extract, by a condition known while tracing."""
    return np.compress(np.ravel(_concrete(condition)), np.ravel(wrap(value_of(arr))))  # type: ignore[call-overload]  # traced


def _concrete(condition: ArrayLike) -> Any:
    if isinstance(condition, Tracer):
        fail("np.extract by a traced condition has a shape that depends on data; use np.where(condition, x, y)")
    return np.asarray(condition)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.bincount: bincount,
    np.histogram: histogram,
    np.unravel_index: unravel_index,
    np.ravel_multi_index: ravel_multi_index,
    np.cov: cov,
    np.corrcoef: corrcoef,
    np.array_equiv: array_equiv,
    np.extract: extract,
}
