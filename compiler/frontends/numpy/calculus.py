"""Gradients of sampled functions, interpolation, angles unwrapped, and functions applied along axes.

The parameters are those of the NumPy functions of the same names. They are written in NumPy: its functions trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    fail,
    normalize_axes,
    normalize_axis,
    shape_of,
    value_of,
    wrap,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.types import F64

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any


def gradient(f: ArrayLike, *varargs: ArrayLike, axis: object = None, edge_order: int = 1) -> object:
    """As np.gradient: central differences, and one-sided ones at the edges."""
    x: Traced = wrap(value_of(f))
    if not np.issubdtype(x.dtype, np.inexact):
        x = x.astype(np.float64)
    axes = normalize_axes(axis, x.ndim, "np.gradient")
    spacings: list[Traced] = [as_operand(given) for given in varargs] or [1.0]
    if len(spacings) == 1 and len(shape_of(spacings[0])) == 0:
        spacings = spacings * len(axes)
    if len(spacings) != len(axes):
        fail(f"np.gradient got {len(varargs)} spacings for {len(axes)} axes")
    for along in axes:
        if x.shape[along] < edge_order + 1:
            fail(f"np.gradient with edge_order {edge_order} needs {edge_order + 1} elements, axis {along} is shorter")
    results = [_slope(x, along, h, edge_order) for along, h in zip(axes, spacings, strict=True)]
    return results[0] if len(results) == 1 else tuple(results)


def _slope(x: Traced, axis: int, spacing: Traced, edge_order: int) -> Traced:
    y = np.moveaxis(x, axis, -1)
    size = y.shape[-1]
    if len(shape_of(spacing)) == 0:
        widths: Traced = spacing * np.ones(size - 1, y.dtype)
        inner = (y[..., 2:] - y[..., :-2]) / (2.0 * spacing)
    else:
        if shape_of(spacing) != (size,):
            fail(f"np.gradient: places of shape {shape_of(spacing)} for an axis of size {size}")
        widths = np.diff(spacing)
        before, after = widths[:-1], widths[1:]
        inner = (
            -(after / (before * (before + after))) * y[..., :-2]
            + (after - before) / (before * after) * y[..., 1:-1]
            + before / (after * (before + after)) * y[..., 2:]
        )
    if edge_order == 1:
        first = (y[..., 1:2] - y[..., :1]) / widths[0]
        last = (y[..., -1:] - y[..., -2:-1]) / widths[-1]
    else:
        first = _edge(y[..., 0:1], y[..., 1:2], y[..., 2:3], (widths[0], widths[1]))
        last = -_edge(y[..., -1:], y[..., -2:-1], y[..., -3:-2], (widths[-1], widths[-2]))
    return np.moveaxis(np.concatenate([first, inner, last], -1), -1, axis)


def _edge(y0: Traced, y1: Traced, y2: Traced, steps: tuple[Traced, Traced]) -> Traced:
    """The slope at y0 of the parabola through three points, `steps` apart."""
    near, far = steps
    return (
        -(2.0 * near + far) / (near * (near + far)) * y0
        + (near + far) / (near * far) * y1
        - near / (far * (near + far)) * y2
    )


def unwrap(p: ArrayLike, discont: object = None, axis: object = -1, *, period: float = 2 * np.pi) -> Traced:
    """As np.unwrap: jumps of more than half a period become their complement."""
    x: Traced = wrap(value_of(p))
    along = normalize_axis(axis, x.ndim, "np.unwrap")
    steps: Traced = np.diff(x, axis=along)
    half = period / 2
    least: Traced = half if discont is None else discont
    is_whole = np.issubdtype(np.result_type(steps.dtype, type(period)), np.integer)
    low: Traced = -(period // 2) if is_whole else -half
    wrapped = (steps - low) % period + low
    if not is_whole or period % 2 == 0:
        wrapped = np.where((wrapped == low) & (steps > 0), half if not is_whole else period // 2, wrapped)
    correction = np.where(np.abs(steps) < least, 0, wrapped - steps)
    head = [slice(None)] * x.ndim
    tail = list(head)
    head[along], tail[along] = slice(0, 1), slice(1, None)
    moved: Traced = x[tuple(tail)] + np.cumsum(correction, axis=along)
    return np.concatenate([x[tuple(head)], moved], axis=along)


def apply_along_axis(
    func1d: Callable[..., Traced], axis: object, arr: ArrayLike, *args: object, **kwargs: object
) -> Traced:
    """As np.apply_along_axis: `func1d` is traced once for each line."""
    x: Traced = wrap(value_of(arr))
    along = normalize_axis(axis, x.ndim, "np.apply_along_axis")
    lines = np.moveaxis(x, along, -1)
    outer = lines.shape[:-1]
    if 0 in outer:
        fail(f"np.apply_along_axis over no lines: the array has shape {x.shape}")
    results: list[Traced] = [func1d(lines[index], *args, **kwargs) for index in np.ndindex(outer)]
    inner = shape_of(as_operand(results[0]))
    if not inner:
        return np.reshape(np.stack(results), outer)
    whole = np.reshape(np.stack(results), (*outer, *inner))
    count, rank = len(inner), len(outer)
    return np.moveaxis(whole, range(rank, rank + count), range(along, along + count))


def apply_over_axes(func: Callable[..., Traced], a: ArrayLike, axes: object) -> Traced:
    """As np.apply_over_axes: the dimensions that `func` reduces stay, with size 1."""
    x: Traced = wrap(value_of(a))
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        along = normalize_axis(axis, x.ndim, "np.apply_over_axes")
        result = func(x, along)
        x = np.expand_dims(result, along) if result.ndim < x.ndim else result
    return x


def piecewise(x: ArrayLike, condlist: ArrayLike, funclist: Sequence[object], *args: object, **kwargs: object) -> Traced:
    """As np.piecewise: every function is computed everywhere, and chosen where its condition holds."""
    at: Traced = wrap(value_of(x))
    conditions = _conditions(condlist)
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        fail(f"np.piecewise has {len(conditions)} conditions and {len(funclist)} functions")
    values: list[Traced] = [f(at, *args, **kwargs) if callable(f) else f for f in funclist]
    default = values[len(conditions)] if len(values) > len(conditions) else 0
    result: Traced = np.broadcast_to(default, at.shape)
    # Where several conditions hold, NumPy's last one wins.
    for condition, value in zip(conditions, values, strict=False):
        result = np.where(condition, value, result)
    return result.astype(at.dtype)


def _conditions(condlist: ArrayLike) -> list[Traced]:
    if isinstance(condlist, (list, tuple)) and condlist and len(shape_of(as_operand(condlist[0]))) > 0:
        return list(condlist)
    if isinstance(condlist, (list, tuple)) and all(len(shape_of(as_operand(item))) == 0 for item in condlist):
        return list(condlist)
    whole: Traced = as_operand(condlist)
    return list(whole) if len(shape_of(whole)) > 1 else [whole]


def choose(a: ArrayLike, choices: Sequence[ArrayLike], out: None = None, mode: str = "raise") -> Traced:
    """As np.choose; mode "raise" clamps, for compiled code cannot raise."""
    index: Traced = as_operand(a)
    items: list[Traced] = list(choices)
    last = len(items) - 1
    if mode not in ("raise", "wrap", "clip"):
        fail(f"np.choose takes the modes raise, wrap and clip, got {mode!r}")
    index = index % len(items) if mode == "wrap" else np.clip(index, 0, last)
    result: Traced = items[0]
    for place in range(1, len(items)):
        result = np.where(index == place, items[place], result)
    return np.broadcast_to(result, np.broadcast_shapes(shape_of(index), shape_of(result))).copy()


def insert(arr: ArrayLike, obj: object, values: ArrayLike, axis: object = None) -> Traced:
    """As np.insert, at places known while tracing."""
    if isinstance(obj, Tracer):
        fail("np.insert takes places that are known while tracing; use rematc.numpy.at_set for traced ones")
    x: Traced = wrap(value_of(arr))
    if axis is None:
        x, axis = np.ravel(x), 0
    along = normalize_axis(axis, x.ndim, "np.insert")
    size = x.shape[along]
    new: Traced = as_operand(values)
    if not isinstance(new, Tracer):
        new = np.asarray(new)
    new = np.reshape(new, (1,) * (x.ndim - new.ndim) + new.shape)
    where: Any = obj
    places = np.arange(size)[obj] if isinstance(obj, slice) else np.asarray(where)
    if places.ndim == 0:
        # At one place the values are a block, whose first dimension goes along the axis.
        new = np.moveaxis(new, 0, along)
        count = new.shape[along]
    else:
        count = int(places.sum()) if places.dtype == np.bool_ else places.size
    # NumPy tells where everything goes: new elements are numbered after the old ones.
    order = np.insert(np.arange(size), where, size + np.arange(count))
    line: Traced = np.moveaxis(x, along, 0)
    added = np.broadcast_to(np.moveaxis(new, along, 0), (count, *line.shape[1:])).astype(line.dtype)
    return np.moveaxis(np.concatenate([line, added], 0)[order], 0, along)


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike = None,
    right: ArrayLike = None,
    period: ArrayLike = None,
) -> Traced:
    """As np.interp: the piece of the line is found by bisection, so its derivative is the piece's slope."""
    at: Traced = wrap(value_of(x, F64))
    knots: Traced = wrap(value_of(xp, F64))
    heights: Traced = wrap(value_of(fp))
    heights = heights.astype(np.complex128 if np.iscomplexobj(heights) else np.float64)
    if knots.ndim != 1 or heights.shape != knots.shape or not knots.size:
        fail(f"np.interp: knots of shape {knots.shape} and values of shape {heights.shape}")
    if period is not None:
        left = right = None
        at, knots, heights = _over_a_period(at, knots, heights, period)
    if knots.size == 1:
        found: Traced = np.broadcast_to(heights[0], at.shape)
    else:
        found = _on_the_line(at, knots, heights)
    first: Traced = heights[0] if left is None else left
    last: Traced = heights[-1] if right is None else right
    found = np.where(at < knots[0], first, found)
    found = np.where(at > knots[-1], last, found)
    return found.astype(heights.dtype)


