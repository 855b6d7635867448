"""np.fft: discrete Fourier transforms, of any number of axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    dtype_of,
    fail,
    here,
    normalize_axes,
    normalize_axis,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.shaping import roll
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.complex_parts import Conj, whole_dtype
from rematc.ir.ops.fourier import Fft
from rematc.ir.ops.shape import inverse
from rematc.ir.types import F16, F32, F64
from rematc.ir.values import Value

_AT_ONCE = 3
_NORMS = ("backward", "ortho", "forward")


def _real(x: Value, what: str) -> Value:
    """Real numbers in an element type with transforms: float32 or float64."""
    if x.type.dtype.is_complex:
        fail(f"{what} takes real numbers, got {x.type}; use np.fft.fft, or the real part x.real")
    if x.type.dtype is F32 or (x.type.dtype.is_float and x.type.dtype.bits < F32.bits):
        return here().convert(x, F32)
    return here().convert(x, F64)


def _complex(x: Value) -> Value:
    if x.type.dtype.is_complex:
        return x
    dtype = whole_dtype(_real(x, "np.fft").type.dtype)
    assert dtype is not None, "float32 and float64 are parts of complex numbers"
    return here().convert(x, dtype)


def _resized(x: Value, axis: int, size: int) -> Value:
    """Cut off behind, or filled up with zeros."""
    b, found = here(), x.type.shape[axis]
    high = [size - found if d == axis else 0 for d in range(x.type.rank)]
    return b.pad(x, b.zeros(x.type.with_shape(())), [0] * x.type.rank, high)


def _transformed(x: Value, kind: str, axes: Sequence[int], lengths: Sequence[int]) -> Value:
    """One transform of up to three axes."""
    b, rank = here(), x.type.rank
    order = (*[d for d in range(rank) if d not in axes], *axes)
    return b.transpose(b.emit1(Fft(kind, tuple(lengths)), b.transpose(x, order)), inverse(order))


def _all_complex(x: Value, kind: str, axes: Sequence[int]) -> Value:
    """FFT or IFFT of any number of axes, three at a time."""
    for start in range(0, len(axes), _AT_ONCE):
        chosen = axes[start : start + _AT_ONCE]
        x = _transformed(x, kind, chosen, [x.type.shape[axis] for axis in chosen])
    return x


def _scaled(x: Value, norm: object, is_inverse: bool, count: int) -> Value:
    """`x`, which is unscaled forwards and divided by `count` backwards, as `norm` has it."""
    name = "backward" if norm is None else norm
    if name not in _NORMS:
        fail(f"np.fft has the norms {', '.join(_NORMS)}, got {norm!r}")
    if name == "backward":
        return x
    whole = count if is_inverse else 1 / count
    return here().scale(x, math.sqrt(whole) if name == "ortho" else whole)


def _apply(x: Value, kind: str, axes: Sequence[int], sizes: Sequence[int], norm: object) -> Value:
    """The transform of `kind` over `axes`; `sizes` are those of the real or complex array in question."""
    if min(sizes) < 1:
        fail(f"np.fft takes at least one element along each axis, got the sizes {tuple(sizes)}")
    taken = [*sizes[:-1], sizes[-1] // 2 + 1] if kind == "IRFFT" else sizes
    for axis, size in zip(axes, taken, strict=True):
        x = _resized(x, axis, size)
    near, far = tuple(axes[-_AT_ONCE:]), tuple(axes[:-_AT_ONCE])
    if kind == "RFFT":
        x = _all_complex(_transformed(x, kind, near, sizes[-len(near) :]), "FFT", far)
    elif kind == "IRFFT":
        x = _transformed(_all_complex(x, "IFFT", far), kind, near, sizes[-len(near) :])
    else:
        x = _all_complex(x, kind, axes)
    return _scaled(x, norm, kind in ("IFFT", "IRFFT"), math.prod(sizes))


def _prepared(a: ArrayLike, kind: str, what: str) -> Value:
    return _real(value_of(a), what) if kind == "RFFT" else _complex(value_of(a))


def _of_one_axis(kind: str) -> Callable[..., Tracer]:
    what = f"np.fft.{kind.lower()}"

    def apply(a: ArrayLike, n: object = None, axis: object = -1, norm: object = None) -> Tracer:
        x = _prepared(a, kind, what)
        along = normalize_axis(axis, x.type.rank, what)
        own = x.type.shape[along]
        default = 2 * (own - 1) if kind == "IRFFT" else own
        found = _apply(x, kind, [along], [default if n is None else static_int(n, f"n of {what}")], norm)
        return wrap(here().convert(found, F16) if kind == "IRFFT" and _is_half(a) else found)

    return apply


def _is_half(a: ArrayLike) -> bool:
    """Whether NumPy gives the real result in half precision."""
    return dtype_of(a) == np.float16


def _of_axes(kind: str, what: str, default_axes: tuple[int, ...] | None) -> Callable[..., Tracer]:
    def apply(a: ArrayLike, s: object = None, axes: object = default_axes, norm: object = None) -> Tracer:
        x = _prepared(a, kind, what)
        given = [static_int(size, f"s of {what}") for size in s] if isinstance(s, (tuple, list)) else None
        if axes is None and given is not None:
            axes = tuple(range(-len(given), 0))
        chosen = normalize_axes(axes, x.type.rank, what)
        if given is not None and len(given) != len(chosen):
            fail(f"{what} got {len(given)} sizes for {len(chosen)} axes")
        if not chosen:
            fail(f"{what} takes at least one axis")
        sizes = [x.type.shape[axis] for axis in chosen]
        if kind == "IRFFT":
            sizes[-1] = 2 * (sizes[-1] - 1)
        # -1 is the array's own size.
        sizes = [own if size == -1 else size for own, size in zip(sizes, given or sizes, strict=True)]
        return wrap(_apply(x, kind, chosen, sizes, norm))

    return apply


_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _opposite(norm: object) -> object:
    """The norm of a transform in the other direction."""
    return _OPPOSITE.get(norm, norm) if norm is None or isinstance(norm, str) else norm


def hfft(a: ArrayLike, n: object = None, axis: object = -1, norm: object = None) -> Tracer:
    """As np.fft.hfft: the transform of a signal that equals its reversed conjugate, which is real."""
    conjugate = here().emit1(Conj(), _complex(value_of(a)))
    found = _of_one_axis("IRFFT")(wrap(conjugate), n, axis, _opposite(norm))
    return wrap(here().convert(found.value, F16)) if _is_half(a) else found


def ihfft(a: ArrayLike, n: object = None, axis: object = -1, norm: object = None) -> Tracer:
    """As np.fft.ihfft, the inverse of hfft."""
    spectrum = _of_one_axis("RFFT")(a, n, axis, _opposite(norm)).value
    return wrap(here().emit1(Conj(), spectrum))


def _shift(direction: int, what: str) -> Callable[..., Tracer]:
    """Halves of axes exchanged; of an odd number of elements the greater half first, or back."""

    def apply(x: ArrayLike, axes: object = None) -> Tracer:
        shape = value_of(x).type.shape
        chosen = normalize_axes(axes, len(shape), what)
        return roll(x, tuple([direction * (shape[axis] // 2) for axis in chosen]), chosen)

    return apply


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.fft.fft: _of_one_axis("FFT"),
    np.fft.ifft: _of_one_axis("IFFT"),
    np.fft.rfft: _of_one_axis("RFFT"),
    np.fft.irfft: _of_one_axis("IRFFT"),
    np.fft.hfft: hfft,
    np.fft.ihfft: ihfft,
    np.fft.fft2: _of_axes("FFT", "np.fft.fft2", (-2, -1)),
    np.fft.ifft2: _of_axes("IFFT", "np.fft.ifft2", (-2, -1)),
    np.fft.rfft2: _of_axes("RFFT", "np.fft.rfft2", (-2, -1)),
    np.fft.irfft2: _of_axes("IRFFT", "np.fft.irfft2", (-2, -1)),
    np.fft.fftn: _of_axes("FFT", "np.fft.fftn", None),
    np.fft.ifftn: _of_axes("IFFT", "np.fft.ifftn", None),
    np.fft.rfftn: _of_axes("RFFT", "np.fft.rfftn", None),
    np.fft.irfftn: _of_axes("IRFFT", "np.fft.irfftn", None),
    np.fft.fftshift: _shift(1, "np.fft.fftshift"),
    np.fft.ifftshift: _shift(-1, "np.fft.ifftshift"),
}
