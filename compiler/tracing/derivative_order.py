"""How many derivatives are taken of what is being traced.

`grad(grad(f))` traces `f` inside of two differentiations. A function with a custom rule records the rule beside the
function, and in the rule calls of the same function stand with the rule of the next derivative, as far as derivatives
are taken. So a rule may call its own function without end, rules that no derivative uses are not traced, and whether
a rule is right is asked only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_order: ContextVar[int] = ContextVar("derivatives_taken_of_the_trace", default=0)


def derivative_order() -> int:
    """How many derivatives are taken of the trace that is open."""
    return _order.get()


@contextmanager
def of_order(order: int) -> Iterator[None]:
    """Trace for so many derivatives."""
    token = _order.set(order)
    try:
        yield
    finally:
        _order.reset(token)


@contextmanager
def differentiated() -> Iterator[None]:
    """Trace what is differentiated afterwards: one derivative more than around it."""
    with of_order(_order.get() + 1):
        yield
