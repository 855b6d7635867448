"""Functions of the user's that programs call: what they raise, and waiting until they have run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rematc.ir.host_functions import CallbackError


class _Failures:
    """What functions of the user's raised last, in which thread: XLA gives back nothing but a text.

    Others than ours may get that text, where a program of ours is a part of theirs: what nobody takes is forgotten.
    """

    def __init__(self) -> None:
        self._last = deque[tuple[int, CallbackError]](maxlen=16)
        self._lock = threading.Lock()

    def note(self, error: CallbackError) -> None:
        with self._lock:
            self._last.append((threading.get_ident(), error))

    def take(self, text: str) -> CallbackError | None:
        """The last one that a text of XLA's tells of; of this thread, unless XLA made the call in one of its own."""
        with self._lock:
            told = [one for one in self._last if str(one[1]).partition("\n")[0] in text]
            here = [one for one in told if one[0] == threading.get_ident()]
            if not told:
                return None
            found = (here or told)[-1]
            self._last.remove(found)
        return found[1]


_failures = _Failures()


def remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose exceptions `take_failure` gives."""

    def call(*arrays: Any) -> Any:
        try:
            return function(*[np.asarray(array) for array in arrays])
        except CallbackError as error:
            _failures.note(error)
            raise

    return call


def take_failure(text: str) -> CallbackError | None:
    """The exception of a function of the user's that XLA tells of in this text."""
    return _failures.take(text)


def settle(results: Any) -> None:
    """Wait until these results are there, and everything that programs print or call has happened."""
    jax.block_until_ready(results)  # type: ignore[no-untyped-call]  # JAX leaves both without annotations
    jax.effects_barrier()  # type: ignore[no-untyped-call]
