"""np.pad, and the convolutions and correlations of vectors that are built on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.numpy.operands import ArrayLike, fail, here, promote, slice_along, static_int, value_of, wrap
from rematc.compiler.numpy.products import contract_values
from rematc.compiler.numpy.shaping import sliding_window_view
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.core import Value
from rematc.ir.ops import reduction
from rematc.ir.ops.matrices import conjugate

Widths = list[tuple[int, int]]


def pad(array: ArrayLike, pad_width: object, mode: object = "constant", **options: object) -> Tracer:
    """As np.pad, in the modes constant, edge, reflect, symmetric, wrap, maximum, minimum, mean and empty."""
    x = value_of(array)
    widths = _widths(pad_width, x.type.rank)
    if mode in ("constant", "empty"):
        return wrap(_pad_constant(x, widths, options.pop("constant_values", 0)))
    extend = _MODES.get(mode) if isinstance(mode, str) else None
    if extend is None or options:
        what = f"mode={mode!r}" if extend is None else f"{next(iter(options))}=..."
        fail(f"np.pad with {what} is not supported; the modes are constant, {', '.join(sorted(_MODES))}")
    for axis, (before, after) in enumerate(widths):
        if x.type.shape[axis] == 0 and before + after:
            fail(f"np.pad with mode={mode!r} cannot extend axis {axis}, which is empty")
        x = extend(x, axis, before, after) if before + after else x
    return wrap(x)


def _widths(pad_width: object, rank: int) -> Widths:
    if isinstance(pad_width, dict):
        by_axis = {axis % rank: np.broadcast_to(np.asarray(width), (2,)) for axis, width in pad_width.items()}
        given = [by_axis.get(axis, (0, 0)) for axis in range(rank)]
    else:
        given = list(np.broadcast_to(np.asarray(pad_width), (rank, 2)))
    widths = [(static_int(low, "width of np.pad"), static_int(high, "width of np.pad")) for low, high in given]
    if any(min(pair) < 0 for pair in widths):
        fail("np.pad takes no negative widths; slice the array instead")
    return widths


def _pad_constant(x: Value, widths: Widths, constants: object) -> Value:
    b, rank = here(), x.type.rank
    low, high = [before for before, _ in widths], [after for _, after in widths]
    if isinstance(constants, Tracer) or np.ndim(constants) == 0:  # type: ignore[arg-type]  # a number or nested pairs
        fill = b.reshape(value_of(constants, x.type.dtype), ())
        return b.pad(x, fill, low, high)
    pairs = np.broadcast_to(np.asarray(constants), (rank, 2))
    for axis in range(rank):
        for side, width in enumerate(widths[axis]):
            edges = [width if d == axis else 0 for d in range(rank)]
            fill = value_of(pairs[axis, side], x.type.dtype)
            none = [0] * rank
            x = b.pad(x, fill, edges, none) if side == 0 else b.pad(x, fill, none, edges)
    return x


def _joined(x: Value, axis: int, before: Value | None, after: Value | None) -> Value:
    return here().concatenate([part for part in (before, x, after) if part is not None], axis)


def _repeated(reduce: Callable[[Value, int], tuple[Value, Value]]) -> Callable[[Value, int, int, int], Value]:
    """An extension by one value a line on either side."""

    def extend(x: Value, axis: int, before: int, after: int) -> Value:
        b = here()
        first, last = reduce(x, axis)

        def spread(line: Value, width: int) -> Value | None:
            shape = [width if d == axis else size for d, size in enumerate(x.type.shape)]
            return b.broadcast_in_dim(line, shape, range(x.type.rank)) if width else None

        return _joined(x, axis, spread(first, before), spread(last, after))

    return extend


def _edges(x: Value, axis: int) -> tuple[Value, Value]:
    size = x.type.shape[axis]
    return slice_along(x, axis, 0, 1), slice_along(x, axis, size - 1, size)


def _statistic(make: Callable[[Value, tuple[int, ...]], Value]) -> Callable[[Value, int], tuple[Value, Value]]:
    def reduce(x: Value, axis: int) -> tuple[Value, Value]:
        b = here()
        line = b.reshape(make(x, (axis,)), [1 if d == axis else size for d, size in enumerate(x.type.shape)])
        return line, line

    return reduce


def _maximum(x: Value, axes: tuple[int, ...]) -> Value:
    return here().reduce_max(x, axes)


def _minimum(x: Value, axes: tuple[int, ...]) -> Value:
    return here().emit1(reduction.ReduceMin(axes), x)


def _mean(x: Value, axes: tuple[int, ...]) -> Value:
    b = here()
    if not x.type.dtype.is_inexact:
        fail("np.pad(mode='mean') of integers rounds; convert with astype(float) first")
    total = b.reduce_sum(x, axes)
    return b.divide(total, b.full(total.type, x.type.shape[axes[0]]))


def _mirrored(skip: int) -> Callable[[Value, int, int, int], Value]:
    """Reflection about the edge elements (skip = 1) or about the edges themselves (skip = 0)."""

    def extend(x: Value, axis: int, before: int, after: int) -> Value:
        period = x.type.shape[axis] - skip
        if period == 0:
            return _repeated(_edges)(x, axis, before, after)
        while before or after:
            # Each round reflects at most one length of what is there already.
            size = x.type.shape[axis]
            now_before, now_after = min(before, size - skip), min(after, size - skip)
            b = here()
            head = b.reverse(slice_along(x, axis, skip, skip + now_before), (axis,)) if now_before else None
            stop = size - skip
            tail = b.reverse(slice_along(x, axis, stop - now_after, stop), (axis,)) if now_after else None
            x = _joined(x, axis, head, tail)
            before, after = before - now_before, after - now_after
        return x

    return extend


def _wrapped(x: Value, axis: int, before: int, after: int) -> Value:
    size = x.type.shape[axis]
    while before or after:
        now_before, now_after = min(before, size), min(after, size)
        length = x.type.shape[axis]
        # The ends of what is there already are whole periods.
        head = slice_along(x, axis, size - now_before, size) if now_before else None
        tail = slice_along(x, axis, length - size, length - size + now_after) if now_after else None
        x = _joined(x, axis, head, tail)
        before, after = before - now_before, after - now_after
    return x


_MODES: dict[str, Callable[[Value, int, int, int], Value]] = {
    "edge": _repeated(_edges),
    "reflect": _mirrored(1),
    "symmetric": _mirrored(0),
    "wrap": _wrapped,
    "maximum": _repeated(_statistic(_maximum)),
    "minimum": _repeated(_statistic(_minimum)),
    "mean": _repeated(_statistic(_mean)),
}


def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Tracer:
    """As np.convolve: windows of the padded signal times the reversed kernel."""
    (x, kernel), _ = promote(a, v)
    if x.type.rank != 1 or kernel.type.rank != 1:
        fail(f"np.convolve takes vectors, got shapes {x.type.shape} and {kernel.type.shape}")
    if kernel.type.size > x.type.size:
        x, kernel = kernel, x
    return wrap(_windowed_product(x, here().reverse(kernel, (0,)), mode, "np.convolve"))


def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> Tracer:
    """As np.correlate."""
    (x, kernel), _ = promote(a, v)
    kernel = conjugate(here(), kernel)
    if x.type.rank != 1 or kernel.type.rank != 1:
        fail(f"np.correlate takes vectors, got shapes {x.type.shape} and {kernel.type.shape}")
    b = here()
    if kernel.type.size > x.type.size:
        swapped = _windowed_product(kernel, x, mode, "np.correlate")
        return wrap(b.reverse(swapped, (0,)))
    return wrap(_windowed_product(x, kernel, mode, "np.correlate"))


def _windowed_product(x: Value, kernel: Value, mode: str, what: str) -> Value:
    size, b = kernel.type.size, here()
    if mode not in {"full", "same", "valid"}:
        fail(f"{what} takes the modes full, same and valid, got {mode!r}")
    # The left margin of "same" follows NumPy: half of the kernel, rounded down.
    low, high = {"full": (size - 1, size - 1), "same": (size // 2, size - 1 - size // 2), "valid": (0, 0)}[mode]
    padded = b.pad(x, b.zeros(x.type.with_shape(())), (low,), (high,))
    windows = sliding_window_view(wrap(padded), size).value
    return contract_values(windows, kernel, ((1,), (0,)))


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.pad: pad,
    np.convolve: convolve,
    np.correlate: correlate,
}
