"""Progress on standard error, for what takes longer than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from rematc.cli.logs import LOGGER

R = TypeVar("R")
DELAY_SECONDS = 1.0
LISTENING_SECONDS = 0.1  # how long Ctrl-C may go unheard while a thread works


class AbandonedWork(KeyboardInterrupt):
    """Ctrl-C while a thread is in a call that cannot be interrupted: the process has to end without it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Says what the command is doing: a spinner if standard error is a terminal, else a plain line for each phase.

    Attributes:
        quiet: whether to say nothing.
        delay: seconds before a phase is worth a word.
    """

    quiet: bool = False
    delay: float = DELAY_SECONDS

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Name what happens inside, if it takes long."""
        if self.quiet:
            yield
            return
        indicator = _Indicator(what)
        timer = threading.Timer(self.delay, indicator.show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            indicator.close()


class _Indicator:
    """What shows one phase. `show` runs in the timer's thread, `close` in the caller's."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._is_closed = False

    def show(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            if not sys.stderr.isatty():
                LOGGER.info("%s ...", self._what)
                return
            # The streams stay as they are: the model may print while it is traced.
            self._live = Live(
                Spinner("dots", self._what),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._live is not None:
                self._live.stop()


def interruptible(function: Callable[[], R]) -> R:
    """Call `function` in a thread of its own, so that Ctrl-C ends the command at once.

    XLA compiles and runs inside one call that Python cannot interrupt. The caller's thread waits in pieces: a signal
    that another thread takes, or that comes just before a wait begins, is noted and wakes nobody. Raises what
    `function` raises, and AbandonedWork for Ctrl-C while it runs.
    """
    outcome: list[R] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(function())
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name="remat-compile-xla", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(LISTENING_SECONDS)
    except KeyboardInterrupt:
        raise AbandonedWork from None
    if failure:
        raise failure[0]
    return outcome[0]
