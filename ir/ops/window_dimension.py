"""How windows lie along one dimension of an array: what convolutions and windowed reductions have in common.

The operand's n elements are spread `base_dilation` apart and padded by `low` and `high`. Position k of window o reads
the place o * stride + k * dilation - low of the spread operand: element i, if the place is i * base_dilation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rematc.ir.core import Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.shape import Pad
from rematc.ir.slicings import Slicing
from rematc.ir.values import Array, Types

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """The windows along one dimension.

    Attributes:
        size: positions of a window.
        stride: distance of two windows.
        low: places added before the first element; a negative number cuts off.
        high: places added after the last element, likewise.
        base_dilation: distance of two elements of the operand.
        dilation: distance of two positions of a window.
    """

    size: int
    stride: int
    low: int
    high: int
    base_dilation: int
    dilation: int

    @property
    def extent(self) -> int:
        """Places from a window's first position to its last, both counted."""
        return (self.size - 1) * self.dilation + 1

    def padded(self, n: int) -> int:
        """Places of an operand of n elements, padding included."""
        return self.low + _spread(n, self.base_dilation) + self.high

    def count(self, n: int) -> int:
        """How many windows fit over an operand of n elements."""
        return max(0, (self.padded(n) - self.extent) // self.stride + 1)

    def over_results(self, n: int) -> WindowDimension:
        """The windows over one number a window that collect, for each of n elements, those of the windows that read it.

        Element i is read by position k of window o if i * base_dilation = o * stride + k * dilation - low. With
        positions counted from the end, k' = size - 1 - k, window i of these reads result o at its position k'.
        """
        m = self.count(n)
        high = self.low + (n - 1) * self.base_dilation - (m - 1) * self.stride
        return replace(
            self,
            stride=self.base_dilation,
            low=self.extent - 1 - self.low,
            high=high,
            base_dilation=self.stride,
        )

    def over_positions(self, n: int) -> WindowDimension:
        """The windows over the n elements that collect, for each position k, the elements read there.

        There are `size` windows, and position o of the k-th reads what position k of window o reads.
        """
        m = self.count(n)
        extent = (m - 1) * self.stride + 1
        high = self.extent - 1 + extent - self.low - _spread(n, self.base_dilation)
        return replace(self, size=m, stride=self.dilation, high=high, dilation=self.stride)

    def reads(self, n: int) -> int:
        """How many pairs of a window and a position read an element, and neither padding nor the space between."""
        (few, few_step), (many, many_step) = sorted([(self.size, self.dilation), (self.count(n), self.stride)])
        period = self.base_dilation // math.gcd(many_step, self.base_dilation)
        last = (n - 1) * self.base_dilation
        total = 0
        for i in range(few):
            offset = i * few_step - self.low
            for first in range(period):
                if (offset + first * many_step) % self.base_dilation == 0:
                    # Places offset + j * many_step in [0, last], for j = first, first + period, ... below `many`.
                    low = max(first, -(offset // many_step))
                    low += (first - low) % period
                    high = min(many - 1, (last - offset) // many_step)
                    total += max(0, (high - low) // period + 1)
        return total

    def every_window_reads(self, n: int) -> bool:
        """Whether each window reads at least one element; holds for undilated windows and operands only."""
        m = self.count(n)
        return m == 0 or (self.low < self.size and (m - 1) * self.stride - self.low < n)


def _spread(n: int, dilation: int) -> int:
    return (n - 1) * dilation + 1 if n else 0


def window_dimensions(
    op: Op,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilations: Sequence[int],
    dilations: Sequence[int],
) -> tuple[WindowDimension, ...]:
    """One entry for each size. Raises TypeMismatchError where lengths differ or a number is not positive."""
    for what, values in (
        ("strides", strides),
        ("paddings", padding),
        ("dilations of the operand", base_dilations),
        ("dilations of the window", dilations),
    ):
        if len(values) != len(sizes):
            raise TypeMismatchError(f"'{op.name}' takes {len(sizes)} {what}, one a dimension, got {list(values)}")
    for what, numbers in (
        ("window sizes", sizes),
        ("strides", strides),
        ("dilations of the operand", base_dilations),
        ("dilations of the window", dilations),
    ):
        if min(numbers, default=1) < 1:
            raise TypeMismatchError(f"'{op.name}' takes {what} of at least 1, got {list(numbers)}")
    entries = zip(sizes, strides, padding, base_dilations, dilations, strict=True)
    return tuple([WindowDimension(size, stride, *edges, base, step) for size, stride, edges, base, step in entries])


def paddings(dimensions: Sequence[WindowDimension]) -> Pairs:
    """The field `padding` for these windows."""
    return tuple([(dimension.low, dimension.high) for dimension in dimensions])


def untouched_by_windows(
    dimensions: Sequence[WindowDimension], arrays: int, operands: Types, results: Types
) -> tuple[Slicing, ...]:
    """The slicings of an op that looks at so many of its first operands through windows: along what these are single
    elements of, each of which is one result.
    """
    of_operands = [index < arrays for index in range(len(operands))]
    return tuple(
        [
            Slicing(tuple([d if is_array else None for is_array in of_operands]), (d,) * len(results))
            for d, window in enumerate(dimensions)
            if (window.size, window.stride, window.low, window.high, window.base_dilation) == (1, 1, 0, 0, 1)
        ]
    )


def windows_of(x: Array, dimensions: Sequence[WindowDimension], fill: Array) -> Array:
    """A view of the windows along the last dimensions of x, with the scalar `fill` in padding and gaps.

    x: [*lead, *sizes of the operand]; the result: [*lead, *counts of windows, *sizes of a window].
    """
    lead = x.ndim - len(dimensions)
    sizes = x.shape[lead:]
    counts = [dimension.count(n) for dimension, n in zip(dimensions, sizes, strict=True)]
    if 0 in counts:
        return np.empty((*x.shape[:lead], *counts, *[dimension.size for dimension in dimensions]), x.dtype)
    unpadded = (0,) * lead
    pad = Pad(
        (*unpadded, *[dimension.low for dimension in dimensions]),
        (*unpadded, *[dimension.high for dimension in dimensions]),
        (*unpadded, *[dimension.base_dilation - 1 for dimension in dimensions]),
    )
    (padded,) = pad.reference((x, fill))
    extents = [dimension.extent for dimension in dimensions]
    views = np.lib.stride_tricks.sliding_window_view(padded, extents, axis=tuple(range(lead, x.ndim)))
    strides = [slice(None, None, dimension.stride) for dimension in dimensions]
    dilations = [slice(None, None, dimension.dilation) for dimension in dimensions]
    return views[(slice(None),) * lead + (*strides, *dilations)]
