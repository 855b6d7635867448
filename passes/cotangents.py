"""Cotangents of values while a linear graph is walked backwards.

Before:  %1 = slice %x {0 to 2}   %2 = slice %x {2 to 6}        cotangents %a of %1, %b of %2
After:   concatenate %a, %b                                     where pads of %a and %b were added

A value's cotangent is the sum of what its uses give, added as it comes. Only slices wait until all are there: those
that take different parts of one dimension are joined, for one pass over the memory where the pads of n parts, and
their sums, would take 2 n. What `split`, and a loop over `x[t]`, become goes back so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rematc.ir.builder import Builder
from rematc.ir.locations import Location
from rematc.ir.ops.shape import Slice
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class _Part:
    """The cotangent of a slice of a value."""

    op: Slice
    ct: Value
    loc: Location | None


@dataclass(slots=True)
class Cotangents:
    """Cotangents by value; equations that add them go to `b`."""

    b: Builder
    _sums: dict[Value, Value] = field(default_factory=dict)
    _parts: dict[Value, list[_Part]] = field(default_factory=dict)

    def add(self, value: Value, ct: Value) -> None:
        """One more cotangent of `value`."""
        present = self._sums.get(value)
        self._sums[value] = ct if present is None else self.b.add(present, ct)

    def add_slice(self, value: Value, op: Slice, ct: Value) -> None:
        """The cotangent of what `op` takes of `value`."""
        self._parts.setdefault(value, []).append(_Part(op, ct, self.b.loc))

    def take(self, value: Value) -> Value | None:
        """The cotangent of `value`, of which nothing comes any more; None where it is zero."""
        parts = self._parts.pop(value, ())
        if parts:
            loc = self.b.loc
            self._add_parts(value, parts)
            self.b.loc = loc
        return self._sums.pop(value, None)

    def _add_parts(self, value: Value, parts: Sequence[_Part]) -> None:
        self.b.loc = parts[0].loc
        joined = _joined(self.b, value, parts) if len(parts) > 1 else None
        if joined is not None:
            self.add(value, joined)
            return
        for part in parts:
            self.b.loc = part.loc
            self.add(value, part.op.adjoint(self.b, part.ct, value.type))


def _joined(b: Builder, value: Value, parts: Sequence[_Part]) -> Value | None:
    """Parts along one dimension that do not overlap as one array, zeros between them; None for others."""
    dimension = _dimension(value.type.shape, parts)
    if dimension is None:
        return None
    ranges: dict[tuple[int, int], list[Value]] = {}
    for part in parts:
        ranges.setdefault((part.op.start[dimension], part.op.limit[dimension]), []).append(part.ct)
    order = sorted(ranges)
    if any(start < end for (_, end), (start, _) in pairwise(order)):
        return None
    pieces: list[Value] = []
    end = 0
    for start, limit in order:
        if start > end:
            pieces.append(_zeros(b, value, dimension, start - end))
        pieces.append(functools.reduce(b.add, ranges[start, limit]))
        end = limit
    size = value.type.shape[dimension]
    if end < size:
        pieces.append(_zeros(b, value, dimension, size - end))
    return b.concatenate(pieces, dimension)


def _dimension(shape: Sequence[int], parts: Sequence[_Part]) -> int | None:
    """The one dimension of which slices of this shape leave something out, none of them empty or in steps."""
    found: int | None = None
    for part in parts:
        if any(stride != 1 for stride in part.op.strides):
            return None
        for dimension, size in enumerate(shape):
            start, limit = part.op.start[dimension], part.op.limit[dimension]
            if (start, limit) == (0, size):
                continue
            if start == limit or found not in (None, dimension):
                return None
            found = dimension
    return found


def _zeros(b: Builder, value: Value, dimension: int, size: int) -> Value:
    shape = value.type.shape
    return b.zeros(value.type.with_shape((*shape[:dimension], size, *shape[dimension + 1 :])))
