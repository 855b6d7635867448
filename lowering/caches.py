"""Everything that is remembered from call to call, so that it can be forgotten: `rematc.clear_caches`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Forgetful(Protocol):
    """What remembers."""

    def clear(self) -> None:
        """Forget what was made for earlier calls; it is made again when it is needed."""


_alive: WeakSet[Forgetful] = WeakSet()
_tables: list[Callable[[], None]] = []


def remembers(one: Forgetful) -> None:
    """Note something that remembers, for as long as it lives."""
    _alive.add(one)


def table(clear: Callable[[], None]) -> None:
    """Note a table of a module, by what clears it."""
    _tables.append(clear)


def forget_all() -> None:
    """Have everything that is alive forget."""
    for clear in _tables:
        clear()
    for one in list(_alive):
        one.clear()
