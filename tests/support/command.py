"""The command in tests: the types of the fixtures in tests/cli/conftest.py, and a model for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Command = Callable[..., Result]
WriteModel = Callable[..., Path]

SMALL_MODEL = """
def loss(w, x):
    return np.sum(np.sin(np.dot(w, x)))

def example_args():
    rng = np.random.default_rng(0)
    return rng.standard_normal((3, 4), dtype=np.float32), rng.standard_normal(4, dtype=np.float32)
"""
