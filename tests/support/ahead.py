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
        if "is not installed" not in error.message:
            raise
        pytest.skip(error.message)
    return target


def complaints(stderr: str) -> list[str]:
    """What a process has printed, but what NVIDIA's plugin of jaxlib 0.10 prints as it is loaded, whatever one does."""
    return [line for line in stderr.splitlines() if not ("cudart_stub.cc" in line or "absl::InitializeLog()" in line)]
