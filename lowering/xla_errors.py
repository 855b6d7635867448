"""What users can do about errors of XLA's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rematc.ir.errors import CompileError
from rematc.lowering.jax_internals.callbacks import take_failure
from rematc.lowering.program import Program

#: How XLA says that it knows no function of a `custom_call`'s name, typed calls and others.
_MISSING_FUNCTION = re.compile(
    r"No (?:registered implementation for .*custom call to|FFI handler registered for) (\S+)"
)


def explain_xla(error: Exception, name: str, programs: Iterable[Program] = ()) -> None:
    """Raise XLA's error as a CompileError if the user can act on it.

    Args:
        error: what XLA says.
        name: the function's name.
        programs: what may have been compiled, for the place of the error.
    """
    failure = take_failure(str(error))
    if failure is not None:
        raise failure from failure.__cause__
    first = str(error).partition("\n")[0].rstrip(".")
    if "RESOURCE_EXHAUSTED" in first:
        raise CompileError(
            f"out of memory in '{name}': {first}; save less with another policy or a smaller budget, "
            "or pass smaller arrays"
        ) from error
    missing = _MISSING_FUNCTION.search(first)
    if missing is not None:
        raise CompileError(
            f"'{name}' calls '{missing[1]}', a function that no library has registered in this process; before it is "
            "called import the package that does, or register it with jax.ffi.register_ffi_target",
            next((loc for program in programs if (loc := program.module.calls.get(missing[1])) is not None), None),
        ) from error
    if "No such compile option" in first:
        message = first.partition(": ")[2]
        raise CompileError(f"{message}; leave it out of compiler_options, or see XLA's names for them") from error
