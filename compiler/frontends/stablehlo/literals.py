"""Constants of StableHLO text as arrays: `dense<...>` of every element type, and `dense_resource<...>`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.types import DTYPES, DType, TensorType
from rematc.ir.values import Array

_DENSE = re.compile(r'dense<(?:"0x(?P<hex>[0-9A-Fa-f]*)"|(?P<list>[^"]*?))> : ', re.DOTALL)
_RESOURCE = re.compile(r'dense_resource<(?:"((?:[^"\\]|\\.)*)"|([\w.$-]+))>')
_ELEMENT = re.compile(r"true|false|0x[0-9A-Fa-f]+|-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
#: Bytes of a blob's alignment, which stand before its data.
_ALIGNMENT = 4


def array_of(text: str, type: TensorType, blob: Callable[[str], str | None], loc: Location | None) -> Array:
    """The array that an elements attribute spells.

    Args:
        text: the attribute as MLIR prints it.
        type: what it is to be.
        blob: for the key of a resource the hexadecimal of its bytes, None for one that is not there.
        loc: for errors.

    Raises:
        CompileError: for an attribute of another kind, and for a blob that is missing or too short.
    """
    if found := _RESOURCE.match(text):
        return _from_blob(found[1] or found[2], type, blob, loc)
    spelled = _DENSE.match(text)
    if spelled is None:
        raise CompileError(f"a constant {text[:40]}...; expected dense<...> or dense_resource<...>", loc)
    if spelled["hex"] is not None:
        raw = bytes.fromhex(spelled["hex"])
        is_packed = type.dtype.is_bool and len(raw) != type.size
        flat = _unpacked(raw, type.size) if is_packed else np.frombuffer(raw, type.dtype.numpy)
    else:
        flat = _listed(_ELEMENT.findall(spelled["list"]), type.dtype)
    if flat.size == 1:
        return np.broadcast_to(flat.reshape(()), type.shape).copy()
    return flat.reshape(type.shape).copy()


def _listed(tokens: list[str], dtype: DType) -> Array:
    if dtype.is_complex:
        part = DTYPES[f"f{dtype.bits // 2}"]
        return _listed(tokens, part).view(dtype.numpy)
    if dtype.is_bool:
        return np.array([token == "true" for token in tokens], np.bool_)
    if not dtype.is_float:
        wide = np.uint64 if dtype.mlir.startswith("u") else np.int64
        return np.array([int(token, 0) for token in tokens], wide).astype(dtype.numpy)
    width = dtype.numpy.itemsize
    elements = [_float(token, dtype, width) for token in tokens]
    return np.frombuffer(b"".join(elements), dtype.numpy)


def _float(token: str, dtype: DType, width: int) -> bytes:
    if token.startswith("0x"):
        return int(token, 16).to_bytes(width, "little")
    with np.errstate(all="ignore"):
        return np.asarray(float(token)).astype(dtype.numpy).tobytes()


def _unpacked(raw: bytes, count: int) -> Array:
    """Booleans, eight in a byte."""
    return np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[:count].astype(np.bool_)


def _from_blob(key: str, type: TensorType, blob: Callable[[str], str | None], loc: Location | None) -> Array:
    text = blob(key)
    if text is None:
        raise CompileError(f"the resource '{key}' of a constant is not in the text; print the module with it", loc)
    raw = bytes.fromhex(text)[_ALIGNMENT:]
    if len(raw) != type.size * type.dtype.numpy.itemsize:
        raise CompileError(
            f"the resource '{key}' has {len(raw)} bytes, a constant of type {type} takes "
            f"{type.size * type.dtype.numpy.itemsize}",
            loc,
        )
    return np.frombuffer(raw, type.dtype.numpy).reshape(type.shape).copy()


def blobs_of(text: str) -> dict[str, str]:
    """The resources at the end of a module's text: the hexadecimal of their bytes."""
    _, found, resources = text.rpartition("{-#")
    if not found:
        return {}
    pattern = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([\w.$-]+))\s*:\s*"0x([0-9A-Fa-f]*)"')
    return {quoted or bare: raw for quoted, bare, raw in pattern.findall(resources)}


def elements(attribute: Any) -> Array | None:
    """The array of an attribute whose elements MLIR's bindings can hand over, else None."""
    try:
        return np.array(attribute)
    except (TypeError, ValueError):
        return None
