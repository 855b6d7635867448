"""Targets that are not here: which of them XLA compiles for in this environment."""

from __future__ import annotations

import pytest

import rematc

#: One of each compiler, which is enough for what does not depend on the model.
COMPILERS = ("h100", "v5e")


def compiler_for(target: str) -> str:
    """The target. Skips the test where its compiler is not installed."""
    try:
        rematc.targets.devices(target)
    except rematc.CompileError as error:
        pytest.skip(error.message)
    return target
