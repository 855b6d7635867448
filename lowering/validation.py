"""Verify StableHLO text with the MLIR bindings that ship in jaxlib, and map what they find to the user's line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # the one place: the dialect `func` has no registration of its own
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from rematc.ir.errors import InternalError
from rematc.ir.locations import Location

# As MLIR prints them: `"loss"("model.py":12:8)` with the function's name, `"model.py":12:8` without.
_STRING = r'"((?:[^"\\]|\\.)*)"'
_PLACE = re.compile(rf"{_STRING}:(\d+):(\d+)")
_NAMED_PLACE = re.compile(rf"{_STRING}\({_STRING}:(\d+):(\d+)\)")
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")
#: The parser's name for text that comes from no file.
_THE_TEXT = "-"


def validate(text: str) -> None:
    """Parse and verify a module that this package has written.

    Raises:
        InternalError: where the text is not valid StableHLO, with the user's file, line and column of the equation
            that it comes from.
    """
    with mlir_context():
        parse(text)


@contextmanager
def mlir_context() -> Iterator[ir.Context]:
    """A fresh MLIR context that knows the dialects of our programs.

    Fresh, because a context keeps every type, location and constant it has seen for as long as it lives.
    """
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    with context:
        yield context


def parse(text: str) -> ir.Module:
    """The module that this text spells, in the current MLIR context. Raises as `validate`."""
    try:
        module = ir.Module.parse(text)
        module.operation.verify()
    except ir.MLIRError as error:
        raise InternalError(_explain(text, error)) from None
    return module


def _explain(text: str, error: ir.MLIRError) -> str:
    if not error.error_diagnostics:
        return f"invalid StableHLO was emitted: {error}"
    first = error.error_diagnostics[0]
    printed = str(first.location)
    emitted = ""
    place = _PLACE.search(printed)
    if place and place[1] == _THE_TEXT:
        line, column = int(place[2]), int(place[3])
        emitted = text.splitlines()[line - 1] if line <= text.count("\n") + 1 else ""
        printed = _location_at_end(text, emitted)
        emitted = f"\n  line {line} column {column} of the module: {emitted.strip()}"
    loc = read_location(printed)
    notes = "".join([f"\n  {note.message}" for note in first.notes])
    where = f"{loc}: error: " if loc else ""
    return f"{where}invalid StableHLO was emitted: {first.message}{notes}{emitted}"


def _location_at_end(text: str, line: str) -> str:
    """The spelled-out location of a line that ends in `loc(#loc12)`; "" where it has none."""
    alias = re.search(r"loc\((#loc\d+)\)$", line)
    if alias is None:
        return ""
    defined = re.search(rf"^{alias[1]} = (.*)$", text, re.MULTILINE)
    return defined[1] if defined else ""


def read_location(printed: str) -> Location | None:
    """The first place in a source file that a printed location names."""
    if named := _NAMED_PLACE.search(printed):
        return Location(_unescape(named[2]), int(named[3]), int(named[4]), _unescape(named[1]))
    if place := _PLACE.search(printed):
        return Location(_unescape(place[1]), int(place[2]), int(place[3]))
    return None


def _unescape(text: str) -> str:
    """The text of an MLIR string literal."""
    raw = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], text)
    return raw.encode("latin-1", "replace").decode("utf-8", "replace")
