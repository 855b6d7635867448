"""Convolution over chosen dimensions, in NumPy: shifted products, summed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np


def convolve(
    a: Any,
    b: Any,
    axes: tuple[Sequence[int], Sequence[int]] | None = None,
    dot_axes: tuple[Sequence[int], Sequence[int]] = ((), ()),
    mode: str = "full",
) -> Any:
    """Convolve `axes` of a and b, contract `dot_axes`, take the outer product over what is left.

    The result has the free dimensions of a, those of b, and the convolved ones.
    """
    if axes is None:
        axes = (range(np.ndim(a)), range(np.ndim(a)))
    x, free_x = _arranged(a, axes[0], dot_axes[0])
    y, free_y = _arranged(b, axes[1], dot_axes[1])
    rank, dots = len(axes[0]), len(dot_axes[0])
    sizes = [np.shape(x)[free_x + dots + d] for d in range(rank)]
    kernel = [np.shape(y)[free_y + dots + d] for d in range(rank)]
    if mode == "valid" and any(k > n for n, k in zip(sizes, kernel, strict=True)):
        swapped = convolve(b, a, axes[::-1], dot_axes[::-1], mode)
        return np.moveaxis(swapped, range(free_y), range(free_x, free_x + free_y))
    whole = [n + k - 1 for n, k in zip(sizes, kernel, strict=True)]
    result: Any = 0.0
    for shift in itertools.product(*[range(k) for k in kernel]):
        margins = [(s, w - n - s) for s, w, n in zip(shift, whole, sizes, strict=True)]
        placed = np.pad(x, [(0, 0)] * (free_x + dots) + margins)
        tap = y[(Ellipsis, *shift)] if rank else y
        # [free x, dots, space] with [free y, dots] to [free x, space, free y].
        term = np.tensordot(placed, tap, (range(free_x, free_x + dots), range(free_y, free_y + dots)))
        last = range(free_x + rank, free_x + rank + free_y)
        result = result + np.moveaxis(term, last, range(free_x, free_x + free_y))
    return result[(Ellipsis, *[_window(mode, n, k) for n, k in zip(sizes, kernel, strict=True)])]


def _arranged(x: Any, axes: Sequence[int], dot_axes: Sequence[int]) -> tuple[Any, int]:
    """The free dimensions first, then those contracted, then those convolved; and how many are free."""
    free = [d for d in range(np.ndim(x)) if d not in {*axes, *dot_axes}]
    return np.transpose(x, [*free, *dot_axes, *axes]), len(free)


def _window(mode: str, size: int, kernel: int) -> slice:
    match mode:
        case "valid":
            return slice(kernel - 1, size)
        case "same":
            return slice((kernel - 1) // 2, (kernel - 1) // 2 + size)
    return slice(None)
