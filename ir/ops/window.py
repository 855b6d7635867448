"""Windowed reductions and selections: pooling and its derivatives, cumulative sums and extrema.

`select_and_gather` picks in each window of one operand the place of the extremum, and reads another operand there: the
tangent of a windowed extremum. It is linear in what it reads, and `select_and_scatter` is its transpose. Both pick the
first of equal extrema, in row-major order of the window's positions, and never padding; what they pick from a window
with a NaN is left open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.elementwise import NOT_LINEAR, REALS, Numeric, check_arity, check_kind, check_same, widened
from rematc.ir.ops.reduction import ReduceMax, ReduceMin, ReduceSum
from rematc.ir.ops.shape import check_per_dimension
from rematc.ir.ops.window_dimension import (
    Pairs,
    WindowDimension,
    paddings,
    untouched_by_windows,
    window_dimensions,
    windows_of,
)
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing
from rematc.ir.types import TensorType, dtype_of_numpy
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value, known


@dataclass(frozen=True, slots=True)
class WindowReduction(Op):
    """Family base: each window over the operand combined by `reduction`, padding and gaps being its neutral element.

    Attributes:
        window_dimensions: sizes of the window, one entry a dimension, as in all that follow.
        window_strides: distance of two windows.
        padding: neutral elements before and after the operand; negative numbers cut off.
        base_dilations: distance of two elements of the operand.
        window_dilations: distance of two positions of a window.
    """

    window_dimensions: tuple[int, ...]
    window_strides: tuple[int, ...]
    padding: Pairs
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]
    reduction: ClassVar[type[ReduceSum] | type[ReduceMax] | type[ReduceMin]]
    no_transpose: ClassVar[str] = NOT_LINEAR

    def windows(self) -> tuple[WindowDimension, ...]:
        """How the windows lie along each dimension."""
        return window_dimensions(
            self,
            self.window_dimensions,
            self.window_strides,
            self.padding,
            self.base_dilations,
            self.window_dilations,
        )

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, self.reduction.kinds)
        check_per_dimension(self, "window_dimensions", self.window_dimensions, x)
        return (x.with_shape(_counts(self.windows(), x.shape)),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        dtype = dtype_of_numpy(x.dtype)
        assert dtype is not None, f"{x.dtype} is the element type of no tensor"
        reduce = self.reduction(tuple(range(x.ndim, 2 * x.ndim)))
        return reduce.reference((windows_of(x, self.windows(), reduce.neutral(dtype)),))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        op = with_fields(
            self,
            window_dimensions=(1, *self.window_dimensions),
            window_strides=(1, *self.window_strides),
            padding=((0, 0), *self.padding),
            base_dilations=(1, *self.base_dilations),
            window_dilations=(1, *self.window_dilations),
        )
        return b.emit(op, *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return untouched_by_windows(self.windows(), 1, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size * math.prod(self.window_dimensions) if operands[0].dtype.is_inexact else 0


@register
@dataclass(frozen=True, slots=True)
class ReduceWindowSum(WindowReduction):
    """Sum of each window. Its transpose sums, for each element, over the windows that read it."""

    name = "reduce_window_sum"
    reduction = ReduceSum
    no_transpose = ""

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), x = cts, operands[0].type
        if ct is None:
            return (None,)
        if not ct.type.size or not x.size:
            return (b.zeros(x),)
        windows = [window.over_results(n) for window, n in zip(self.windows(), x.shape, strict=True)]
        op = ReduceWindowSum(
            self.window_dimensions,
            tuple([window.stride for window in windows]),
            paddings(windows),
            tuple([window.base_dilation for window in windows]),
            self.window_dilations,
        )
        return (b.emit1(op, ct),)


@dataclass(frozen=True, slots=True)
class ExtremumOfWindow(WindowReduction):
    """Family base of the windowed extrema. The first of equal extrema has the derivative."""

    not_worse: ClassVar[str]
    better: ClassVar[str]

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (t,) = primals, tangents
        if t is None or not results[0].type.size:
            return (None,)
        windows = self.windows()
        if set(self.base_dilations + self.window_dilations) <= {1} and _all_read(windows, x.type.shape):
            op = SelectAndGather(self.not_worse, self.window_dimensions, self.window_strides, self.padding)
            return (b.emit1(op, x, t),)
        return (self._tangent_by_position(b, x, t),)

    def _tangent_by_position(self, b: Emitter, x: Value, t: Value) -> Value:
        """Dilated windows: for each position of the window, a slice, selected where it is better than those before."""
        windows, dtype = self.windows(), x.type.dtype
        counts = _counts(windows, x.type.shape)
        low, high = [window.low for window in windows], [window.high for window in windows]
        interior = [window.base_dilation - 1 for window in windows]
        scalar = x.type.with_shape(())
        neutral = b.full(scalar, self.reduction(()).initial(dtype))
        elements = b.pad(x, neutral, low, high, interior)
        tangents = b.pad(t, b.zeros(scalar), low, high, interior)
        strides = self.window_strides
        best, found = None, b.zeros(x.type.with_shape(counts))
        for position in product(*[range(size) for size in self.window_dimensions]):
            start = [k * window.dilation for k, window in zip(position, windows, strict=True)]
            limit = [s + (m - 1) * step + 1 for s, m, step in zip(start, counts, strides, strict=True)]
            element, tangent = b.slice(elements, start, limit, strides), b.slice(tangents, start, limit, strides)
            if best is None:
                best, found = element, tangent
                continue
            is_better = b.compare(element, best, self.better)
            best, found = b.select(is_better, element, best), b.select(is_better, tangent, found)
        return found


@register
@dataclass(frozen=True, slots=True)
class ReduceWindowMax(ExtremumOfWindow):
    """Maximum of each window."""

    name = "reduce_window_max"
    reduction = ReduceMax
    not_worse, better = "GE", "GT"


@register
@dataclass(frozen=True, slots=True)
class ReduceWindowMin(ExtremumOfWindow):
    """Minimum of each window."""

    name = "reduce_window_min"
    reduction = ReduceMin
    not_worse, better = "LE", "LT"


@dataclass(frozen=True, slots=True)
class Selection(Op):
    """Family base: two operands, the first of which says which place of each window counts.

    Attributes:
        direction: GE picks the maximum of a window, LE the minimum.
        window_dimensions: sizes of the window, one entry a dimension, as in all that follow.
        window_strides: distance of two windows.
        padding: how far windows reach over the operand's edges; each must read an element.
    """

    direction: str
    window_dimensions: tuple[int, ...]
    window_strides: tuple[int, ...]
    padding: Pairs

    def windows(self) -> tuple[WindowDimension, ...]:
        """How the windows lie along each dimension."""
        ones = (1,) * len(self.window_dimensions)
        return window_dimensions(self, self.window_dimensions, self.window_strides, self.padding, ones, ones)

    def check(self, operands: Types) -> tuple[int, ...]:
        """Check the fields against the first operand; the shape of the windows."""
        check_arity(self, operands, 2)
        x = operands[0]
        check_kind(self, x, REALS)
        check_per_dimension(self, "window_dimensions", self.window_dimensions, x)
        if self.direction not in ("GE", "LE"):
            raise TypeMismatchError(f"'{self.name}' takes the direction GE or LE, got {self.direction!r}")
        if not _all_read(self.windows(), x.shape):
            raise TypeMismatchError(
                f"'{self.name}' of {x} with padding {list(map(list, self.padding))}: some windows of "
                f"{list(self.window_dimensions)} lie in the padding alone; expected each to read an element"
            )
        return _counts(self.windows(), x.shape)

    def places(self, x: Array) -> Numeric:
        """The flat index in x of each window's pick."""
        dtype = dtype_of_numpy(x.dtype)
        assert dtype is not None, f"{x.dtype} is the element type of no tensor"
        windows = self.windows()
        counts = _counts(windows, x.shape)
        neutral = (ReduceMax(()) if self.direction == "GE" else ReduceMin(())).neutral(dtype)
        taps = math.prod(self.window_dimensions)
        elements = widened(windows_of(x, windows, neutral)).reshape(*counts, taps)
        numbered = np.arange(x.size).reshape(x.shape)
        indices: Numeric = windows_of(numbered, windows, np.asarray(-1)).reshape(*counts, taps)
        pick = np.argmax(elements, -1) if self.direction == "GE" else np.argmin(elements, -1)
        found = np.take_along_axis(indices, pick[..., None], -1)
        # Where padding won, all elements are as bad as padding: then the first element counts.
        first = np.take_along_axis(indices, np.argmax(indices >= 0, -1)[..., None], -1)
        return np.where(found < 0, first, found)[..., 0]

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[1] is None else b.emit1(self, primals[0], tangents[1]),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        op = with_fields(
            self,
            window_dimensions=(1, *self.window_dimensions),
            window_strides=(1, *self.window_strides),
            padding=((0, 0), *self.padding),
        )
        return b.emit(op, *batch.all_batched(b))

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return untouched_by_windows(self.windows(), 2, operands, results)


