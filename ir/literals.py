"""Literals of the IR's text: numbers, strings, and the elements of arrays.

Whatever is printed in decimal reads back to the same bits; what would not is printed in hexadecimal.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Sequence

import numpy as np

from rematc.ir.types import DTYPES, DType, Kind, TensorType
from rematc.ir.values import Array

MAX_DECIMAL_ELEMENTS = 32

INTEGER = re.compile(r"-?[0-9]+")
FLOAT = re.compile(r"-?(?:inf|[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)|nan")
HEX = re.compile(r"0x(?:[0-9a-f]{2})*")
_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]')
_STRING = re.compile(r'"(?:[^"\\\n]|\\["\\]|\\u[0-9a-f]{4})*+"')
_ESCAPE = re.compile(r'\\(?:(["\\])|u([0-9a-f]{4}))')


def quoted(text: str) -> str:
    r"""`text` in quotes; quotes, backslashes and what would break a line are escaped, as `\"`, `\\` and `\u000a`."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return "\\" + character if character in '"\\' else f"\\u{ord(character):04x}"


def unquoted(token: str) -> str | None:
    """The string that a token quotes, or None where it is none."""
    if _STRING.fullmatch(token) is None:
        return None
    return _ESCAPE.sub(lambda match: match[1] or chr(int(match[2], 16)), token[1:-1])


def components(type: TensorType) -> tuple[DType, tuple[int, ...]]:
    """Real element type and shape; a complex array is one of pairs."""
    if type.dtype.is_complex:
        return DTYPES[f"f{type.dtype.bits // 2}"], (*type.shape, 2)
    return type.dtype, type.shape


def decimal(data: bytes, type: TensorType) -> str | None:
    """The elements in decimal, or None where there are none, or many, or that is not exact (payloads of NaNs)."""
    dtype, shape = components(type)
    count = math.prod(shape)
    if not 0 < count <= MAX_DECIMAL_ELEMENTS or len(data) != count * dtype.numpy.itemsize:
        return None
    elements = np.frombuffer(data, dtype.numpy)
    texts = [_element(element, dtype) for element in elements]
    if encode([number(text, dtype) for text in texts], dtype) != data:
        return None
    return _nested(texts, shape)


def _element(element: np.generic, dtype: DType) -> str:
    if dtype.is_bool:
        return "true" if element else "false"
    if not dtype.is_float:
        return str(int(typing.cast(int, element)))
    # NumPy's text is the shortest for the element's own precision; Python's adds the point where it is missing.
    return repr(float(str(element)))


def _nested(texts: list[str], shape: Sequence[int]) -> str:
    if not shape:
        return texts[0]
    for size in reversed(shape):
        texts = [f"[{','.join(texts[at : at + size])}]" for at in range(0, len(texts), size)]
    return texts[0]


def is_element(token: str, dtype: DType) -> bool:
    """Whether a token is a literal of this (real) element type."""
    if dtype.is_bool:
        return token in ("true", "false")
    if dtype.is_float:
        return FLOAT.fullmatch(token) is not None
    if INTEGER.fullmatch(token) is None or len(token) > 21:
        return False
    signed = dtype.kind is Kind.INT
    low, high = (-(1 << (dtype.bits - 1)), 1 << (dtype.bits - 1)) if signed else (0, 1 << dtype.bits)
    return low <= int(token) < high


def number(token: str, dtype: DType) -> int | float:
    """The number that such a token stands for."""
    if dtype.is_bool:
        return token == "true"
    return float(token) if dtype.is_float else int(token)


def encode(numbers: Sequence[int | float], dtype: DType) -> bytes:
    """The elements as they lie in memory."""
    # A list of Python ints beyond int64 would become floats, and be rounded, under another dtype.
    wide = np.float64 if dtype.is_float else np.uint64 if dtype.kind is Kind.UINT else np.int64
    with np.errstate(all="ignore"):
        array: Array = np.array(numbers, wide).astype(dtype.numpy)
    return array.tobytes()
