"""Index arithmetic of gather and scatter: dimension numbers, checks, and where each element lies.

Both pair a big array, the operand, with windows of it. A window has a start, a vector of `indices`, and sizes, one
for each dimension of the operand. The windows stand in one array, the result of a gather or the updates of a
scatter: its offset dimensions walk through a window, the rest, the batch dimensions, through the indices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import shifted
from rematc.ir.ops.reduction import ReduceAnd
from rematc.ir.ops.shape import Slice, check_dimensions, others
from rematc.ir.ops.structural import Constant
from rematc.ir.types import I64, TensorType
from rematc.ir.values import Array, Value

Indices = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class GatherDimensions:
    """Which dimension is what (StableHLO gather).

    Attributes:
        offset_dims: dimensions of the result that walk through a window, increasing.
        collapsed_slice_dims: dimensions of the operand that windows lack; their size in a window is 1.
        start_index_map: for each component of an index vector the dimension of the operand that it indexes.
        index_vector_dim: the dimension of the indices that holds an index vector; their rank, where each index is a
            scalar.
        operand_batching_dims: dimensions of the operand that are paired with dimensions of the indices; windows
            lack them.
        start_indices_batching_dims: the dimensions of the indices that they are paired with.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def window_dims(self, operand_rank: int) -> tuple[int, ...]:
        """The dimensions of the operand that `offset_dims` walk along, in order."""
        return others(self.collapsed_slice_dims + self.operand_batching_dims, operand_rank)

    def batched(self, has_operand: bool, has_indices: bool) -> GatherDimensions:
        """The dimensions where the operand, the indices or both have one more in front, and the windows too.

        It is paired if both have it; if the operand alone has it, windows reach along all of it.
        """
        collapsed, index_map = self.collapsed_slice_dims, self.start_index_map
        of_operand, of_indices = self.operand_batching_dims, self.start_indices_batching_dims
        offset, vector = shifted(self.offset_dims), self.index_vector_dim
        if has_operand:
            collapsed, index_map, of_operand = shifted(collapsed), shifted(index_map), shifted(of_operand)
        if has_indices:
            vector, of_indices = vector + 1, shifted(of_indices)
        if not has_indices:
            offset = (0, *offset)
        elif has_operand:
            of_operand, of_indices = (0, *of_operand), (0, *of_indices)
        return GatherDimensions(offset, collapsed, index_map, vector, of_operand, of_indices)

    def batch_shape(self, indices_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the indices without the index vectors."""
        return tuple([size for d, size in enumerate(indices_shape) if d != self.index_vector_dim])

    def windows_shape(self, indices_shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array that holds the windows."""
        batch, walk = iter(self.batch_shape(indices_shape)), iter([sizes[d] for d in self.window_dims(len(sizes))])
        rank = len(self.batch_shape(indices_shape)) + len(self.offset_dims)
        offset = frozenset(self.offset_dims)
        return tuple([next(walk) if d in offset else next(batch) for d in range(rank)])


@dataclass(frozen=True, slots=True)
class ScatterDimensions:
    """Which dimension is what (StableHLO scatter); the attributes are those of `GatherDimensions` seen from a scatter.

    Attributes:
        update_window_dims: dimensions of the updates that walk through a window, increasing.
        inserted_window_dims: dimensions of the operand that windows lack.
        scatter_dims_to_operand_dims: for each component of an index vector the dimension that it indexes.
        index_vector_dim: the dimension of the indices that holds an index vector; their rank for scalars.
        input_batching_dims: dimensions of the operand that are paired with dimensions of the indices.
        scatter_indices_batching_dims: the dimensions of the indices that they are paired with.
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    @staticmethod
    def of(dims: GatherDimensions) -> ScatterDimensions:
        """The scatter that writes where a gather with these dimensions reads."""
        return ScatterDimensions(
            dims.offset_dims,
            dims.collapsed_slice_dims,
            dims.start_index_map,
            dims.index_vector_dim,
            dims.operand_batching_dims,
            dims.start_indices_batching_dims,
        )

    def of_gather(self) -> GatherDimensions:
        """The gather that reads where a scatter with these dimensions writes."""
        return GatherDimensions(
            self.update_window_dims,
            self.inserted_window_dims,
            self.scatter_dims_to_operand_dims,
            self.index_vector_dim,
            self.input_batching_dims,
            self.scatter_indices_batching_dims,
        )


@dataclass(frozen=True, slots=True)
class DimensionsAlong:
    """The dimensions along which windows are independent, as pairs and triples of those that belong together.

    Attributes:
        windows: of the operand and of the windows, where these reach along all of the operand.
        paired: of the operand, the indices and the windows.
        indices: of the indices and of the windows: each index has a window of its own.
    """

    windows: tuple[tuple[int, int], ...]
    paired: tuple[tuple[int, int, int], ...]
    indices: tuple[tuple[int, int], ...]

    @staticmethod
    def of(dims: GatherDimensions, shape: Sequence[int], sizes: Sequence[int], indices_rank: int) -> DimensionsAlong:
        """Those of windows of these sizes of an operand of this shape."""
        walked = zip(dims.window_dims(len(shape)), dims.offset_dims, strict=True)
        of_indices = [d for d in range(indices_rank) if d != dims.index_vector_dim]
        batch = others(dims.offset_dims, len(of_indices) + len(dims.offset_dims))
        places = dict(zip(of_indices, batch, strict=True))
        pairs = zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True)
        return DimensionsAlong(
            tuple([(d, place) for d, place in walked if sizes[d] == shape[d]]),
            tuple([(d, of_index, places[of_index]) for d, of_index in pairs]),
            tuple([(d, place) for d, place in places.items() if d not in dims.start_indices_batching_dims]),
        )


def check_windows(
    op: Op, dims: GatherDimensions, operand: TensorType, indices: TensorType, sizes: Sequence[int]
) -> None:
    """Raise TypeMismatchError unless windows of these sizes can be taken at these indices."""

    def require(condition: bool, expected: str) -> None:
        if not condition:
            raise TypeMismatchError(
                f"'{op.name}' of {operand} at {indices} in windows {list(sizes)} with {dims}: expected {expected}"
            )

    require(indices.dtype.is_integer, "integer indices")
    # StableHLO allows empty index vectors; XLA's CPU backend gets scatters with them wrong (jaxlib 0.10).
    require(bool(dims.start_index_map), "an indexed dimension")
    require(0 <= dims.index_vector_dim <= indices.rank, "index_vector_dim up to the rank of the indices")
    lacking, rank = dims.collapsed_slice_dims + dims.operand_batching_dims, operand.rank
    check_dimensions(op, lacking, rank, "collapsed and batching dimensions of the operand")
    check_dimensions(op, dims.start_index_map + dims.operand_batching_dims, rank, "indexed and batching dimensions")
    require(len(dims.offset_dims) == rank - len(lacking), "one offset dimension for each that is not collapsed")
    batch = dims.batch_shape(indices.shape)
    check_dimensions(op, dims.offset_dims, len(dims.offset_dims) + len(batch), "offset dimensions of the windows")
    for ordered in (dims.offset_dims, dims.collapsed_slice_dims, dims.operand_batching_dims):
        require(list(ordered) == sorted(ordered), "dimensions in increasing order")
    count = indices.shape[dims.index_vector_dim] if dims.index_vector_dim < indices.rank else 1
    require(len(dims.start_index_map) == count, f"an index vector of length {len(dims.start_index_map)}")
    require(len(sizes) == rank, "one size for each dimension of the operand")
    require(all(0 <= n <= size for n, size in zip(sizes, operand.shape, strict=True)), "windows that fit")
    require(all(sizes[d] == 1 for d in lacking), "size 1 along collapsed and batching dimensions")
    paired = dims.start_indices_batching_dims
    check_dimensions(op, paired, indices.rank, "batching dimensions of the indices")
    require(dims.index_vector_dim not in paired, "index vectors along no batching dimension")
    require(
        [operand.shape[d] for d in dims.operand_batching_dims] == [indices.shape[d] for d in paired],
        "batching dimensions of one size",
    )


# -- in NumPy ----------------------------------------------------------------------------------------------------


def starts(dims: GatherDimensions, operand_shape: Sequence[int], indices: Array) -> Iterator[Indices]:
    """For each dimension of the operand the starts of all windows; the shape broadcasts to the batch shape."""
    batch_rank = len(dims.batch_shape(indices.shape))
    # An unsigned index past the largest int64 is past the end of any array all the same.
    limited = np.minimum(indices, np.iinfo(np.int64).max) if indices.dtype == np.uint64 else indices
    vectors = limited.astype(np.int64)
    if dims.index_vector_dim == indices.ndim:
        vectors = vectors[..., np.newaxis]
    component = {d: k for k, d in enumerate(dims.start_index_map)}
    paired = dict(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True))
    for d, size in enumerate(operand_shape):
        if d in component:
            yield np.take(vectors, component[d], dims.index_vector_dim)
        elif d in paired:
            position = paired[d] - (paired[d] > dims.index_vector_dim)
            yield np.arange(size).reshape([-1 if k == position else 1 for k in range(batch_rank)])
        else:
            yield np.zeros([1] * batch_rank, np.int64)


def places(dims: GatherDimensions, sizes: Sequence[int], begins: Sequence[Indices]) -> tuple[Indices, ...]:
    """For each dimension of the operand the index of each element of the windows; the shapes broadcast to theirs."""
    walk = dict(zip(dims.window_dims(len(sizes)), dims.offset_dims, strict=True))
    found = []
    for d, (size, begin) in enumerate(zip(sizes, begins, strict=True)):
        place = np.expand_dims(begin, dims.offset_dims)
        if d in walk:
            place = place + np.arange(size).reshape([-1 if k == walk[d] else 1 for k in range(place.ndim)])
        found.append(place)
    return tuple(found)


def landing(
    dims: GatherDimensions, operand_shape: Sequence[int], sizes: Sequence[int], indices: Array
) -> tuple[Indices, tuple[Indices, ...]]:
    """The elements of the windows that lie inside, by their row-major number, and the index of each in the operand.

    Window by window: where windows overlap and the last one counts, it is the last one of the indices, as in XLA.
    """
    shape = dims.windows_shape(indices.shape, sizes)
    begins = list(starts(dims, operand_shape, indices))
    fits = np.ones([1] * len(dims.batch_shape(indices.shape)), np.bool_)
    for begin, size, length in zip(begins, sizes, operand_shape, strict=True):
        fits = fits & (begin >= 0) & (begin <= length - size)
    order = others(dims.offset_dims, len(shape)) + dims.offset_dims
    inside = np.broadcast_to(np.expand_dims(fits, dims.offset_dims), shape).transpose(order)
    numbers = np.arange(math.prod(shape)).reshape(shape).transpose(order)[inside]
    found = [np.broadcast_to(place, shape).transpose(order)[inside] for place in places(dims, sizes, begins)]
    return numbers, tuple(found)


# -- in the IR ---------------------------------------------------------------------------------------------------


def _last_starts(
    b: Emitter, dims: GatherDimensions, operand_shape: Sequence[int], sizes: Sequence[int], indices: TensorType
) -> Value:
    """The greatest index vector whose window fits, broadcast to the shape of the indices."""
    last = [min(operand_shape[d] - sizes[d], indices.dtype.greatest) for d in dims.start_index_map]
    if len(set(last)) == 1:
        return b.full(indices, last[0])
    vector = b.emit1(Constant.of(np.asarray(last).astype(indices.dtype.numpy)))
    return b.broadcast_in_dim(vector, indices.shape, (dims.index_vector_dim,))


def clamped(
    b: Emitter, dims: GatherDimensions, operand_shape: Sequence[int], sizes: Sequence[int], indices: Value
) -> Value:
    """The indices moved so that every window lies inside the operand, as gather does."""
    last = _last_starts(b, dims, operand_shape, sizes, indices.type)
    return b.maximum(b.minimum(indices, last), b.zeros(indices.type))


def fitting(
    b: Emitter, dims: GatherDimensions, operand_shape: Sequence[int], sizes: Sequence[int], indices: Value
) -> Value:
    """Whether an element of the windows belongs to a window that lies inside the operand, as scatter asks."""
    last = _last_starts(b, dims, operand_shape, sizes, indices.type)
    fits = b.logical_and(b.compare(indices, b.zeros(indices.type), "GE"), b.compare(indices, last, "LE"))
    if dims.index_vector_dim < indices.type.rank:
        fits = b.emit1(ReduceAnd((dims.index_vector_dim,)), fits)
    shape = dims.windows_shape(indices.type.shape, sizes)
    return b.broadcast_in_dim(fits, shape, others(dims.offset_dims, len(shape)))


def selected(
    b: Emitter, dims: GatherDimensions, x: TensorType, sizes: Sequence[int], indices: Value, windows: Value
) -> Value | None:
    """The windows, which lie inside, added to zeros of type `x`: each element chosen by its place, in no array twice.

    None where two windows may fall on one element, or one is a part of a dimension. Where it is done, compilers fuse
    what they would otherwise write, zeros and all, as large as `x`: of the derivative of a cross-entropy, the logits.
    """
    batch = others(dims.offset_dims, windows.type.rank)
    paired = dict(zip(dims.start_indices_batching_dims, dims.operand_batching_dims, strict=True))
    walked = dict(zip(dims.offset_dims, dims.window_dims(x.rank), strict=True))
    # For each dimension of the windows, and of the indices without vectors, the one of `x` that it is.
    of_indices = [paired.get(d) for d in range(indices.type.rank) if d != dims.index_vector_dim]
    of_windows = walked | {d: own for d, own in zip(batch, of_indices, strict=True) if own is not None}
    if any(d not in of_windows and size != 1 for d, size in enumerate(windows.type.shape)):
        return None
    chosen = [d for d in dims.start_index_map if sizes[d] != x.shape[d]]
    if any(sizes[d] != (1 if d in chosen else x.shape[d]) for d in range(x.rank) if d not in paired.values()):
        return None
    result = b.add(windows, b.zeros(windows.type))  # as sums do it: -0.0 becomes 0.0
    result = _spread(b, result, [of_windows.get(d) for d in range(result.type.rank)], x)
    for component, d in enumerate(dims.start_index_map):
        if d in chosen:
            start = _component(b, dims, indices, component)
            if start.type.dtype.greatest < x.shape[d]:
                start = b.convert(start, I64)  # which counts all places
            spread = _spread(b, start, of_indices, x.with_dtype(start.type.dtype))
            is_there = b.compare(b.iota(spread.type, d), spread, "EQ")
            result = b.select(is_there, result, b.zeros(x))
    return result


def _component(b: Emitter, dims: GatherDimensions, indices: Value, component: int) -> Value:
    """One component of all index vectors."""
    vector, shape = dims.index_vector_dim, indices.type.shape
    if vector == len(shape):
        return indices
    begins = [component if d == vector else 0 for d in range(len(shape))]
    ends = [component + 1 if d == vector else size for d, size in enumerate(shape)]
    one = b.emit1(Slice(tuple(begins), tuple(ends), (1,) * len(shape)), indices)
    return b.reshape(one, shape[:vector] + shape[vector + 1 :])


def _spread(b: Emitter, value: Value, places: Sequence[int | None], type: TensorType) -> Value:
    """A value whose dimensions are these of `type`, or of size 1 and none of them, repeated along all others."""
    sizes = value.type.shape
    kept = {d: place for d, place in enumerate(places) if place is not None and sizes[d] == type.shape[place]}
    dense = b.reshape(value, tuple([sizes[d] for d in kept]))
    order = sorted(range(len(kept)), key=list(kept.values()).__getitem__)
    return b.broadcast_in_dim(b.transpose(dense, order), type.shape, sorted(kept.values()))
