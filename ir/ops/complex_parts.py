"""Complex numbers and their parts: complex, real, imag, conj.

They are linear over the reals alone. Cotangents are paired with tangents by the bilinear product, without conjugation
(JAX's convention): the cotangent c of a complex z stands for the map t -> Re(c t), so that the gradient of a real
function of z = x + iy is df/dx - i df/dy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import COMPLEX, Elementwise, Numeric, check_arity, check_same
from rematc.ir.ops.shape import zeros_if_none
from rematc.ir.registry import register
from rematc.ir.types import C64, C128, F32, F64, DType, TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value

_PARTS = {C64: F32, C128: F64}
_WHOLES = {F32: C64, F64: C128}


def part_dtype(dtype: DType) -> DType:
    """The element type of the parts of complex numbers; of other types that type itself."""
    return _PARTS.get(dtype, dtype)


def whole_dtype(dtype: DType) -> DType | None:
    """The complex element type with parts of this type; None where there is none."""
    return dtype if dtype.is_complex else _WHOLES.get(dtype)


@register
@dataclass(frozen=True, slots=True)
class Complex(Op):
    """The complex numbers with these real and imaginary parts. Linear in both."""

    name = "complex"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    is_elementwise = True

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        check_same(self, operands)
        dtype = _WHOLES.get(operands[0].dtype)
        if dtype is None:
            raise TypeMismatchError(f"'complex' takes parts of f32 or f64 elements, got {operands[0]}")
        return (operands[0].with_dtype(dtype),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, y = operands
        result: Numeric = np.empty(x.shape, np.result_type(x.dtype, np.complex64))
        result.real, result.imag = x, y
        return (result,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        type = primals[0].type
        return (b.emit1(self, *[zeros_if_none(b, t, type) for t in tangents]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, y) = cts, operands
        if ct is None:
            return (None, None)
        return (
            b.emit1(Real(), ct) if isinstance(x, LinearOperand) else None,
            b.negate(b.emit1(Imag(), ct)) if isinstance(y, LinearOperand) else None,
        )

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)


class Part(Elementwise):
    """Family base: a real number from each complex one. The result is linear in the operand."""

    __slots__ = ()
    weight = Weight.LIGHT
    arity = 1
    kinds = COMPLEX
    no_transpose: ClassVar[str] = ""

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        (type,) = Elementwise.infer(self, operands)
        return (type.with_dtype(_PARTS[type.dtype]),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (np.array(self.evaluate(operands[0])),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else self.adjoint(b, cts[0]),)

    def adjoint(self, b: Emitter, ct: Value) -> Value:
        raise NotImplementedError

    def flops(self, operands: Types, results: Types) -> int:
        return 0


@register
@dataclass(frozen=True, slots=True)
class Real(Part):
    """The real part."""

    name = "real"

    def evaluate(self, *operands: Numeric) -> Any:
        return operands[0].real

    def adjoint(self, b: Emitter, ct: Value) -> Value:
        return b.emit1(Complex(), ct, b.zeros(ct.type))


@register
@dataclass(frozen=True, slots=True)
class Imag(Part):
    """The imaginary part: Re(-i z)."""

    name = "imag"

    def evaluate(self, *operands: Numeric) -> Any:
        return operands[0].imag

    def adjoint(self, b: Emitter, ct: Value) -> Value:
        return b.emit1(Complex(), b.zeros(ct.type), b.negate(ct))


@register
@dataclass(frozen=True, slots=True)
class Conj(Elementwise):
    """The complex conjugate; Re(c conj(t)) = Re(conj(c) t), so that it is its own transpose."""

    name = "conj"
    weight = Weight.LIGHT
    arity = 1
    kinds = COMPLEX
    no_transpose = ""

    def evaluate(self, *operands: Numeric) -> Any:
        return np.conjugate(operands[0])

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(self, cts[0]),)

    def flops(self, operands: Types, results: Types) -> int:
        return 0
