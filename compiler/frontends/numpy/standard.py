"""Functions of `rematc.numpy` that take more than NumPy's: what the Python array API standard adds to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import ArrayLike, as_operand, dispatching, shape_of
from rematc.compiler.tracing.trace import Tracer

# The arrays here are tracers, or arrays, which NumPy's types do not know to be either.
Traced = Any


def clip(
    a: ArrayLike,
    /,
    min: ArrayLike = None,
    max: ArrayLike = None,
    out: Any = None,
    *,
    a_min: ArrayLike = None,
    a_max: ArrayLike = None,
    **options: Any,
) -> Traced:
    """As np.clip; the bounds have the standard's names, too."""
    low, high = min if a_min is None else a_min, max if a_max is None else a_max
    return dispatching.clip(as_operand(a), as_operand(low), as_operand(high), out=out, **options)


def sort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Traced:
    """As np.sort; with `descending` from the greatest element on, NaNs first."""
    found: Traced = dispatching.sort(as_operand(a), axis, kind, order, stable=stable)
    return np.flip(found, 0 if axis is None else axis) if descending else found


def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Traced:
    """As np.argsort; with `descending` from the greatest element on, equal ones in the order that they have."""
    x: Traced = as_operand(a)
    if not descending:
        return np.argsort(x, axis, kind, order, stable=stable)
    x = np.ravel(x) if axis is None else x
    along = range(len(shape_of(x)))[0 if axis is None else axis]
    # The last of equals in the array turned round is the first of them.
    turned = np.argsort(np.flip(x, along), along, kind, order, stable=True if stable is None else stable)
    return shape_of(x)[along] - 1 - np.flip(turned, along)


def finfo(type: Any) -> Any:
    """As np.finfo, also of arrays."""
    return np.finfo(type.dtype if isinstance(type, (np.ndarray, Tracer)) else type)


def iinfo(type: Any) -> Any:
    """As np.iinfo, also of arrays."""
    return np.iinfo(type.dtype if isinstance(type, (np.ndarray, Tracer)) else type)


def _frequencies(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(n: int, d: float = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
        found = function(n, d, device)
        return found if dtype is None else found.astype(dtype)

    apply.__name__ = function.__name__
    apply.__doc__ = f"As np.fft.{function.__name__}, in a dtype."
    return apply


FUNCTIONS: dict[str, Callable[..., object]] = {
    "clip": clip,
    "sort": sort,
    "argsort": argsort,
    "finfo": finfo,
    "iinfo": iinfo,
}
FFT_FUNCTIONS: dict[str, Callable[..., object]] = {
    "fftfreq": _frequencies(np.fft.fftfreq),
    "rfftfreq": _frequencies(np.fft.rfftfreq),
}
