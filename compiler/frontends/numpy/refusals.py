"""What NumPy's arrays have and tracers do not: errors at the user's line, each with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from rematc.compiler.frontends.numpy.frames import asking_function, asking_logarithm
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


def as_key(tracer: Tracer) -> NoReturn:
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


# -- what needs the elements -------------------------------------------------------------------------------------------


def as_elements(tracer: Tracer, dtype: object = None, copy: object = None) -> NoReturn:
    """Raise the error for a tracer as one of NumPy's arrays."""
    if logarithm := asking_logarithm():
        refuse(
            tracer,
            f"scipy.special.{logarithm} does not take a traced {tracer.value.type}: use "
            f"rematc.numpy.special.{logarithm}, or set SCIPY_ARRAY_API=1 before importing SciPy",
        )
    asking = asking_function()
    refuse(
        tracer,
        f"a traced {tracer.value.type} was asked for its elements, which it has only when compiled: by "
        f"{asking or 'np.array, np.asarray or np.full, a library that is not NumPy'}, or an assignment into a "
        "NumPy array; use rematc.numpy.asarray, full or vectorize, make the array from its parts "
        "(np.stack, np.concatenate, np.where), or set SCIPY_ARRAY_API=1 before importing SciPy for its functions",
    )


def as_bool(tracer: Tracer) -> NoReturn:
    """Raise the error for a tracer as a condition."""
    refuse(
        tracer,
        f"a traced {tracer.value.type} is used as a Python bool (if, while, and, or, not), but its value is not "
        "known while tracing; choose with np.where(condition, x, y), or pass the argument as static "
        "(static_argnums)",
    )


def as_index(tracer: Tracer) -> NoReturn:
    """Raise the error for a tracer as an integer of Python's."""
    refuse(
        tracer,
        f"a traced {tracer.value.type} is used where Python needs an integer (range, a shape, an index into a list), "
        "but its value is not known while tracing; pass it as static (static_argnums), or index an array with it",
    )


def as_number(target: str, instead: str) -> Callable[..., NoReturn]:
    """A method that gives Python's numbers, which a tracer does not know; `instead` is what to write."""

    def apply(self: Tracer, *arguments: object) -> NoReturn:
        refuse_number(self, target, instead)

    return apply


def refuse_number(tracer: Tracer, target: str, instead: str) -> NoReturn:
    """Raise the error for a tracer as a number of Python's."""
    refuse(
        tracer,
        f"a traced {tracer.value.type} is converted to a {target} (or assigned into a NumPy array), but its value is "
        f"not known while tracing; keep it an array ({instead}), or make the array with np.stack or "
        "rematc.numpy.at_set",
    )
