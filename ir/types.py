"""Types of values: element types as in StableHLO, and tensors of static shape.

Element types carry their short name (`f32`), the name StableHLO prints (`f32`, `ui8`, `complex<f32>`) and the
NumPy dtype that holds them on the host. They are interned: compare them with `is` or `==` alike.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


class Kind(enum.Enum):
    """What arithmetic an element type has."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type of StableHLO ("Types" section of its specification).

    Attributes:
        name: the short name in the IR's text and in reports.
        mlir: the spelling in StableHLO text.
        kind: which arithmetic it has.
        bits: storage of one element in bits.
        numpy: the NumPy dtype that holds it on the host.
    """

    name: str
    mlir: str
    kind: Kind
    bits: int
    numpy: np.dtype[np.generic]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return (dtype_named, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is Kind.COMPLEX

    @property
    def is_inexact(self) -> bool:
        """Whether values of this type have derivatives (floating or complex)."""
        return self.kind is Kind.FLOAT or self.kind is Kind.COMPLEX

    @property
    def is_integer(self) -> bool:
        return self.kind is Kind.INT or self.kind is Kind.UINT

    @property
    def is_bool(self) -> bool:
        return self.kind is Kind.BOOL

    @property
    def greatest(self) -> int:
        """The greatest number of a type of integers."""
        limits: Any = ml_dtypes.iinfo
        return int(limits(self.numpy).max)


def _float(name: str, mlir: str, bits: int, numpy: object) -> DType:
    return DType(name, mlir, Kind.FLOAT, bits, np.dtype(numpy))  # type: ignore[call-overload]  # numpy's overloads do not take `object`


def _int(bits: int, numpy: object) -> DType:
    return DType(f"i{bits}", f"i{bits}", Kind.INT, bits, np.dtype(numpy))  # type: ignore[call-overload]  # as above


def _uint(bits: int, numpy: object) -> DType:
    return DType(f"u{bits}", f"ui{bits}", Kind.UINT, bits, np.dtype(numpy))  # type: ignore[call-overload]  # as above


BOOL = DType("bool", "i1", Kind.BOOL, 8, np.dtype(np.bool_))
I2, I4 = _int(2, ml_dtypes.int2), _int(4, ml_dtypes.int4)
I8, I16, I32, I64 = _int(8, np.int8), _int(16, np.int16), _int(32, np.int32), _int(64, np.int64)
U2, U4 = _uint(2, ml_dtypes.uint2), _uint(4, ml_dtypes.uint4)
U8, U16, U32, U64 = _uint(8, np.uint8), _uint(16, np.uint16), _uint(32, np.uint32), _uint(64, np.uint64)
F4E2M1FN = _float("f4e2m1fn", "f4E2M1FN", 4, ml_dtypes.float4_e2m1fn)
F8E3M4 = _float("f8e3m4", "f8E3M4", 8, ml_dtypes.float8_e3m4)
F8E4M3 = _float("f8e4m3", "f8E4M3", 8, ml_dtypes.float8_e4m3)
F8E4M3FN = _float("f8e4m3fn", "f8E4M3FN", 8, ml_dtypes.float8_e4m3fn)
F8E4M3FNUZ = _float("f8e4m3fnuz", "f8E4M3FNUZ", 8, ml_dtypes.float8_e4m3fnuz)
F8E4M3B11FNUZ = _float("f8e4m3b11fnuz", "f8E4M3B11FNUZ", 8, ml_dtypes.float8_e4m3b11fnuz)
F8E5M2 = _float("f8e5m2", "f8E5M2", 8, ml_dtypes.float8_e5m2)
F8E5M2FNUZ = _float("f8e5m2fnuz", "f8E5M2FNUZ", 8, ml_dtypes.float8_e5m2fnuz)
F8E8M0FNU = _float("f8e8m0fnu", "f8E8M0FNU", 8, ml_dtypes.float8_e8m0fnu)
BF16 = _float("bf16", "bf16", 16, ml_dtypes.bfloat16)
F16 = _float("f16", "f16", 16, np.float16)
F32 = _float("f32", "f32", 32, np.float32)
F64 = _float("f64", "f64", 64, np.float64)
C64 = DType("c64", "complex<f32>", Kind.COMPLEX, 64, np.dtype(np.complex64))
C128 = DType("c128", "complex<f64>", Kind.COMPLEX, 128, np.dtype(np.complex128))

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        *(BOOL, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64),
        *(F4E2M1FN, F8E3M4, F8E4M3, F8E4M3FN, F8E4M3FNUZ, F8E4M3B11FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0FNU),
        *(BF16, F16, F32, F64, C64, C128),
    )
}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES.values()}


def dtype_named(name: str) -> DType:
    """The element type with this short name. Raises KeyError where there is none."""
    return DTYPES[name]


def dtype_of_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The element type held by a NumPy dtype, or None where StableHLO has none (strings, objects, float128)."""
    return _BY_NUMPY.get(dtype)


@dataclass(frozen=True, slots=True)
class TensorType:
    """An array type: element type, static shape, and the memory that holds it.

    Attributes:
        dtype: element type.
        shape: sizes, outermost first; () is a scalar.
        on_host: whether the value lies in the host's memory (offloaded residuals), printed `f32<host>[4]`.
    """

    dtype: DType
    shape: tuple[int, ...]
    on_host: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Storage in bytes, rounded up for element types narrower than a byte."""
        return (math.prod(self.shape) * self.dtype.bits + 7) // 8

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, shape, self.on_host)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape, self.on_host)

    def __str__(self) -> str:
        memory = "<host>" if self.on_host else ""
        return f"{self.dtype.name}{memory}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"TensorType({self})"
