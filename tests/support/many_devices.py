"""Programs that need several devices: run in a process of their own, in which the CPU is so many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def said_by(program: str, devices: int, *flags: str) -> dict[str, Any]:
    """What a program prints as JSON where the CPU is so many devices; `flags` are more of XLA's."""
    environment = {
        **os.environ,
        "XLA_FLAGS": " ".join([f"--xla_force_host_platform_device_count={devices}", *flags]),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found
