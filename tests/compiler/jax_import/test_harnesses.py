"""One of JAX's own harnesses for each primitive; benchmarks/suites/jax_harnesses.py runs them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "suites" / "jax_harnesses.py"


def test_a_harness_of_each_primitive_agrees_with_jax() -> None:
    pytest.importorskip("absl", reason="JAX's harnesses import absl-py")
    # Two of the gamma functions take 15 s to compile, everything else together as long.
    command = [sys.executable, str(SCRIPT), "--per-group", "1", "--skip", "igamma*", "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
