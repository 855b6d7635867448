"""np.pad, and the convolutions and correlations of vectors that are built on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    dispatching,
    fail,
    here,
    promote,
    shape_of,
    slice_along,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.products import contract_values
from rematc.compiler.frontends.numpy.shaping import sliding_window_view
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.matrices import conjugate
from rematc.ir.ops.rounding import RoundNearestEven
from rematc.ir.values import Value

Widths = list[tuple[int, int]]


def pad(array: ArrayLike, pad_width: object, mode: object = "constant", **options: Any) -> Tracer:
    """As np.pad, in every mode that has a name."""
    x = value_of(array)
    widths = _widths(pad_width, x.type.rank)
    if mode not in _OPTIONS:
        found = f"mode={mode!r}" if isinstance(mode, str) else "a function that writes into its argument"
        fail(f"np.pad with {found} is not supported; the modes are {', '.join(sorted(_OPTIONS))}")
    unknown = options.keys() - {_OPTIONS[str(mode)]}
    if unknown:
        fail(f"np.pad(mode={mode!r}) takes no {next(iter(unknown))}=...; leave it out")
    if mode in ("constant", "empty"):
        return wrap(_pad_constant(x, widths, options.get("constant_values", 0)))
    for axis, (before, after) in enumerate(widths):
        if x.type.shape[axis] == 0 and before + after:
            fail(f"np.pad with mode={mode!r} cannot extend axis {axis}, which is empty")
    return wrap(_extended(x, widths, str(mode), options))


def _extended(x: Value, widths: Widths, mode: str, options: dict[str, Any]) -> Value:
    """One axis after the other, each over what is there by then."""
    rank = x.type.rank
    lengths = _pairs(options.get("stat_length"), rank)
    ends = _pairs(options.get("end_values", 0), rank)
    kind = options.get("reflect_type", "even")
    if kind not in ("even", "odd"):
        fail(f"np.pad takes the reflect types even and odd, got {kind!r}")
    for axis, (before, after) in enumerate(widths):
        if not before + after:
            continue
        match mode:
            case "edge":
                x = _repeated(x, axis, before, after, _edges(x, axis))
            case "wrap":
                x = _wrapped(x, axis, before, after)
            case "reflect" | "symmetric":
                x = _mirrored(x, axis, before, after, int(mode == "reflect"), kind == "odd")
            case "linear_ramp":
                x = _ramped(x, axis, before, after, ends[axis])
            case _:
                x = _repeated(x, axis, before, after, _statistics(x, axis, mode, lengths[axis]))
    return x


#: The modes, and the option that each takes.
_OPTIONS = {
    "constant": "constant_values",
    "empty": "",
    "edge": "",
    "wrap": "",
    "reflect": "reflect_type",
    "symmetric": "reflect_type",
    "linear_ramp": "end_values",
    **dict.fromkeys(["maximum", "minimum", "mean", "median"], "stat_length"),
}


def _pairs(given: Any, rank: int) -> list[tuple[Any, Any]]:
    """What NumPy broadcasts to (before, after) pairs, one an axis; of None, pairs of None."""
    if given is None:
        return [(None, None)] * rank
    whole: Any = as_operand(given)
    if not isinstance(whole, Tracer):
        whole = np.asarray(whole)
    return [(row[0], row[1]) for row in np.broadcast_to(whole, (rank, 2))]


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


def _pad_constant(x: Value, widths: Widths, constants: Any) -> Value:
    b, rank = here(), x.type.rank
    if not shape_of(constants):
        fill = b.reshape(value_of(constants, x.type.dtype), ())
        return b.pad(x, fill, [before for before, _ in widths], [after for _, after in widths])
    none = [0] * rank
    for axis, pair in enumerate(_pairs(constants, rank)):
        for side, width in enumerate(widths[axis]):
            edges = [width if d == axis else 0 for d in range(rank)]
            fill = value_of(pair[side], x.type.dtype)
            x = b.pad(x, fill, edges, none) if side == 0 else b.pad(x, fill, none, edges)
    return x


def _joined(x: Value, axis: int, before: Value | None, after: Value | None) -> Value:
    return here().concatenate([part for part in (before, x, after) if part is not None], axis)


def _repeated(x: Value, axis: int, before: int, after: int, lines: tuple[Value, Value]) -> Value:
    """An extension by one line on either side, repeated."""
    b = here()

    def spread(line: Value, width: int) -> Value | None:
        shape = [width if d == axis else size for d, size in enumerate(x.type.shape)]
        return b.broadcast_in_dim(line, shape, range(x.type.rank)) if width else None

    return _joined(x, axis, spread(lines[0], before), spread(lines[1], after))


def _edges(x: Value, axis: int) -> tuple[Value, Value]:
    size = x.type.shape[axis]
    return slice_along(x, axis, 0, 1), slice_along(x, axis, size - 1, size)


def _statistics(x: Value, axis: int, mode: str, lengths: tuple[Any, Any]) -> tuple[Value, Value]:
    """A statistic of so many elements at either end; of all for None."""
    size = x.type.shape[axis]
    low, high = [size if length is None else min(int(length), size) for length in lengths]
    if min(low, high) < 1:
        fail(f"np.pad(mode={mode!r}) takes statistics of at least one element, got stat_length {min(low, high)}")
    first = _statistic(slice_along(x, axis, 0, low), axis, mode)
    return first, first if low == high == size else _statistic(slice_along(x, axis, size - high, size), axis, mode)


def _statistic(x: Value, axis: int, mode: str) -> Value:
    function: Any = {"maximum": np.max, "minimum": np.min, "mean": np.mean, "median": np.median}[mode]
    found: Value = function(wrap(x), axis=axis, keepdims=True).value
    b = here()
    if found.type.dtype.is_float and not x.type.dtype.is_inexact:
        found = b.emit1(RoundNearestEven(), found)
    return b.convert(found, x.type.dtype)


def _ramped(x: Value, axis: int, before: int, after: int, ends: tuple[Any, Any]) -> Value:
    """Straight lines from the edges to values at the far ends."""
    sides = []
    for line, end, width in zip(_edges(x, axis), ends, (before, after), strict=True):
        edge = wrap(here().reshape(line, [size for d, size in enumerate(line.type.shape) if d != axis]))
        dtype = x.type.dtype.numpy
        ramp: Any = dispatching.linspace(end, edge, width, endpoint=False, dtype=dtype, axis=axis)
        sides.append(ramp.value if width else None)
    return _joined(x, axis, sides[0], None if sides[1] is None else here().reverse(sides[1], (axis,)))


def _mirrored(x: Value, axis: int, before: int, after: int, skip: int, is_odd: bool) -> Value:
    """Reflection about the edge elements (skip = 1) or about the edges themselves (skip = 0)."""
    if x.type.shape[axis] == skip:
        return _repeated(x, axis, before, after, _edges(x, axis))
    while before or after:
        # Each round reflects at most one length of what is there already.
        size = x.type.shape[axis]
        now_before, now_after = min(before, size - skip), min(after, size - skip)
        first, last = _edges(x, axis)
        stop = size - skip
        head = _reflection(slice_along(x, axis, skip, skip + now_before), axis, first if is_odd else None)
        if is_odd and head is not None:
            x, stop, size = _joined(x, axis, head, None), stop + now_before, size + now_before
            head = None
        tail = _reflection(slice_along(x, axis, stop - now_after, stop), axis, last if is_odd else None)
        x = _joined(x, axis, head, tail)
        before, after = before - now_before, after - now_after
    return x


def _reflection(part: Value, axis: int, edge: Value | None) -> Value | None:
    """The part in reverse order, and for odd reflections mirrored at the edge's value too; None of nothing."""
    if not part.type.shape[axis]:
        return None
    b = here()
    turned = b.reverse(part, (axis,))
    if edge is None:
        return turned
    middle = b.broadcast_in_dim(edge, turned.type.shape, range(turned.type.rank))
    return b.subtract(b.add(middle, middle), turned)


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


def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Tracer:
    """As np.convolve: windows of the padded signal times the reversed kernel."""
    (x, kernel), _ = promote(a, v)
    x, kernel = [here().reshape(side, side.type.shape or (1,)) for side in (x, kernel)]
    if x.type.rank != 1 or kernel.type.rank != 1 or not x.type.size or not kernel.type.size:
        fail(f"np.convolve takes vectors of at least one element, got shapes {x.type.shape} and {kernel.type.shape}")
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
