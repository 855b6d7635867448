"""What was traced for calls of one signature, to be used again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Lasting(Protocol):
    """What was made for a call."""

    @property
    def is_lasting(self) -> bool:
        """Whether it may be used for later calls."""


T = TypeVar("T", bound=Lasting)
#: So many signatures of one function are remembered.
_MOST = 128


class Remembered(Generic[T]):
    """The last things made, by key."""

    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, T] = OrderedDict()

    def find(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made for an equal key, or what `make` gives now."""
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
            return found
        made = make()
        if made.is_lasting:
            self._found[key] = made
            if len(self._found) > _MOST:
                self._found.popitem(last=False)
        return made
