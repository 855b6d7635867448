"""When Python's cycle collector rests: while graphs are made out of graphs, and never while the user's code runs.

Equations and values form no cycles: reference counts free them. The collector would go through all of them again and
again while a deep graph grows, which takes a third of the time and makes it more than linear in depth. The user's code
may make cycles that hold large arrays, or look at the collector itself, and finds it as it left it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class _Kind(Enum):
    """What the innermost block of a thread holds."""

    OURS = "ours"
    USERS = "the user's"


class _Here(threading.local):
    """The innermost block of this thread; None outside of all."""

    kind: _Kind | None = None


class _Collector:
    """Python's collector, of which there is one for all threads: it rests while a thread is in a block of ours and no
    thread is in one of the user's.
    """

    def __init__(self) -> None:
        # Collecting may call anything, and so may come back to here.
        self._lock = threading.RLock()
        self._here = _Here()
        self._count = dict.fromkeys(_Kind, 0)
        self._rests = False

    @contextmanager
    def block(self, kind: _Kind) -> Iterator[None]:
        """What this thread does inside is ours, or the user's."""
        outer = self._here.kind
        if outer is kind:
            yield
            return
        self._move(outer, kind)
        try:
            yield
        finally:
            self._move(kind, outer)

    def _move(self, old: _Kind | None, new: _Kind | None) -> None:
        with self._lock:
            self._here.kind = new
            if old is not None:
                self._count[old] -= 1
            if new is not None:
                self._count[new] += 1
            if not self._count[_Kind.OURS] or self._count[_Kind.USERS]:
                if self._rests:
                    self._rests = False
                    gc.enable()
            elif gc.isenabled():
                self._rests = True
                gc.disable()


_collector = _Collector()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the collector from running meanwhile, but for blocks of `users_code` inside, or in other threads.

    It is one for all threads: what others do, when they are in neither kind of block, is not collected either.
    """
    with _collector.block(_Kind.OURS):
        yield


@contextmanager
def users_code() -> Iterator[None]:
    """Run code of the user's: the collector is as the user has set it."""
    with _collector.block(_Kind.USERS):
        yield
