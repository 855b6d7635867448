"""Python functions of the user's that programs call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rematc.ir.collecting import users_code
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.values import Array


class CallbackError(CompileError):
    """A function of the user's raised while a program called it; the exception is the cause of this one."""


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A Python function that a program calls with NumPy arrays. Two are equal if they call the same function.

    Attributes:
        function: takes an array for each operand, and gives a sequence with one for each result.
        name: what errors call it.
        loc: where the user asked for it.
    """

    function: Callable[..., Any]
    name: str = field(compare=False)
    loc: Location | None = field(default=None, compare=False)

    def __call__(self, *arrays: Array) -> Any:
        """Raises CallbackError where the function raises."""
        try:
            with users_code():
                return self.function(*arrays)
        except Exception as error:
            raise CallbackError(f"{self.name} raised {type(error).__name__}: {error}", self.loc) from error

    @property
    def text(self) -> str:
        """`module:name` for a function that can be found again by it, else what errors call it."""
        module, name = getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "")
        found = host_function(f"{module}:{name}")
        return f"{module}:{name}" if found == self else self.name


@dataclass(frozen=True, slots=True)
class FrontendFunction:
    """How the frontend that an op comes from applies it, with derivatives of every order. No part of an op's text.

    Attributes:
        function: takes a value of the frontend's for each operand, and gives a sequence with one for each result.
    """

    function: Callable[..., Sequence[Any]]

    def __call__(self, *operands: Any) -> Sequence[Any]:
        with users_code():
            return self.function(*operands)


#: What marks a field of an op that its text leaves out.
UNWRITTEN = {"is_written": False}


def host_function(text: str) -> HostFunction | None:
    """The function that `HostFunction.text` names, of a module that is loaded already; None where there is none."""
    module, _, name = text.partition(":")
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return HostFunction(found, text) if callable(found) else None
