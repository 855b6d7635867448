"""What an index expression means: one entry for each dimension that it takes, and each that it adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematc.compiler.frontends.numpy.operands import as_operand, fail, static_int
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.values import Array


@dataclass(frozen=True, slots=True)
class Range:
    """Elements `start`, `start + step`, ..., `count` of them, of a dimension of size `size`."""

    start: int
    step: int
    count: int
    size: int

    @property
    def is_whole(self) -> bool:
        return self.step == 1 and self.count == self.size

    @property
    def indices(self) -> Array:
        return self.start + self.step * np.arange(self.count)


@dataclass(frozen=True, slots=True)
class Point:
    """One element, known while tracing; the dimension goes away."""

    index: int


@dataclass(frozen=True, slots=True)
class NewAxis:
    """A new dimension of size 1."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexArray:
    """Elements chosen by an array of integers, concrete (then counted from the front, and inside) or traced."""

    array: Array | Tracer

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


Entry = Range | Point | NewAxis | IndexArray


def parse_index(index: object, shape: tuple[int, ...]) -> list[Entry]:
    """The entries of `index` into an array of this shape, the dimensions that it leaves out included.

    Raises CompileError for what cannot be an index, or not while tracing.
    """
    items = _expanded(list(index) if isinstance(index, tuple) else [index], len(shape))
    entries: list[Entry] = []
    dimension = 0
    for item in items:
        if item is None:
            entries.append(NewAxis())
            continue
        if _is_mask(item):
            found = _from_mask(item, shape, dimension)
            entries.extend(found)
            dimension += len(found)
            continue
        entries.append(_entry(item, shape[dimension], dimension))
        dimension += 1
    return entries


def _expanded(items: list[object], rank: int) -> list[object]:
    """The items with full slices in place of the ellipsis, or at the end."""
    items = [as_operand(list(item)) if isinstance(item, (list, tuple)) else item for item in items]
    used = sum(_rank_taken(item) for item in items)
    if used > rank:
        fail(f"an index of {used} dimensions into an array of {rank}")
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        fail("an index takes one ellipsis at most")
    at = places[0] if places else len(items)
    return [*items[:at], *[slice(None)] * (rank - used), *items[at + 1 :]]


def _rank_taken(item: object) -> int:
    if item is None or item is Ellipsis:
        return 0
    return np.ndim(item) if isinstance(item, np.ndarray) and item.dtype == np.bool_ else 1


def _is_mask(item: object) -> bool:
    return isinstance(item, (bool, np.bool_)) or (isinstance(item, np.ndarray) and item.dtype == np.bool_)


def _from_mask(mask: object, shape: tuple[int, ...], dimension: int) -> list[Entry]:
    mask = np.asarray(mask)
    expected = shape[dimension : dimension + mask.ndim]
    if mask.ndim == 0:
        fail("an index that is a single boolean is not supported; use np.where")
    if mask.shape != expected:
        fail(f"a boolean index of shape {mask.shape} does not match dimensions {expected} of the array")
    return [IndexArray(indices) for indices in np.nonzero(mask)]


def _entry(item: object, size: int, dimension: int) -> Entry:
    if isinstance(item, slice):
        return _range(item, size)
    if isinstance(item, Tracer):
        return _traced(item)
    if not isinstance(item, (np.ndarray, np.generic)) and hasattr(item, "__array__"):
        item = np.asarray(item)
    if isinstance(item, np.ndarray) and item.ndim:
        return IndexArray(_inside(item, size, dimension))
    if not hasattr(item, "__index__"):
        fail(
            f"an array is indexed by a {type(item).__name__}; "
            "indices are integers, slices, None, ... and integer arrays"
        )
    return Point(int(_inside(np.asarray(static_int(item, "index")), size, dimension)))


def _range(item: slice, size: int) -> Range:
    for bound in (item.start, item.stop, item.step):
        if isinstance(bound, Tracer):
            fail(
                "a bound of the slice is traced, so the result's size would depend on data; for a window of fixed size "
                "index with x[start + np.arange(size)]"
            )
    if item.step == 0:
        fail("a slice of step 0")
    start, stop, step = item.indices(size)
    count = len(range(start, stop, step))
    return Range(start if count else 0, step, count, size)


def _traced(item: Tracer) -> Entry:
    dtype = item.value.type.dtype
    if dtype.is_bool:
        fail(
            f"an array is indexed by a traced boolean mask {item.value.type}, so the result's size would depend on "
            "data; use np.where(mask, x, 0), a reduction with where=mask, a concrete mask, or name the size: "
            "rematc.numpy.compress(mask, x, axis, size=n)"
        )
    if not dtype.is_integer:
        fail(f"an array is indexed by a traced {item.value.type}; indices are integers: convert with astype(int)")
    return IndexArray(item)


def _inside(indices: Array, size: int, dimension: int) -> Array:
    """Concrete indices counted from the front."""
    if indices.size and indices.dtype.kind not in "iu":
        fail(
            f"an array is indexed by an array of dtype {indices.dtype}; indices are integers: convert with astype(int)"
        )
    signed = indices.astype(np.int64)
    outside = signed[(signed < -size) | (signed >= size)]
    if outside.size:
        fail(f"index {outside.reshape(-1)[0]} is out of bounds for dimension {dimension} of size {size}")
    return np.where(signed < 0, signed + size, signed)


def broadcast_indices(entries: list[Entry]) -> tuple[int, ...]:
    """The shape that the index arrays broadcast to."""
    shapes = [entry.shape for entry in entries if isinstance(entry, IndexArray)]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        fail(f"index arrays of shapes {', '.join(map(str, shapes))} do not broadcast together")


def has_arrays(entries: list[Entry]) -> bool:
    """Whether there is an index array of one dimension or more."""
    return any(isinstance(entry, IndexArray) and entry.shape != () for entry in entries)


def as_arrays(entries: list[Entry]) -> list[Entry]:
    """The entries with every point as an index array: beside index arrays, NumPy treats an integer as one."""
    return [IndexArray(np.asarray(entry.index)) if isinstance(entry, Point) else entry for entry in entries]


def place_of_arrays(entries: list[Entry]) -> int:
    """Where the dimensions of the index arrays go: in their place if they stand side by side, else to the front."""
    positions = [i for i, entry in enumerate(entries) if isinstance(entry, IndexArray)]
    return positions[0] if positions[-1] - positions[0] == len(positions) - 1 else 0
