"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rematc.cli.output import reason
from rematc.ir.errors import CompileError
from rematc.ir.locations import relative

#: The file that a folder of ours has, which links to all others, and how it begins.
INDEX = "index.html"
MARK = "<!doctype html><!-- remat-compile --dump -->"
_LINK = re.compile(r'<a href="([^"]*)"')


def check_folder(folder: Path) -> None:
    """Find out before the work what would keep `whole_folder` from writing. Raises CompileError."""
    if folder.exists() and not folder.is_dir():
        raise CompileError(f"cannot write {folder}: it is no directory; name another one")
    if folder.exists() and (found := _not_ours(folder)) is not None:
        raise CompileError(
            f"cannot write {folder}: it has {found}, which --dump did not write there; name another directory"
        )
    above = Path(os.path.realpath(folder)).parent
    if not above.is_dir():
        raise CompileError(f"cannot write {folder}: there is no directory {above}")
    if not os.access(above, os.W_OK):
        raise CompileError(f"cannot write {folder}: no permission to write in {above}")


def check_trace_folder(folder: Path) -> None:
    """Find out before the work what would keep a trace from being written below a folder. Raises CompileError."""
    if folder.exists() and not folder.is_dir():
        raise CompileError(f"cannot write a trace to {folder}: it is no directory; name another one")
    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    if not os.access(existing, os.W_OK):
        raise CompileError(f"cannot write a trace to {folder}: no permission to write in {existing}")


def _not_ours(folder: Path) -> str | None:
    """A file of a directory that no earlier run wrote; None where it is empty, or all of it is such a run's."""
    try:
        text = (folder / INDEX).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    ours = {INDEX, *_LINK.findall(text)} if text.startswith(MARK) else set()
    files = (str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if not path.is_dir())
    return next((file for file in files if file not in ours), None)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` to write into, which takes its place at the end.

    On any error, and on Ctrl-C, it is gone, and `folder` is as it was. Raises CompileError where it cannot be written.
    """
    target = Path(os.path.realpath(folder))
    suffix = secrets.token_hex(4)
    made, old = (target.with_name(f".{target.name[:100]}.{suffix}.{kind}") for kind in ("tmp", "old"))
    try:
        with _writing(folder):
            made.mkdir()
        yield made
        with _writing(folder):
            _exchange(made, target, old)
    finally:
        for rest in (made, old):
            shutil.rmtree(rest, ignore_errors=True)


def _exchange(made: Path, target: Path, old: Path) -> None:
    if target.exists():
        target.replace(old)
    try:
        made.replace(target)
    except BaseException:
        if old.exists():
            old.replace(target)
        raise


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CompileError(f"cannot write {relative(str(path))}: {reason(error)}") from error


def write_text(folder: Path, name: str, text: str) -> int:
    """Write a file of a folder, and return its size in bytes. Raises CompileError where it cannot be written."""
    data = text.encode("utf-8", "backslashreplace")
    with _writing(folder / name):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return len(data)
