"""Progress on standard error, and calls that Ctrl-C must not wait for."""

from __future__ import annotations

import signal
import threading

import pytest

from rematc.cli.logs import logging_to_stderr
from rematc.cli.progress import AbandonedWork, Progress, interruptible


def test_quick_phase_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress().phase("compiling"):
        pass
    assert capsys.readouterr() == ("", "")


def test_slow_phase_says_so_once_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    shown = threading.Event()

    class Stream:
        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> int:
            lines.append(text)
            shown.set()
            return len(text)

        def flush(self) -> None:
            pass

    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", Stream())
        with logging_to_stderr(quiet=False), Progress(delay=0.0).phase("compiling"):
            assert shown.wait(10)
    assert "".join(lines) == "remat-compile: compiling ...\n"
    assert capsys.readouterr().out == ""


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=True, delay=0.0).phase("compiling"):
        threading.Event().wait(0.05)
    assert capsys.readouterr() == ("", "")


def test_phase_lets_errors_through() -> None:
    with pytest.raises(KeyError), Progress().phase("compiling"):
        raise KeyError


def test_interruptible_returns_what_the_call_returns() -> None:
    assert interruptible(lambda: 3) == 3


def test_interruptible_raises_what_the_call_raises() -> None:
    def fail() -> None:
        raise ValueError("from the thread")

    with pytest.raises(ValueError, match="from the thread"):
        interruptible(fail)


@pytest.mark.parametrize("delay", [0.0, 0.5], ids=["at once", "once the caller waits"])
def test_ctrl_c_abandons_the_call_whatever_thread_takes_the_signal(delay: float) -> None:
    release = threading.Event()

    def work() -> None:
        release.wait(delay)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not release.wait(30):
            waited.append(30)

    waited: list[int] = []
    try:
        with pytest.raises(AbandonedWork):
            interruptible(work)
        assert not waited, "it was heard when the call was over"
    finally:
        release.set()
