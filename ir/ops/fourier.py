"""Discrete Fourier transforms over the last dimensions (StableHLO fft)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.complex_parts import Conj, part_dtype, whole_dtype
from rematc.ir.ops.elementwise import check_arity
from rematc.ir.ops.structural import Constant
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading
from rematc.ir.types import F32, F64, TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value

_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}
_MOST_DIMENSIONS = 3


@register
@dataclass(frozen=True, slots=True)
class Fft(Op):
    """The discrete Fourier transform of the last one, two or three dimensions; linear.

    FFT is y_k = sum_j x_j e^(-2 pi i j k / n), a symmetric matrix and so its own transpose (cotangents are not
    conjugated); IFFT is its inverse. RFFT is the FFT of real x without the half that conjugation gives back: n // 2 + 1
    elements of the last dimension. IRFFT gives the real x back; the imaginary parts of elements that equal their own
    conjugates have no effect.

    Attributes:
        kind: FFT, IFFT, RFFT or IRFFT.
        lengths: sizes of the transformed dimensions; of IRFFT those of the result.
    """

    name = "fft"
    kind: str
    lengths: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        if self.kind not in _TRANSFORMS:
            raise TypeMismatchError(f"'fft' has the kinds {', '.join(_TRANSFORMS)}, got {self.kind!r}")
        if not 1 <= len(self.lengths) <= _MOST_DIMENSIONS or min(self.lengths) < 1:
            raise TypeMismatchError(f"'fft' takes one to three lengths of at least 1, got {list(self.lengths)}")
        half = (*self.lengths[:-1], self.lengths[-1] // 2 + 1)
        taken = half if self.kind == "IRFFT" else self.lengths
        given = half if self.kind == "RFFT" else self.lengths
        dtypes = (F32, F64) if self.kind == "RFFT" else tuple([whole_dtype(dtype) for dtype in (F32, F64)])
        lead = x.rank - len(taken)
        if x.dtype not in dtypes or lead < 0 or x.shape[lead:] != taken:
            listed = ",".join(["...", *map(str, taken)])
            expected = " or ".join([f"{dtype}[{listed}]" for dtype in dtypes])
            raise TypeMismatchError(f"'fft' {self.kind} of lengths {list(self.lengths)} takes {expected}, got {x}")
        whole = whole_dtype(x.dtype)
        assert whole is not None, f"{x.dtype} is one of {dtypes}"
        dtype = part_dtype(x.dtype) if self.kind == "IRFFT" else whole
        return (TensorType(dtype, (*x.shape[:lead], *given), x.on_host),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        axes = tuple(range(-len(self.lengths), 0))
        is_single = x.dtype in (np.float32, np.complex64)
        dtype = (np.float32 if is_single else np.float64) if self.kind == "IRFFT" else np.result_type(x, np.complex64)
        with np.errstate(all="ignore"):
            return (np.asarray(_TRANSFORMS[self.kind](x, self.lengths, axes)).astype(dtype),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,) = cts
        if ct is None:
            return (None,)
        if self.kind in ("FFT", "IFFT"):
            return (b.emit1(self, ct),)
        if self.kind == "RFFT":
            # Of the real part of sum_k c_k e^(-2 pi i j k / n) over half of the k: the sum of a term and its conjugate
            # is twice the real part, but for terms that are their own conjugates.
            halved = self._weighted(b, b.emit1(Conj(), ct), 0.5, float(math.prod(self.lengths)))
            return (b.emit1(Fft("IRFFT", self.lengths), halved),)
        spectrum = self._weighted(b, b.emit1(Fft("RFFT", self.lengths), ct), 2.0, 1 / math.prod(self.lengths))
        return (b.emit1(Conj(), spectrum),)

    def _weighted(self, b: Emitter, x: Value, inner: float, scale: float) -> Value:
        """`x` times `scale`, and times `inner` where an element of the last dimension has a conjugate besides."""
        n = self.lengths[-1]
        weights = np.full(n // 2 + 1, inner * scale)
        weights[0] = scale
        if n % 2 == 0:
            weights[-1] = scale
        line = b.emit1(Constant.of(weights.astype(x.type.dtype.numpy)))
        return b.multiply(x, b.broadcast_in_dim(line, x.type.shape, (x.type.rank - 1,)))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - len(self.lengths), operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        # The usual count: 5 n log2 n for n complex numbers, half of it for real ones.
        n, lead = math.prod(self.lengths), operands[0].rank - len(self.lengths)
        lines = math.prod(operands[0].shape[:lead])
        whole = 5 * n * max(n - 1, 1).bit_length() * lines
        return whole if self.kind in ("FFT", "IFFT") else whole // 2
