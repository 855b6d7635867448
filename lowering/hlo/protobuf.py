"""The wire format of protocol buffers, read without the definitions of messages.

A message is a sequence of fields: a number, and a variable-length integer, 8 or 4 bytes, or a length with so many bytes
(text, a message, or packed integers).

Reference: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order: each its number, and its value. Raises ValueError for what is no message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"no protocol buffer: a field of the kind {kind}")
        if at + size > len(data):
            raise ValueError("no protocol buffer: it ends inside a field")
        yield number, data[at : at + size]
        at += size


def messages(data: bytes, number: int) -> Iterator[bytes]:
    """The messages, or texts, that a field of this number holds, in order."""
    return (value for found, value in fields(data) if found == number and isinstance(value, bytes))


def integers(data: bytes) -> dict[int, int]:
    """The integers of a message, by the numbers of their fields; the last one of each."""
    return {number: value for number, value in fields(data) if isinstance(value, int)}


def packed(data: bytes, number: int) -> list[int]:
    """The integers of a field that repeats, packed or not."""
    found: list[int] = []
    for field, value in fields(data):
        if field != number:
            continue
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            found.append(one)
    return found


def text(data: bytes, number: int) -> str:
    """The text that a field holds; "" where it is not there."""
    return next(messages(data, number), b"").decode("utf-8", "replace")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("no protocol buffer: an integer that does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
