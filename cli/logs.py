"""What the command says beside its results: through `logging`, on standard error.

`remat-compile: wrote stablehlo to step.mlir (4.5 KiB)`, and for warnings `model.py:3: warning: ...`, as errors.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.text import Text

from rematc.ir.locations import relative

LOGGER = logging.getLogger("rematc.cli")
_PLACE = "place"


@contextlib.contextmanager
def logging_to_stderr(*, quiet: bool) -> Iterator[None]:
    """Show what is logged inside, and warnings, Python's included; with `quiet` warnings alone.

    What the model does to Python's own loggers changes nothing here.
    """
    handler = _Handler()
    level, propagates = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.WARNING if quiet else logging.INFO)
    LOGGER.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagates


class _Handler(logging.Handler):
    """Prints records as the command's errors are printed."""

    def emit(self, record: logging.LogRecord) -> None:
        is_warning = record.levelno >= logging.WARNING
        text = Text(f"{getattr(record, _PLACE, 'remat-compile')}: ", "bold")
        if is_warning:
            text.append("warning: ", "bold magenta")
        text.append(record.getMessage(), "not bold")
        with contextlib.suppress(OSError, ValueError):  # there is nowhere else to say it
            Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    kind = "" if category is UserWarning else f"{category.__name__}: "
    path = filename if filename.startswith("<") else relative(os.path.abspath(filename))
    LOGGER.warning("%s%s", kind, message, extra={_PLACE: f"{path}:{lineno}"})
