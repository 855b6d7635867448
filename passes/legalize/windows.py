"""The derivative of pooling by the extremum, where XLA has no kernel for it.

Before:  %0: f32[8] = select_and_scatter %x, %ct {direction=GE, window_dimensions=(3), window_strides=(2), ...}
After:   for each window the position of its extremum, from as many slices of %x as a window has positions; for each
         position a slice of the result: %ct where it is that one, and 0 elsewhere; their sum

The positions are behind a barrier: XLA would find them anew for each slice of the result, and for that keep the slices
apart.

XLA's own expansion, on CPUs and GPUs, numbers all elements, by one array of integers as large as the operand for each
dimension, finds the numbers of the extrema by a windowed reduction of them all, and scatters. Of pictures
f32[8,112,112,64], in windows of 3 x 3 that are 2 apart, it takes 183 MiB, this one 25 MiB (jax 0.12, CPU).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.ops.reduction import ReduceMax, ReduceMin
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.ops.window import SelectAndScatter
from rematc.ir.ops.window_dimension import WindowDimension
from rematc.ir.types import F32, I32, I64, U8, TensorType
from rematc.ir.values import Value
from rematc.passes.legalize.rules import expands

#: Windows of more positions are left to XLA: each position is some eight equations.
_MOST_POSITIONS = 64


@expands(SelectAndScatter, but_on=("tpu",))
def select_and_scatter(b: Builder, op: SelectAndScatter, x: Value, source: Value) -> Sequence[Value] | None:
    """Floats of 16 bits and less are added in float32 and rounded once."""
    if math.prod(op.window_dimensions) > _MOST_POSITIONS:
        return None
    if not source.type.size:
        return [b.zeros(x.type)]
    dtype = x.type.dtype
    wide = F32 if dtype.is_float and dtype.bits < F32.bits else dtype
    windows = op.windows()
    (picked,) = b.emit(OptimizationBarrier(), _picked(b, op, x, source.type))
    padded = [window.padded(n) for window, n in zip(windows, x.type.shape, strict=True)]
    source = b.convert(source, wide)
    zeros, zero = b.zeros(source.type), b.zeros(TensorType(wide, ()))
    total: Value | None = None
    for number, position in enumerate(product(*[range(window.size) for window in windows])):
        own = b.select(b.compare(picked, b.full(picked.type, number), "EQ"), source, zeros)
        limit = _limit(position, windows, source.type.shape)
        after = [end - one for end, one in zip(padded, limit, strict=True)]
        placed = b.pad(own, zero, position, after, [window.stride - 1 for window in windows])
        total = placed if total is None else b.add(total, placed)
    assert total is not None, "a window has positions"
    # Without the padding: the opposite edges.
    inside = b.pad(total, zero, [-window.low for window in windows], [-window.high for window in windows])
    return [b.convert(inside, dtype)]


def _picked(b: Builder, op: SelectAndScatter, x: Value, type: TensorType) -> Value:
    """The position of each window's pick, numbered in row-major order, of the shape of `type`.

    From the last position to the first one, each that is no worse than those after it is taken: so the first of equal
    ones is picked, and an element as bad as padding displaces padding.
    """
    windows, shape = op.windows(), x.type.shape
    neutral = (ReduceMax(()) if op.direction == "GE" else ReduceMin(())).neutral(x.type.dtype)
    low, high = [window.low for window in windows], [window.high for window in windows]
    padded = b.pad(x, b.constant(neutral), low, high)
    strides = [window.stride for window in windows]
    best = picked = None
    positions = list(product(*[range(window.size) for window in windows]))
    for number in reversed(range(len(positions))):
        position = positions[number]
        element = b.slice(padded, position, _limit(position, windows, type.shape), strides)
        of_all = b.full(type.with_dtype(U8), number)
        if best is None or picked is None:
            best, picked = element, of_all
            continue
        is_better = b.compare(element, best, op.direction)
        for inside in _inside(b, type, windows, position, shape):
            is_better = b.logical_and(is_better, inside)
        best, picked = b.select(is_better, element, best), b.select(is_better, of_all, picked)
    assert picked is not None, "a window has positions"
    return picked


def _limit(position: Sequence[int], windows: Sequence[WindowDimension], counts: Sequence[int]) -> list[int]:
    """The end of what a position reads of the padded operand in all windows."""
    return [place + (n - 1) * window.stride + 1 for place, window, n in zip(position, windows, counts, strict=True)]


def _inside(
    b: Builder, type: TensorType, windows: Sequence[WindowDimension], position: Sequence[int], shape: Sequence[int]
) -> Iterator[Value]:
    """Where a position reads an element and not padding: what bounds the windows along each dimension."""
    for dimension, (window, place, n) in enumerate(zip(windows, position, shape, strict=True)):
        count = type.shape[dimension]
        first, last = -((place - window.low) // window.stride), (n - 1 + window.low - place) // window.stride
        if first <= 0 and last >= count - 1:
            continue
        numbers = type.with_dtype(I32 if count <= np.iinfo(np.int32).max else I64)
        number = b.iota(numbers, dimension)
        if first > 0:
            yield b.compare(number, b.full(numbers, first), "GE")
        if last < count - 1:
            yield b.compare(number, b.full(numbers, last), "LE")
