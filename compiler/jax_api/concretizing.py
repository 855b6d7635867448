"""Functions that read the values of their arguments: `range(n)`, `if rate > 0`.

JAX runs them where it is not compiling, and so do we as far as a value is a Python number that nothing is
differentiated with respect to: it is left out of what is traced. Of any other it is an error, which names the argument.
"""

from __future__ import annotations

import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax

from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.tracing.user_location import location_of_error
from rematc.ir.errors import CompileError
from rematc.lowering.signature import Function, function_name

T = TypeVar("T")

_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
#: How JAX calls the arrays of what is traced.
_ARRAY = re.compile(r"\barrays\[(\d+)\]")
#: For so many structures of arguments of a function it is remembered which numbers it reads.
_MOST = 128


class ConcretizedError(Exception):
    """A function reads the values of some of the arrays that it is traced with.

    Where JAX does not say which, it is not certain that it does; `cause` is what JAX raised.
    """

    def __init__(
        self, arrays: Collection[int], names: tuple[str, ...], function: str, cause: Exception, is_certain: bool
    ) -> None:
        super().__init__()
        self.is_certain = is_certain
        self.arrays = arrays
        self.names = names
        self.function = function
        self.cause = cause

    def explained(self, is_differentiated: Callable[[int], bool]) -> CompileError:
        """The error for the user, given which of the arrays there are derivatives with respect to."""
        named = ", ".join(self.names[index] for index in sorted(self.arrays))
        if any(is_differentiated(index) for index in self.arrays):
            way_out = "there are derivatives by it: use jax.lax.cond or jnp.where, or leave it out of argnums"
        else:
            way_out = (
                "pass it as a Python number, which is then a part of what is compiled, or as a hashable value that "
                "static_argnums or static_argnames name"
            )
        said = str(self.cause).partition("\n")[0].rstrip(".")
        return CompileError(
            f"'{self.function}' reads the value of its argument {named} while it is traced ({said}); {way_out}",
            location_of_error(self.cause),
        )


@contextmanager
def naming_arguments(names: Callable[[Function], tuple[str, ...]], function: Function) -> Iterator[None]:
    """Raise ConcretizedError where JAX says that the function's arrays have no values to be read."""
    try:
        yield
    except _ERRORS as error:
        found = {int(index) for index in _ARRAY.findall(str(error))}
        given = names(function)
        if not found or max(found) >= len(given):
            raise  # of a function inside of it, which JAX would not run either
        raise ConcretizedError(found, given, function_name(function), error, True) from error
    except (TypeError, ValueError) as error:
        if "tracer" not in str(error).lower():
            raise
        given = names(function)
        raise ConcretizedError(range(len(given)), given, function_name(function), error, False) from error


class NumbersRead:
    """Which of a function's arguments it reads the values of, by the structure of the arguments."""

    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, frozenset[int]] = OrderedDict()
        self._lock = threading.Lock()

    def traced(
        self, arguments: JaxArguments, trace: Callable[[JaxArguments], T], is_differentiated: Callable[[Any, int], bool]
    ) -> tuple[T, JaxArguments]:
        """What `trace` gives for the arguments, without the numbers whose values are read; and these arguments.

        Args:
            arguments: of the call.
            trace: may raise ConcretizedError.
            is_differentiated: of (arguments, index of an array), whether there are derivatives with respect to it.

        Raises:
            CompileError: where another value is read.
        """
        read = self._found.get(arguments.tree) if self._found else None
        if read:
            arguments = arguments.with_fixed(read)
        while True:
            try:
                return trace(arguments), arguments
            except ConcretizedError as error:
                numbers = [
                    index
                    for index in error.arrays
                    if isinstance(arguments.arrays[index], (int, float, complex))
                    and not is_differentiated(arguments, index)
                ]
                if not error.is_certain:
                    if not numbers:
                        raise error.cause from None
                    # Sizes are read more often than rates, and a rate may be another one at each step.
                    numbers = [index for index in numbers if isinstance(arguments.arrays[index], int)] or numbers
                if not numbers:
                    raise error.explained(functools.partial(is_differentiated, arguments)) from error.cause
                read = frozenset(arguments.places[index] for index in numbers).union(read or ())
                arguments = arguments.with_fixed(read)
                self._remember(arguments.tree, read)

    def _remember(self, tree: Hashable, read: frozenset[int]) -> None:
        with self._lock:
            self._found[tree] = read
            if len(self._found) > _MOST:
                self._found.popitem(last=False)
