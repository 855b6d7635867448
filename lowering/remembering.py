"""What was made for a key, to be used again, by any thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: So many signatures of one function are remembered.
MOST_SIGNATURES = 128


def _always(made: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class _Making:
    """What one thread is making, and others wait for."""

    thread: int = field(default_factory=threading.get_ident)
    is_over: threading.Event = field(default_factory=threading.Event)


class Remembered(Generic[K, T]):
    """The last things made, by key.

    What several threads ask for at once is made by one of them, while the others wait. Where making it asks for it
    again, it is made again.
    """

    def __init__(self, most: int = MOST_SIGNATURES, is_lasting: Callable[[T], bool] = _always) -> None:
        """Nothing is remembered yet.

        Args:
            most: so many things are remembered; of more, those that were used last.
            is_lasting: whether a thing may be given to those who ask for it later.
        """
        self._most = most
        self._is_lasting = is_lasting
        self._found: OrderedDict[K, T] = OrderedDict()
        self._making: dict[K, _Making] = {}
        # Comparing keys runs code of the user's, which may come back to here.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> T | None:
        """What is remembered for an equal key."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: K, made: T) -> None:
        """Remember something for a key."""
        with self._lock:
            self._found[key] = made
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)

    def values(self) -> list[T]:
        """All that is remembered."""
        with self._lock:
            return list(self._found.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._found.clear()

    def find(self, key: K, make: Callable[[], T]) -> T:
        """What was made for an equal key, or what `make` gives now. Raises what `make` raises."""
        while True:
            with self._lock:
                found = self.get(key)
                if found is not None:
                    return found
                other = self._making.get(key)
                if other is None:
                    mine = self._making[key] = _Making()
                    break
            if other.thread == threading.get_ident():
                return make()
            # What it gives may be for that thread alone, and it may fail.
            other.is_over.wait()
        try:
            made = make()
            if self._is_lasting(made):
                self.put(key, made)
            return made
        finally:
            with self._lock:
                del self._making[key]
            mine.is_over.set()
