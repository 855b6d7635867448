"""Rows for ir/ops/fourier.py."""

from __future__ import annotations

from jax import lax

from rematc.ir.ops.fourier import Fft
from rematc.ir.types import C64, C128, F32, F64, DType
from tests.support.samples import Factory, Sample, Tolerance, normal

KINDS = {
    "FFT": lax.FftType.FFT,
    "IFFT": lax.FftType.IFFT,
    "RFFT": lax.FftType.RFFT,
    "IRFFT": lax.FftType.IRFFT,
}
SINGLE = Tolerance(2e-6, 2e-6, "terms of both signs are summed in another order")


def transforming(kind: str, lengths: tuple[int, ...], operand: Factory) -> Sample:
    def jax(x: object) -> object:
        return lax.fft(x, KINDS[kind], lengths)

    label = f"{kind}-{'x'.join(map(str, lengths))}"
    return Sample(Fft(kind, lengths), (operand,), (0,), jax, SINGLE, label=label)


def all_kinds(lengths: tuple[int, ...], real: DType, whole: DType, *lead: int) -> tuple[Sample, ...]:
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    return (
        *(transforming(kind, lengths, normal(whole, *lead, *lengths)) for kind in ("FFT", "IFFT")),
        transforming("RFFT", lengths, normal(real, *lead, *lengths)),
        transforming("IRFFT", lengths, normal(whole, *lead, *half)),
    )


SAMPLES = (
    *all_kinds((8,), F64, C128),
    *all_kinds((5,), F64, C128, 2, 3),
    *all_kinds((6,), F32, C64, 2),
    *all_kinds((3, 4), F64, C128, 2),
    *all_kinds((2, 3, 5), F64, C128),
    *all_kinds((1,), F64, C128, 2),
    *all_kinds((4, 1), F32, C64),
    Sample(Fft("FFT", (4,)), (normal(C64, 0, 4),), label="no-lines"),
)
