"""What NumPy's arrays have and tracers do not: errors at the user's line, each with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from rematc.compiler.frontends.numpy.operands import enter, fail
from rematc.compiler.tracing.trace import Tracer
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError


def refuse(tracer: Tracer, message: str) -> NoReturn:
    """Raise CompileError at the user's line."""
    enter(tracer)
    fail(message)


class MissingAttributeError(CompileError, AttributeError):
    """An attribute of NumPy's arrays that a tracer lacks: `hasattr` is False, as Python has it."""


class NotHashableError(CompileError, TypeError):
    """A tracer is hashed: a TypeError, as Python has it."""


def refused_attribute(message: str) -> property:
    """An attribute of NumPy's arrays that a tracer does not have, to read or to write."""

    def read(self: Tracer) -> NoReturn:
        raise MissingAttributeError(message, user_location())

    def write(self: Tracer, value: object) -> NoReturn:
        raise MissingAttributeError(message, user_location())

    return property(read, write)


def hashed(tracer: Tracer) -> NoReturn:
    """Raise the error for a tracer as a key of a dict, an element of a set, or an argument of a cache."""
    raise NotHashableError(
        f"a traced {tracer.value.type} is hashed (a key of a dict, an element of a set, an argument of a cached "
        "function), but like NumPy's arrays it cannot be; use a name, an index or id(x) as the key",
        user_location(),
    )


def refused(message: str) -> Callable[..., NoReturn]:
    """A method of NumPy's arrays that a tracer does not have."""

    def apply(self: Tracer, *arguments: object, **options: object) -> NoReturn:
        refuse(self, message)

    return apply
