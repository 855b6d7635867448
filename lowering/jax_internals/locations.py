"""Where the equations of a jaxpr come from: the user's lines, scopes and functions."""

from __future__ import annotations

import enum
import functools
import itertools
import os
from pathlib import Path
from typing import Any

from jax._src.source_info_util import Scope, Transform, is_user_filename

from rematc.ir.locations import Location
from rematc.lowering.jax_internals import PACKAGE

#: Where Python's own modules stand.
_STANDARD = str(Path(os.__file__).parent) + os.sep


def equation_location(eqn: Any) -> Location | None:
    """The user's line that an equation of a jaxpr comes from; None where every frame is JAX's or Python's own.

    It is the innermost line outside of installed packages: a layer of flax or equinox is in a package, and the model
    that calls it is the user's. Where all of the code is installed it is the innermost line.

    What JAX traced because we asked it to, such as a derivative rule, has our frames below its own. What JAX
    transposed is of a backward pass.
    """
    found = _traced_location(eqn)
    return found.backward() if found is not None and _is_transposed(eqn) else found


def _is_transposed(eqn: Any) -> bool:
    stack = eqn.source_info.name_stack.stack
    return any(isinstance(entry, Transform) and entry.name == "transpose" for entry in stack)


def _traced_location(eqn: Any) -> Location | None:
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    codes, instructions = traceback.raw_frames()
    installed: tuple[Any, int] | None = None
    for code, instruction in zip(codes, instructions, strict=True):
        kind = _kind_of_file(code.co_filename)
        if kind is _File.OWN:
            break
        if kind is _File.USER:
            return _code_location(code, code.co_filename, instruction)
        if kind is _File.INSTALLED and installed is None:
            installed = (code, instruction)
    if installed is None:
        return None
    code, instruction = installed
    return _code_location(code, code.co_filename, instruction)


class _File(enum.Enum):
    """Whose code stands in a file."""

    USER = "user"
    INSTALLED = "installed"
    OWN = "ours"
    JAX = "jax"


@functools.lru_cache(maxsize=1 << 12)
def _kind_of_file(file: str) -> _File:
    if file.startswith(PACKAGE):
        return _File.OWN
    if not is_user_filename(file) or file.startswith("<frozen"):
        return _File.JAX
    is_installed = any(f"{os.sep}{folder}{os.sep}" in file for folder in ("site-packages", "dist-packages"))
    return _File.INSTALLED if is_installed or file.startswith(_STANDARD) else _File.USER


@functools.lru_cache(maxsize=1 << 14)
def _code_location(code: Any, file: str, instruction: int) -> Location:
    # Code objects are equal where their files differ, so the file is a part of what is remembered.
    positions = next(itertools.islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    line, _, column, _ = positions
    return Location(
        file,
        line or code.co_firstlineno,
        0 if column is None else column + 1,
        code.co_qualname.rpartition("<locals>.")[2],
    )


def scopes_of(eqn: Any) -> tuple[str, ...]:
    """The names that `jax.named_scope` gave around an equation, outer ones first, as far as its jaxpr reaches."""
    stack = eqn.source_info.name_stack.stack
    return tuple([entry.name for entry in stack if isinstance(entry, Scope)]) if stack else ()


def is_library_function(jaxpr: Any) -> bool:
    """Whether a jaxpr comes from a function that JAX itself defines."""
    source = "" if jaxpr.debug_info is None else jaxpr.debug_info.func_src_info or ""
    file = source.rpartition(" at ")[2].rpartition(":")[0]
    return bool(file) and not is_user_filename(file)


def function_name(jaxpr: Any) -> str:
    """The name of the function that a jaxpr was traced from."""
    return "function" if jaxpr.debug_info is None else str(jaxpr.debug_info.func_name or "function")
