"""Where results go: standard output, or a file that is written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from rematc.ir.errors import CompileError
from rematc.ir.locations import relative

#: What `-o` calls standard output.
STANDARD_OUTPUT = "-"


def print_text(text: str) -> None:
    """Print to standard output; characters that its encoding lacks come out escaped."""
    if sys.stdout is None:
        raise CompileError("standard output is closed; name a file with -o")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with _to_standard_output():
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        if not text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _to_standard_output() -> Iterator[None]:
    """Raises CompileError where standard output cannot be written, to a full disk for instance."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:  # ValueError where it was closed
        discard_output()
        raise CompileError(f"cannot write to standard output: {reason(error)}") from error


def discard_output() -> None:
    """Let Python's last flush of standard output go nowhere: it would fail once more."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def is_standard_output(path: Path) -> bool:
    """Whether `-o` names standard output: `-`, or whatever it is by another name, `/dev/stdout` for instance."""
    if str(path) == STANDARD_OUTPUT:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (AttributeError, OSError, ValueError):  # no such file; standard output is closed, or no file
        return False


def check_writable(path: Path, model: Path) -> None:
    """Find out before the work what would keep `write_file` from writing to `path`. Raises CompileError."""
    if path.is_dir():
        raise CompileError(f"cannot write {path}: it is a directory; name a file in it")
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise CompileError(f"cannot write {path}: no permission to write to it")
        return
    if path.exists() and path.samefile(model):
        raise CompileError(f"cannot write {path}: it is the model; name another file")
    folder = _target(path).parent
    if not folder.is_dir():
        raise CompileError(f"cannot write {path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK):
        raise CompileError(f"cannot write {path}: no permission to write in {folder}")


def write_file(path: Path, text: str) -> int:
    """Write `text` whole or not at all, and return its size in bytes.

    The text goes into a new file of the same folder, which then takes the place of `path`. A device or a pipe is
    written to directly. Raises CompileError where it cannot be written.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        if _is_special(path):  # by its own name: behind the link /dev/fd/63 is no path that could be opened
            with path.open("wb") as stream:
                stream.write(data)
        else:
            _replace(_target(path), data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CompileError(f"cannot write {relative(str(path))}: {reason(error)}") from error
    return len(data)


def reason(error: OSError | ValueError) -> str:
    """Why something cannot be written."""
    if isinstance(error, ValueError):
        return str(error)
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)


def _target(path: Path) -> Path:
    """The file behind links: replacing a link would leave what it leads to as it was."""
    return Path(os.path.realpath(path))


def _is_special(path: Path) -> bool:
    """Whether there is something that is no file: a pipe, a terminal, a device."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    # Mode 0666 and the umask, as for any new file; a file that is there keeps its own.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:  # Ctrl-C too leaves no file behind
        temporary.unlink(missing_ok=True)
        raise
