"""Errors of rules, with the line of the equation that they were applied to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError


@contextmanager
def located(eqn: Equation) -> Iterator[None]:
    """Give a CompileError that has no location that of the equation."""
    try:
        yield
    except CompileError as error:
        error.loc = error.loc or eqn.loc
        raise
