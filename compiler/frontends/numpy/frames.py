"""Who called: what the frames of Python's stack tell."""

from __future__ import annotations

import dis
import sys
from types import FrameType

import numpy as np


def asking_function() -> str | None:
    """The function of NumPy, written in Python, that asked for the elements, as users write it."""
    frame, found = sys._getframe(2), None
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "numpy":
        found, frame = frame, frame.f_back  # type: ignore[assignment]  # None at the bottom of the stack
    if found is None:
        return None
    # A public name stands in a public module: np.require, whose code is elsewhere.
    name = found.f_code.co_qualname.split(".")[0]
    module = found.f_globals["__name__"]
    return f"np.{name}" if hasattr(np, name) and "polynomial" not in module else f"np{module[len('numpy') :]}.{name}"


def is_assignment(frame: FrameType) -> bool:
    """Whether a frame runs x[i] = y itself, and does not call what does."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return name.startswith("STORE")


def asking_logarithm() -> str | None:
    """The name of logsumexp, softmax or log_softmax of SciPy, if it asked for the elements."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_name
        if module == "scipy.special._logsumexp" and name in ("logsumexp", "softmax", "log_softmax"):
            return name
        frame = frame.f_back if module.split(".", maxsplit=1)[0] in ("numpy", "scipy") else None
    return None
