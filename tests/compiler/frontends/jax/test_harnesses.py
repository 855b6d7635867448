"""One of JAX's own harnesses for each primitive; benchmarks/suites/jax_harnesses.py runs them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "suites" / "jax_harnesses.py"
#: What takes as long to compile as everything else together.
SLOW = ("igamma*", "random_gamma*", "bessel*", "regularized*", "custom_linear_solve*", "cum*", "tridiagonal*", "lu_*")


@pytest.mark.slow
def test_a_harness_of_each_primitive_agrees_with_jax() -> None:
    pytest.importorskip("absl", reason="JAX's harnesses import absl-py")
    command = [sys.executable, str(SCRIPT), "--per-group", "1", "--skip", *SLOW, "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
