"""autograd's custom derivatives: they have no counterpart and are refused when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rematc.ir.errors import CompileError

#: Nothing is in it: derivatives belong to rematc's ops.
primitive_vjps: dict[Callable[..., Any], Any] = {}


def primitive(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Refused when called."""

    def refused(*arguments: Any, **options: Any) -> NoReturn:
        raise CompileError("autograd's custom primitives have no counterpart in the shim")

    refused.__name__ = getattr(fun, "__name__", "primitive")
    return refused


notrace_primitive = primitive


def defvjp(*arguments: Any, **options: Any) -> None:
    """Accepted; the primitive itself is refused when called."""


defjvp = defvjp
