"""The command's outermost frame: every exception becomes a message and an exit code.

model.py:12:8: error: np.fft is not supported ...
   12 |     return np.fft.fft(x)
      |            ^
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType

import click
from rich.console import Console
from rich.text import Text

from rematc.cli.output import discard_output
from rematc.cli.progress import AbandonedWork
from rematc.cli.source import Excerpt, excerpt, excerpt_at_character
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.locations import Location

USER_ERROR = 1  # 2 is click's, for the command line
OUR_ERROR = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells count
BROKEN_PIPE = 141  # 128 + SIGPIPE
LONGEST = 4000  # characters of a message

_LIBRARY_FOLDERS = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def guarded(action: Callable[[], None], *, show_traceback: bool) -> int:
    """Call `action` and return the command's exit code, having printed what went wrong if something did."""
    if sys.stderr is None:  # closed by who called us; print(file=None) would write to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process
    try:
        action()
    except AbandonedWork:
        _print_line("interrupted")
        _exit_at_once(INTERRUPTED)
    except KeyboardInterrupt:
        _print_line("interrupted")
        return INTERRUPTED
    except BaseException as error:  # a model may raise anything
        if show_traceback:
            _print_traceback()
        return _outcome(error)
    return 0


def _outcome(error: BaseException) -> int:
    """The exit code, having printed what is to be said. Usage errors are click's: it prints them and exits with 2."""
    _, is_users = _innermost_user_frame(error.__traceback__)
    if not is_users and isinstance(error, click.exceptions.ClickException):
        raise error
    if not is_users and isinstance(error, BrokenPipeError):
        discard_output()
        return BROKEN_PIPE
    return _explain(error)


def _print_traceback() -> None:
    with contextlib.suppress(OSError):  # a full disk, a terminal that is gone
        traceback.print_exc()


def _explain(error: BaseException) -> int:
    """Print an error in the user's terms and return the exit code."""
    match error:
        case CompileError():
            loc = error.loc or _innermost_user_frame(error.__traceback__)[0]
            _print_error(error.message, excerpt(loc) if loc else None)
            return USER_ERROR
        case SyntaxError() if error.filename and error.lineno:
            place = Location(error.filename, error.lineno, error.offset or 0)
            _print_error(f"{type(error).__name__}: {error.msg}", excerpt_at_character(place))
            return USER_ERROR
        case MemoryError():
            loc = _innermost_user_frame(error.__traceback__)[0]
            _print_error("out of memory; compile for smaller arguments", excerpt(loc) if loc else None)
            return USER_ERROR
    if "RESOURCE_EXHAUSTED" in _text(error):
        _print_error(f"XLA ran out of memory: {_first_line(error)}; try a policy that saves less", None)
        return USER_ERROR
    return _explain_unexpected(error)


def _explain_unexpected(error: BaseException) -> int:
    """An exception that is no CompileError: the user's if the user's code raised it, else ours."""
    user_frame, is_users = _innermost_user_frame(error.__traceback__)
    place = excerpt(user_frame) if user_frame else None
    if is_users and not isinstance(error, InternalError):
        _print_error(_named(error), place)
        return USER_ERROR
    _print_error(f"a fault of rematc: {_named(error)}", place)
    _print_line("please report it, with the model and what --traceback prints", "note")
    return OUR_ERROR


def _named(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        hint = (
            "; arguments of its own go behind --, as in model.py -- --size 3" if error.code == 2 else ""
        )  # argparse's
        return f"the model called sys.exit({error.code!r}){hint}"
    text = _text(error)
    if isinstance(error, InternalError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the model's exceptions are the model's code
        return "(its __str__ raises an exception)"


def _first_line(error: BaseException) -> str:
    return _text(error).partition("\n")[0]


# -- whose frame -----------------------------------------------------------------------------------------------------


def _innermost_user_frame(trace: TracebackType | None) -> tuple[Location | None, bool]:
    """The user's innermost line, and whether nothing of rematc ran below it."""
    found: Location | None = None
    is_users = False
    for frame, location in _frames(trace):
        if frame.f_globals.get("__name__", "").partition(".")[0] == "rematc":
            is_users = False
        elif not _is_library(frame.f_code.co_filename):
            found, is_users = location, True
    return found, is_users


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, Location]]:
    """Frames, outermost first, with the place that each has reached."""
    while trace is not None:
        code = trace.tb_frame.f_code
        positions = list(code.co_positions())
        at = trace.tb_lasti // 2
        column = positions[at][2] if at < len(positions) else None
        yield trace.tb_frame, Location(code.co_filename, trace.tb_lineno, 0 if column is None else column + 1)
        trace = trace.tb_next


def _is_library(file: str) -> bool:
    return file.startswith("<") or os.path.realpath(file).startswith(_LIBRARY_FOLDERS)


# -- printing --------------------------------------------------------------------------------------------------------


def _print_error(message: str, place: Excerpt | None) -> None:
    text = Text()
    text.append(f"{place.place if place else 'remat-compile'}: ", "bold")
    text.append("error: ", "bold red")
    text.append(_legible(message))
    for line in place.lines if place else ():
        text.append("\n")
        text.append(line, "bold green" if line.endswith("^") else "")
    _print(text)


def _legible(message: str) -> str:
    """The message without what would change the terminal, and without its end where it is endless."""
    shown = message if len(message) <= LONGEST else f"{message[:LONGEST]} ... ({len(message)} characters)"
    return "".join([char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in shown])


def _print_line(message: str, kind: str = "") -> None:
    text = Text("remat-compile: ", "bold")
    if kind:
        text.append(f"{kind}: ", "bold red" if kind == "error" else "bold cyan")
    text.append(message, "not bold")
    _print(text)


def _print(text: Text) -> None:
    with contextlib.suppress(OSError, ValueError):  # there is nowhere else to say it
        Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def _exit_at_once(code: int) -> None:
    """End the process without waiting for threads."""
    sys.stderr.flush()
    os._exit(code)
