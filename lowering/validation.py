"""Verify StableHLO text with the MLIR bindings that ship in jaxlib, and map what they find to the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # the one place: the dialect `func` has no registration of its own
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from rematc.ir.errors import InternalError
from rematc.ir.locations import Location

#: MLIR's name for text that comes from no file.
THE_TEXT = "-"


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
    loc, emitted = location_of(first.location), ""
    if loc and loc.file == THE_TEXT:
        line = text.splitlines()[loc.line - 1] if loc.line <= text.count("\n") + 1 else ""
        emitted = f"\n  line {loc.line} column {loc.column} of the module: {line.strip()}"
        loc = _location_at_end(text, line)
    notes = "".join([f"\n  {note.message}" for note in first.notes])
    where = f"{loc}: error: " if loc else ""
    return f"{where}invalid StableHLO was emitted: {first.message}{notes}{emitted}"


def _location_at_end(text: str, line: str) -> Location | None:
    """The place of a line that ends in `loc(#loc12)`, whatever else is wrong with the text; None where it has none."""
    _, is_there, alias = line.rpartition("loc(#")
    definitions = [other for other in text.splitlines() if other.startswith("#")]
    if not is_there:
        return None
    try:
        module = ir.Module.parse("\n".join([f"module {{}} loc(#{alias}", *definitions]))
    except ir.MLIRError:
        return None
    return location_of(module.operation.location)


def location_of(loc: ir.Location) -> Location | None:
    """The first place in a file that an MLIR location names, with the innermost name around it."""
    function, rest = "", [loc]
    while rest:
        # What diagnostics carry has the class of no kind.
        one: Any = rest.pop()
        one = ir.Location.from_attr(one.attr, one.context) if type(one) is ir.Location else one
        match type(one).__name__:
            case "FileLineColLoc":
                file = str(getattr(one.filename, "value", one.filename))  # an attribute, or text, by jaxlib's version
                return Location(file, one.start_line, one.start_col, function)
            case "NameLoc":
                function = one.name_str
                rest.append(one.child_loc)
            case "CallSiteLoc":
                rest += [one.caller, one.callee]
            case "FusedLoc":
                rest += one.locations[::-1]
    return None