def _on_the_line(at: Traced, knots: Traced, heights: Traced) -> Traced:
    last = knots.size - 1
    piece = np.clip(np.searchsorted(knots, at, "right") - 1, 0, last - 1)
    widths = knots[1:] - knots[:-1]
    # Two knots at one place have no line between them, and nothing lies there.
    slopes = (heights[1:] - heights[:-1]) / np.where(widths == 0, 1, widths)
    line = slopes[piece] * (at - knots[piece]) + heights[piece]
    return np.where(at == knots[-1], heights[-1] + slopes[-1] * (at - knots[-1]), line)


def _over_a_period(at: Traced, knots: Traced, heights: Traced, period: Traced) -> tuple[Traced, Traced, Traced]:
    """Everything within one period, and a knot of the neighbouring ones on either side."""
    length: Traced = np.abs(period)
    at, knots = at % length, knots % length
    order = np.argsort(knots)
    knots, heights = knots[order], heights[order]
    knots = np.concatenate([knots[-1:] - length, knots, knots[:1] + length])
    return at, knots, np.concatenate([heights[-1:], heights, heights[:1]])


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.gradient: gradient,
    np.unwrap: unwrap,
    np.apply_along_axis: apply_along_axis,
    np.apply_over_axes: apply_over_axes,
    np.piecewise: piecewise,
    np.choose: choose,
    np.insert: insert,
    np.interp: interp,
}
