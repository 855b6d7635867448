"""Literal arrays in StableHLO text: `dense<1.0>`, `dense<[[1, 2], [3, 4]]>`, `dense<"0x3F80...">`.

Every element reads back to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.ir.types import DType, Kind, TensorType
from rematc.ir.values import Array

#: Arrays of more elements are printed as the hexadecimal of their bytes.
_LISTED = 32


def dense(type: TensorType, array: Array) -> str:
    """The elements attribute that holds `array`, an array of this type."""
    if array.size == 0:
        return "dense<>"
    flat = array.reshape(-1)
    # By bytes and not by value: -0.0 is no 0.0, and a NaN is itself.
    raw = flat.tobytes()
    if raw == raw[: array.itemsize] * flat.size:
        return f"dense<{_printer(type.dtype)(flat[0])}>"
    # MLIR packs booleans in its own way, so they are always listed.
    if flat.size > _LISTED and not type.dtype.is_bool:
        return f'dense<"0x{raw.hex().upper()}">'
    return f"dense<{_nested(array, _printer(type.dtype))}>"


def _nested(array: Array, printer: Callable[[Any], str]) -> str:
    if array.ndim == 0:
        return printer(array[()])
    return f"[{', '.join([_nested(np.asarray(row), printer) for row in array])}]"


def _printer(dtype: DType) -> Callable[[Any], str]:
    match dtype.kind:
        case Kind.BOOL:
            return lambda item: "true" if item else "false"
        case Kind.INT | Kind.UINT:
            return lambda item: str(int(item))
        case Kind.FLOAT:
            return lambda item: _float(item, dtype.bits)
        case Kind.COMPLEX:
            return lambda item: f"({_float(item.real, dtype.bits // 2)}, {_float(item.imag, dtype.bits // 2)})"


def _float(item: Any, bits: int) -> str:
    """A decimal literal where it reads back exactly, else the bits; `item` is a scalar of NumPy or ml_dtypes."""
    value = float(item)
    if not np.isfinite(value):
        raw = int.from_bytes(item.tobytes(), "little")
        return f"0x{raw:0{max(bits // 4, 1)}X}"
    # MLIR reads a decimal as float64 and rounds that once more, so the shortest decimal of a narrow type may not do.
    shortest = str(item)
    text = shortest if type(item)(float(shortest)) == item else repr(value)
    mantissa, mark, exponent = text.partition("e")
    point = "" if "." in mantissa else ".0"
    return f"{mantissa}{point}{mark}{exponent}"