@register
@dataclass(frozen=True, slots=True)
class SelectAndGather(Selection):
    """The second operand, read where the first has the extremum of each window. Linear in the second."""

    name = "select_and_gather"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        counts = self.check(operands)
        check_same(self, operands)
        return (operands[0].with_shape(counts),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, values = operands
        return (values.reshape(-1)[self.places(x)],)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), x = cts, operands[0]
        if ct is None:
            return (None, None)
        x = known(x, f"'{self.name}' is not linear in its first operand")
        op = SelectAndScatter(self.direction, self.window_dimensions, self.window_strides, self.padding)
        return (None, b.emit1(op, x, ct))

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size * math.prod(self.window_dimensions)


@register
@dataclass(frozen=True, slots=True)
class SelectAndScatter(Selection):
    """Zeros of the first operand's shape, to which each element of the second is added where the first has the
    extremum of that element's window. Linear in the second.
    """

    name = "select_and_scatter"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        counts = self.check(operands)
        x, source = operands
        if source != x.with_shape(counts):
            raise TypeMismatchError(f"'{self.name}' of {x} takes {x.with_shape(counts)} to scatter, got {source}")
        return (x,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, source = operands
        wide: Numeric = widened(source)
        sums = np.zeros(x.size, wide.dtype)
        with np.errstate(all="ignore"):
            np.add.at(sums, self.places(x), wide)
        return (sums.reshape(x.shape).astype(x.dtype),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), x = cts, operands[0]
        if ct is None:
            return (None, None)
        x = known(x, f"'{self.name}' is not linear in its first operand")
        op = SelectAndGather(self.direction, self.window_dimensions, self.window_strides, self.padding)
        return (None, b.emit1(op, x, ct))

    def flops(self, operands: Types, results: Types) -> int:
        return operands[1].size * math.prod(self.window_dimensions)


def _counts(windows: Sequence[WindowDimension], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([window.count(n) for window, n in zip(windows, shape, strict=True)])


def _all_read(windows: Sequence[WindowDimension], shape: Sequence[int]) -> bool:
    return all(window.every_window_reads(n) for window, n in zip(windows, shape, strict=True))
