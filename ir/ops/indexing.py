"""Gather and scatter: windows of an array read, or written, at computed places.

An index outside is no error: gather moves the window inside, scatter skips it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.elementwise import ANY, NOT_LINEAR, ORDERED, Numeric, check_arity, check_kind, widened
from rematc.ir.ops.gather_scatter import (
    DimensionsAlong,
    GatherDimensions,
    Indices,
    ScatterDimensions,
    check_windows,
    clamped,
    fitting,
    landing,
    places,
    selected,
    starts,
)
from rematc.ir.ops.shape import zeros_if_none
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import U32, U64, Kind, TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value, known


@register
@dataclass(frozen=True, slots=True)
class Gather(Op):
    """Windows of the first operand, which start where the second says; linear in the first.

    A start is clamped so that its window lies inside.

    Attributes:
        dimension_numbers: which dimension is what.
        slice_sizes: sizes of a window, one for each dimension of the operand.
        indices_are_sorted: a promise that the index vectors are in lexicographic order.
    """

    name = "gather"
    dimension_numbers: GatherDimensions
    slice_sizes: tuple[int, ...]
    indices_are_sorted: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        x, indices = operands
        check_windows(self, self.dimension_numbers, x, indices, self.slice_sizes)
        return (x.with_shape(self.dimension_numbers.windows_shape(indices.shape, self.slice_sizes)),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, indices = operands
        dims, sizes = self.dimension_numbers, self.slice_sizes
        begins = [
            np.clip(begin, 0, length - size)
            for begin, length, size in zip(starts(dims, x.shape, indices), x.shape, sizes, strict=True)
        ]
        found = x[places(dims, sizes, begins)]
        return (np.broadcast_to(found, dims.windows_shape(indices.shape, sizes)).copy(),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0], primals[1]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, indices) = cts, operands
        if ct is None:
            return (None, None)
        indices = known(indices, "gather is not linear in its indices")
        dims = self.dimension_numbers
        inside = clamped(b, dims, x.type.shape, self.slice_sizes, indices)
        chosen = selected(b, dims, x.type, self.slice_sizes, inside, ct)
        if chosen is not None:
            return (chosen, None)
        # Clamping keeps scalars in order, but not vectors: (0, 5), (1, 0) becomes (0, 5), (0, 0).
        is_sorted = self.indices_are_sorted and len(dims.start_index_map) == 1
        adding = ScatterAdd(ScatterDimensions.of(dims), indices_are_sorted=is_sorted)
        return (b.emit1(adding, b.zeros(x.type), inside, ct), None)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        has_x, has_indices = batch.is_batched
        dims = self.dimension_numbers.batched(has_x, has_indices)
        sizes = (1 if has_indices else batch.size, *self.slice_sizes) if has_x else self.slice_sizes
        return b.emit(Gather(dims, sizes, self.indices_are_sorted and not has_indices), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        """Along whole dimensions of the operand in a window, along paired ones, and along those of the indices."""
        x, indices = operands
        along = DimensionsAlong.of(self.dimension_numbers, x.shape, self.slice_sizes, indices.rank)
        windows = [Slicing((d, None), (place,)) for d, place in along.windows]
        paired = [Slicing((d, of_indices), (place,)) for d, of_indices, place in along.paired]
        return (*windows, *paired, *[Slicing((None, d), (place,)) for d, place in along.indices])

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        if part.slicing.operands[1] is not None:
            return b.emit(self, *operands)
        return b.emit(replace(self, slice_sizes=part.cut(self.slice_sizes, part.slicing.operands[0])), *operands)


class Scattering(Op):
    """Family base: the first operand with the windows that the third holds combined into it where the second says.

    Operands are x, indices, updates. A window that does not lie wholly inside is skipped: XLA's rule, where
    StableHLO's text skips single elements. Where windows overlap, the order of combination is open.

    Attributes:
        dimension_numbers: which dimension is what.
        indices_are_sorted: a promise that the index vectors are in lexicographic order.
        unique_indices: a promise that no two windows overlap.
    """

    __slots__ = ()
    dimension_numbers: ScatterDimensions
    indices_are_sorted: bool
    unique_indices: bool
    kinds: ClassVar[frozenset[Kind]] = ANY

    def combine(self, x: Numeric, places: tuple[Indices, ...], updates: Numeric) -> None:
        """Combine the updates into `x` in place, one after the other."""
        raise NotImplementedError

    @property
    def is_unordered(self) -> bool:
        """Whether windows that overlap give the same in any order, but for rounding."""
        return True

    def overwrites(self, result: int) -> int | None:
        return 0

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 3)
        x, indices, updates = operands
        check_kind(self, x, self.kinds)
        dims = self.dimension_numbers.of_gather()
        if updates.dtype is not x.dtype or any(not 0 <= d < updates.rank for d in dims.offset_dims):
            raise TypeMismatchError(
                f"'{self.name}' into {x} takes updates of its element type with dimensions {list(dims.offset_dims)}, "
                f"got {updates}"
            )
        sizes = self.sizes(x.rank, updates.shape)
        check_windows(self, dims, x, indices, sizes)
        expected = updates.with_shape(dims.windows_shape(indices.shape, sizes))
        if updates != expected:
            raise TypeMismatchError(f"'{self.name}' into {x} at {indices} takes updates {expected}, got {updates}")
        return (x,)

    def sizes(self, rank: int, updates: Sequence[int]) -> tuple[int, ...]:
        """Sizes of a window of x, which has this rank, from the shape of the updates."""
        dims = self.dimension_numbers.of_gather()
        sizes = {d: updates[offset] for d, offset in zip(dims.window_dims(rank), dims.offset_dims, strict=False)}
        return tuple([sizes.get(d, 1) for d in range(rank)])

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, indices, updates = operands
        dims = self.dimension_numbers.of_gather()
        numbers, places = landing(dims, x.shape, self.sizes(x.ndim, updates.shape), indices)
        chosen = widened(updates).reshape(-1)[numbers]
        result = widened(x).copy()
        with np.errstate(all="ignore"):
            self.combine(result, places, chosen)
        return (result.astype(x.dtype),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        (x, indices, updates), (has_x, has_indices, has_updates) = batch.operands, batch.is_batched
        op = with_fields(
            self,
            dimension_numbers=ScatterDimensions.of(self.dimension_numbers.of_gather().batched(True, has_indices)),
            indices_are_sorted=self.indices_are_sorted and not has_indices,
        )
        return b.emit(op, batch.batched(b, x, has_x), indices, batch.batched(b, updates, has_updates))

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        """Along whole dimensions in a window, along paired ones; along those of the indices, part after part into x."""
        x, indices, updates = operands
        dims = self.dimension_numbers.of_gather()
        along = DimensionsAlong.of(dims, x.shape, self.sizes(x.rank, updates.shape), indices.rank)
        windows = [Slicing((d, None, place), (d,)) for d, place in along.windows]
        paired = [Slicing((d, of_indices, place), (d,)) for d, of_indices, place in along.paired]
        one_by_one = [Slicing((None, d, place), (None,), into=(0,)) for d, place in along.indices]
        return (*windows, *paired, *(one_by_one if self.is_unordered else ()))

    def flops(self, operands: Types, results: Types) -> int:
        return operands[2].size if operands[2].dtype.is_inexact else 0

    def read(self, b: Emitter, x: Value, indices: Value, updates: TensorType) -> Value:
        """The windows of `x` that the updates meet; those of skipped updates are any."""
        dims = self.dimension_numbers.of_gather()
        return b.emit1(Gather(dims, self.sizes(x.type.rank, updates.shape), self.indices_are_sorted), x, indices)

    def add_up(self, b: Emitter, indices: Value, updates: Value, x: TensorType) -> Value:
        """The updates summed where they fall, into zeros."""
        op = ScatterAdd(self.dimension_numbers, self.indices_are_sorted, self.unique_indices)
        return b.emit1(op, b.zeros(x), indices, updates)

    def fitting(self, b: Emitter, x: TensorType, indices: Value, updates: TensorType) -> Value:
        """Which elements of the updates are not skipped."""
        return fitting(b, self.dimension_numbers.of_gather(), x.shape, self.sizes(x.rank, updates.shape), indices)


@register
@dataclass(frozen=True, slots=True)
class Scatter(Scattering):
    """Updates in place of elements of x. Linear in x and the updates.

    Where windows overlap, one update wins and the derivative is its own: each update writes a number of its own,
    and those that read their number back have won.
    """

    name = "scatter"
    dimension_numbers: ScatterDimensions
    indices_are_sorted: bool = False
    unique_indices: bool = False

    @property
    def is_unordered(self) -> bool:
        return self.unique_indices

    def combine(self, x: Numeric, places: tuple[Indices, ...], updates: Numeric) -> None:
        x[places] = updates

    def _wins(self, b: Emitter, x: TensorType, indices: Value, updates: TensorType) -> Value:
        """Which elements of the updates are in the result."""
        if self.unique_indices:
            return self.fitting(b, x, indices, updates)
        dtype = U32 if updates.size < 2**32 - 1 else U64
        counted = b.reshape(b.iota(TensorType(dtype, (updates.size,)), 0), updates.shape)
        numbers = b.add(counted, b.full(counted.type, 1))
        written = b.emit1(self, b.zeros(x.with_dtype(dtype)), indices, numbers)
        return b.compare(self.read(b, written, indices, numbers.type), numbers, "EQ")

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        if tu is None or self.unique_indices:
            new = zeros_if_none(b, tu, updates.type)
            return (b.emit1(self, zeros_if_none(b, tx, x.type), indices, new),)
        wins = self._wins(b, x.type, indices, updates.type)
        zeros = b.zeros(updates.type)
        won = b.select(wins, tu, zeros)
        if tx is None:
            return (self.add_up(b, indices, won, x.type),)
        kept = b.emit1(self, tx, indices, zeros)
        return (b.emit1(ScatterAdd(self.dimension_numbers, self.indices_are_sorted), kept, indices, won),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, indices, updates) = cts, operands
        if ct is None:
            return (None, None, None)
        indices = known(indices, "scatter is not linear in its indices")
        zeros = b.zeros(updates.type)
        ct_x = b.emit1(self, ct, indices, zeros) if isinstance(x, LinearOperand) else None
        if not isinstance(updates, LinearOperand):
            return (ct_x, None, None)
        wins = self._wins(b, x.type, indices, updates.type)
        return (ct_x, None, b.select(wins, self.read(b, ct, indices, updates.type), zeros))


@register
@dataclass(frozen=True, slots=True)
class ScatterAdd(Scattering):
    """Updates added to elements of x; all of them where windows overlap. Linear in x and the updates."""

    name = "scatter_add"
    dimension_numbers: ScatterDimensions
    indices_are_sorted: bool = False
    unique_indices: bool = False

    def combine(self, x: Numeric, places: tuple[Indices, ...], updates: Numeric) -> None:
        np.add.at(x, places, updates)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, indices, _), (tx, _, tu) = primals, tangents
        if tu is None:
            return (tx,)
        return (b.emit1(self, zeros_if_none(b, tx, x.type), indices, tu),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, indices, updates) = cts, operands
        if ct is None:
            return (None, None, None)
        indices = known(indices, "scatter_add is not linear in its indices")
        ct_x = ct if isinstance(x, LinearOperand) else None
        if not isinstance(updates, LinearOperand):
            return (ct_x, None, None)
        fits = self.fitting(b, x.type, indices, updates.type)
        ct_updates = b.select(fits, self.read(b, ct, indices, updates.type), b.zeros(updates.type))
        return (ct_x, None, ct_updates)


@register
@dataclass(frozen=True, slots=True)
class ScatterMultiply(Scattering):
    """Elements of x multiplied by updates; by all of them where windows overlap. Linear in x."""

    name = "scatter_multiply"
    dimension_numbers: ScatterDimensions
    indices_are_sorted: bool = False
    unique_indices: bool = False

    def combine(self, x: Numeric, places: tuple[Indices, ...], updates: Numeric) -> None:
        np.multiply.at(x, places, updates)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        from_x = None if tx is None else b.emit1(self, tx, indices, updates)
        if tu is None:
            return (from_x,)
        if not self.unique_indices:
            raise MissingRuleError(
                f"jvp of '{self.name}' with respect to the updates is there for unique_indices alone: "
                "where updates overlap it needs the product of the others at each place"
            )
        # What a skipped update reads is any element of x: an infinite one must not meet the zero of its cotangent.
        fits = self.fitting(b, x.type, indices, updates.type)
        met = b.select(fits, self.read(b, x, indices, updates.type), b.zeros(updates.type))
        from_updates = self.add_up(b, indices, b.multiply(tu, met), x.type)
        return (from_updates if from_x is None else b.add(from_x, from_updates),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (_, indices, updates) = cts, operands
        if ct is None:
            return (None, None, None)
        indices = known(indices, "the op is not linear in its indices")
        updates = known(updates, "the op is linear in its first operand alone")
        return (b.emit1(self, ct, indices, updates), None, None)


class ScatteringExtremum(Scattering):
    """Family base of minimum and maximum. All that equal the extremum share its derivative equally.

    An element that no update comes to stays, also where it is NaN, and so does its derivative.
    """

    __slots__ = ()
    kinds = ORDERED
    no_transpose: ClassVar[str] = NOT_LINEAR
    function: ClassVar[np.ufunc]

    def combine(self, x: Numeric, places: tuple[Indices, ...], updates: Numeric) -> None:
        type(self).function.at(x, places, updates)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, indices, updates), (y,), (tx, _, tu) = primals, results, tangents
        dtype = x.type.dtype
        come = self.add_up(b, indices, b.full(updates.type, 1), x.type)
        stays = b.compare(come, b.zeros(come.type), "EQ")
        x_wins = b.logical_or(b.compare(x, y, "EQ"), stays)
        update_wins = b.compare(updates, self.read(b, y, indices, updates.type), "EQ")
        count = b.add(b.convert(x_wins, dtype), self.add_up(b, indices, b.convert(update_wins, dtype), x.type))
        total = None if tx is None else b.select(x_wins, tx, b.zeros(x.type))
        if tu is not None:
            from_updates = self.add_up(b, indices, b.select(update_wins, tu, b.zeros(updates.type)), x.type)
            total = from_updates if total is None else b.add(total, from_updates)
        return (None if total is None else b.divide(total, count),)


@register
@dataclass(frozen=True, slots=True)
class ScatterMinimum(ScatteringExtremum):
    """The least of each element of x and the updates that fall on it."""

    name = "scatter_minimum"
    dimension_numbers: ScatterDimensions
    indices_are_sorted: bool = False
    unique_indices: bool = False
    function = np.minimum


@register
@dataclass(frozen=True, slots=True)
class ScatterMaximum(ScatteringExtremum):
    """The greatest of each element of x and the updates that fall on it."""

    name = "scatter_maximum"
    dimension_numbers: ScatterDimensions
    indices_are_sorted: bool = False
    unique_indices: bool = False
    function = np.maximum
