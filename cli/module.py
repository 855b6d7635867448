"""A StableHLO module as what the command compiles: a whole step, differentiated by whoever wrote it."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType

from rematc.cli.model import Entry
from rematc.compiler.frontends.stablehlo.importing import from_stablehlo
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.tracing.options import Options
from rematc.ir.errors import CompileError
from rematc.ir.locations import relative
from rematc.ir.types import TensorType
from rematc.lowering.entry_attributes import donated_arguments, with_attributes_of
from rematc.lowering.signature import Owners


def read_module(path: Path, entry: str) -> tuple[Entry, tuple[TensorType, ...]]:
    """The entry of a module as a function, and the types of its arguments.

    Raises CompileError, with line and column of the text, for what is no StableHLO or cannot be imported.
    """
    text = read_text(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*may be overwritten.*")  # which is handed on
        graph = from_stablehlo(text, entry=entry, file=relative(str(path)))
    module = ModuleType(path.stem)
    module.__file__ = str(path.absolute())
    compiling = Options(donated=Owners(frozenset(donated_arguments(text)))) if entry == "main" else None
    return Entry(module, entry, as_function(graph), None, compiling), graph.param_types


def read_text(path: Path) -> str:
    """A module's text. Raises CompileError where it cannot be read, or is no text, such as MLIR's bytecode."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError(f"cannot read {relative(str(path))}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CompileError(
            f"{relative(str(path))} is no text; write the module as text, as str(module) and lower(...).as_text() do"
        ) from None


def written_module(text: str, path: Path) -> str:
    """The text of a program that was made of a module, with what that says of its arguments and results."""
    return with_attributes_of(text, read_text(path))
