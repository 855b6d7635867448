"""Counting and locating: bins, histograms, covariances, and indices as numbers.

The parameters are those of the NumPy functions of the same names. They are written in NumPy: its functions trace.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    dispatching,
    fail,
    shape_of,
    static_int,
    static_shape,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.updates import at_add
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.types import F64, I64

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any


def bincount(x: ArrayLike, weights: ArrayLike = None, minlength: object = 0) -> Traced:
    """As np.bincount, with `minlength` bins: numbers outside of them count nowhere, for their bins depend on data."""
    length = static_int(minlength, "minlength of np.bincount")
    if length < 1:
        fail("np.bincount has as many bins as its largest element says; give the number of bins: minlength=...")
    places: Traced = wrap(value_of(x))
    if places.ndim != 1 or not np.issubdtype(places.dtype, np.integer):
        fail(f"np.bincount takes a vector of integers, got {places.value.type}")
    if weights is None or not places.size:
        return _counted(places, np.ones(places.shape, np.int64), length)
    heights: Traced = wrap(value_of(weights, F64))
    if heights.shape != places.shape:
        fail(f"np.bincount: weights of shape {heights.shape} for {places.size} numbers")
    return _counted(places, heights, length)


def _counted(places: Traced, heights: Traced, length: int) -> Traced:
    """For each of `length` bins the sum of the heights at its places; those outside go to a bin that is dropped."""
    inside = np.where((places >= 0) & (places < length), places, length)
    return at_add(np.zeros(length + 1, heights.dtype), inside, heights)[:length]


def histogram_bin_edges(
    a: ArrayLike, bins: ArrayLike = 10, range: Any = None, weights: ArrayLike = None, what: str = "np.histogram"
) -> Traced:
    """As np.histogram_bin_edges, for a number of bins or their edges."""
    edges: Traced = as_operand(bins)
    if isinstance(edges, str):
        fail(f"{what}: how many bins {edges!r} makes depends on data; give their number or edges")
    if shape_of(edges):
        return edges
    x: Traced = wrap(value_of(a))
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    if range is not None:
        low, high = range
    elif x.size:
        low, high = np.min(x), np.max(x)
    else:
        low, high = 0.0, 1.0
    # A range of no width is widened by a half on either side.
    is_point = low == high
    if not isinstance(is_point, Tracer):
        low, high = (low - 0.5, high + 0.5) if is_point else (low, high)
    else:
        low = dispatching.where(is_point, low - 0.5, low)
        high = dispatching.where(is_point, high + 0.5, high)
    dtype = np.result_type(low, high, x)
    kind = dtype if np.issubdtype(dtype, np.inexact) else np.float64
    return np.linspace(low, high, static_int(edges, "number of bins") + 1, dtype=kind)


def _bins_of(x: Traced, edges: Traced) -> Traced:
    """For each element of a line its bin; -1 or the number of bins outside. The last bin has both its edges."""
    count = shape_of(edges)[0] - 1
    found = np.searchsorted(edges, x, "right") - 1
    return np.where(x == edges[-1], count - 1, found)


def histogram(
    a: ArrayLike, bins: ArrayLike = 10, range: Any = None, density: object = None, weights: ArrayLike = None
) -> tuple[Traced, Traced]:
    """As np.histogram, for a number of bins or their edges."""
    x: Traced = dispatching.ravel(wrap(value_of(a)))
    edges = histogram_bin_edges(x, bins, range)
    heights: Traced = np.ones(x.shape, np.int64) if weights is None else dispatching.ravel(wrap(value_of(weights)))
    counts = _counted(_bins_of(x, edges), heights, shape_of(edges)[0] - 1)
    return (counts / np.diff(edges).astype(float) / np.sum(counts) if density else counts), edges


def histogramdd(
    sample: ArrayLike, bins: Any = 10, range: Any = None, density: object = None, weights: ArrayLike = None
) -> tuple[Traced, tuple[Traced, ...]]:
    """As np.histogramdd, for numbers of bins or their edges."""
    is_list = isinstance(sample, (list, tuple))
    points: Traced = dispatching.stack(sample, -1) if is_list else wrap(value_of(sample))
    points = points[:, None] if points.ndim == 1 else points
    count, rank = points.shape
    several = list(bins) if isinstance(bins, (list, tuple)) else [bins] * rank
    if len(several) != rank:
        fail(f"np.histogramdd has bins for {len(several)} dimensions and a sample of {rank}")
    ranges = [None] * rank if range is None else list(range)
    edges = [
        histogram_bin_edges(
            # Edges between given ends are in double precision, whatever the sample is in.
            points[:, d] if ranges[d] is None else points[:, d].astype(float),
            several[d],
            ranges[d],
            what="np.histogramdd",
        )
        for d in builtins.range(rank)
    ]
    sizes = [shape_of(edge)[0] - 1 for edge in edges]
    place: Traced = np.zeros(count, np.int64)
    is_inside: Traced = np.ones(count, np.bool_)
    for d, (edge, size) in enumerate(zip(edges, sizes, strict=True)):
        own = _bins_of(points[:, d], edge)
        is_inside = is_inside & (own >= 0) & (own < size)
        place = place * size + own
    heights: Traced = np.ones(count) if weights is None else wrap(value_of(weights, F64))
    counts = np.reshape(_counted(np.where(is_inside, place, -1), heights, math.prod(sizes)), sizes)
    if density:
        for d, edge in enumerate(edges):
            counts = counts / np.reshape(np.diff(edge), [-1 if axis == d else 1 for axis in builtins.range(rank)])
        counts = counts / np.sum(heights * is_inside)
    return counts, tuple(edges)


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    density: object = None,
    weights: ArrayLike = None,
) -> tuple[Traced, ...]:
    """As np.histogram2d: bins are a number or edges for both, or a pair of either."""
    is_pair = isinstance(bins, (list, tuple)) and len(bins) == 2
    counts, edges = histogramdd((x, y), bins if is_pair else [bins, bins], range, density, weights)
    return (counts, *edges)


def unravel_index(indices: ArrayLike, shape: object, order: str = "C") -> tuple[Traced, ...]:
    """As np.unravel_index; indices outside are not noticed."""
    sizes = static_shape(shape, "np.unravel_index")
    rest: Traced = wrap(value_of(indices, I64))
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
    own: list[Traced] = [wrap(value_of(index, I64)) for index in multi_index]
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
    fweights: ArrayLike = None,
    aweights: ArrayLike = None,
    *,
    dtype: Any = None,
) -> Traced:
    """As np.cov."""
    rows = _variables(m, rowvar, dtype)
    if y is not None:
        rows = np.concatenate([rows, _variables(y, rowvar, dtype)], axis=0)
    freedom = ddof if ddof is not None else 0 if bias else 1
    weights, divisor = _weights(rows.shape[1], freedom, fweights, aweights)
    middle = np.sum(rows * weights, axis=1, keepdims=True) / np.sum(weights)
    centred = rows - middle
    conjugate = np.conj(centred) if np.iscomplexobj(centred) else centred
    return np.squeeze((centred * weights @ conjugate.T) / divisor)


def _weights(count: int, freedom: int, fweights: ArrayLike, aweights: ArrayLike) -> tuple[Traced, Traced]:
    """The weight of each observation, and what the sum of squares is divided by."""
    repeats: Traced = np.ones(count) if fweights is None else as_operand(fweights)
    shares: Traced = np.ones(count) if aweights is None else as_operand(aweights)
    for what, found in (("fweights", repeats), ("aweights", shares)):
        if shape_of(found) != (count,):
            fail(f"np.cov: {what} of shape {shape_of(found)} for {count} observations")
    weights = repeats * shares
    if fweights is None and aweights is None:
        return weights, float(max(count - freedom, 0))
    total = np.sum(weights)
    if aweights is None:
        return weights, total - freedom
    return weights, total - freedom * np.sum(weights * shares) / total


def _variables(m: ArrayLike, rowvar: bool, dtype: Any) -> Traced:
    x: Traced = wrap(value_of(m))
    if x.ndim > 2:
        fail(f"np.cov takes a vector or a matrix, got shape {x.shape}")
    x = x.astype(np.result_type(x.dtype, np.float64) if dtype is None else dtype)
    return np.reshape(x, (1, -1)) if x.ndim < 2 else x if rowvar or x.shape[0] == 1 else x.T


def corrcoef(x: ArrayLike, y: ArrayLike = None, rowvar: bool = True, *, dtype: Any = None) -> Traced:
    """As np.corrcoef."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    deviation = np.sqrt(np.diag(c).real)
    found = c / deviation[:, None] / deviation[None, :]
    if not np.iscomplexobj(found):
        return np.clip(found, -1, 1)
    return np.clip(found.real, -1, 1) + 1j * np.clip(found.imag, -1, 1)


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
    return dispatching.compress(dispatching.ravel(_concrete(condition)), dispatching.ravel(wrap(value_of(arr))))


def _concrete(condition: ArrayLike) -> Any:
    if isinstance(condition, Tracer):
        fail("np.extract by a traced condition has a shape that depends on data; use np.where(condition, x, y)")
    return np.asarray(condition)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.bincount: bincount,
    np.histogram: histogram,
    np.histogram_bin_edges: histogram_bin_edges,
    np.histogram2d: histogram2d,
    np.histogramdd: histogramdd,
    np.unravel_index: unravel_index,
    np.ravel_multi_index: ravel_multi_index,
    np.cov: cov,
    np.corrcoef: corrcoef,
    np.array_equiv: array_equiv,
    np.extract: extract,
}
