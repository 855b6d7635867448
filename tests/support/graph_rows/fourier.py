"""Rows for Fourier transforms."""

from __future__ import annotations

from rematc.ir.ops.fourier import Fft
from rematc.ir.types import C64, C128, F32, F64
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row


def _fft(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.rank > 0 and type.dtype in (F32, F64, C64, C128) and min(type.shape) > 0)
    if x is None:
        return ()
    lengths = x.type.shape[x.type.rank - d.integer(1, min(x.type.rank, 3)) :]
    if not x.type.dtype.is_complex:
        return d.emit(Fft("RFFT", lengths), x)
    kind = d.one_of(("FFT", "IFFT", "IRFFT"))
    if kind == "IRFFT":
        lengths = (*lengths[:-1], max(2 * (lengths[-1] - 1) + d.integer(0, 1), 1))
    return d.emit(Fft(kind, lengths), x)


ROWS = (Row((Fft,), _fft),)
