"""StableHLO text as MLIR's data: parsing, locations, types. What MLIR finds wrong is the user's error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from jaxlib.mlir import ir

from rematc.ir.errors import CompileError, ParseError
from rematc.ir.locations import Location
from rematc.ir.types import DTYPES, DType, TensorType
from rematc.lowering.validation import THE_TEXT, location_of, mlir_context

#: Element types by their spelling in MLIR.
DTYPE_OF: dict[str, DType] = {dtype.mlir: dtype for dtype in DTYPES.values()}
DTYPE_OF.update({f"si{dtype.bits}": dtype for dtype in DTYPES.values() if dtype.mlir == f"i{dtype.bits}"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where text comes from.

    Attributes:
        file: the name by which errors and locations call it.
        text: all of it.
    """

    file: str
    text: str

    @contextmanager
    def module(self) -> Iterator[Any]:
        """The MLIR module that the text spells (`jaxlib.mlir.ir.Module`), in a context of its own.

        Raises:
            ParseError: with line and column, where it is no module, or breaks a law of StableHLO.
        """
        with mlir_context():
            try:
                # MLIR ends the text at a zero byte, and reads bytes that are no UTF-8 as they come.
                module = ir.Module.parse(self.text)
                module.operation.verify()
            except ir.MLIRError as error:
                raise self._error(error) from None
            except (ValueError, UnicodeError) as error:
                raise ParseError(f"not the text of a StableHLO module: {error}", Location(self.file, 1, 1)) from None
            yield module

    def _error(self, error: Any) -> ParseError:
        diagnostics = error.error_diagnostics
        if not diagnostics:
            return ParseError(f"not a StableHLO module: {error}", Location(self.file, 1, 1))
        first = diagnostics[0]
        notes = "".join([f"\n  {note.message}" for note in first.notes])
        loc = self.location(first.location) or Location(self.file, 1, 1)
        return ParseError(f"not a StableHLO module that MLIR accepts: {first.message}{notes}", loc)

    def location(self, loc: Any) -> Location | None:
        """The first place in a file that an MLIR location names, with the innermost name around it.

        Names say what is of a backward pass: JAX's, that it was transposed, and ours (`rematc.lowering.labels`).
        """
        found = location_of(loc)
        found = replace(found, file=self.file) if found and found.file == THE_TEXT else found
        return found.backward() if found and any(map(_BACKWARD.search, _names(loc))) else found

    def place_of(self, word: str) -> Location:
        """Where a word first stands in the text: for operations whose location is unknown. The start if nowhere."""
        at = max(self.text.find(word), 0)
        return Location(self.file, self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    @staticmethod
    def name_in(loc: Any) -> str | None:
        """The name that a location of a parameter gives it, where there is nothing else in it."""
        if type(loc).__name__ == "NameLoc" and type(loc.child_loc).__name__ == "UnknownLoc":
            return str(loc.name_str)
        return None


_BACKWARD = re.compile(r"\btranspose\(|(?:^|/)(?:backward|recompute(?:/\d+)?)/[^/]+/")


def _names(loc: Any) -> Iterator[str]:
    """The names around a location, from the outermost one."""
    while type(loc).__name__ == "NameLoc":
        yield str(loc.name_str)
        loc = loc.child_loc


def tensor_type(type: Any, loc: Location | None) -> TensorType:
    """The IR's type for an MLIR type. Raises CompileError for what is no array of static shape."""
    if not isinstance(type, ir.RankedTensorType):
        raise CompileError(f"a value of type {type}; expected a tensor: tokens, tuples and buffers have no arrays", loc)
    if not type.has_static_shape or (type.encoding is not None and "bounds" in str(type.encoding)):
        raise CompileError(
            f"a value of type {type}, whose sizes are not known; expected static shapes: "
            "refine them before (jax.export, stablehlo's refine_polymorphic_shapes)",
            loc,
        )
    dtype = DTYPE_OF.get(str(type.element_type))
    if dtype is None:
        raise CompileError(
            f"elements of type {type.element_type}; expected one of {', '.join(sorted(DTYPE_OF))}: "
            "dequantize before, or convert",
            loc,
        )
    return TensorType(dtype, tuple(type.shape))
