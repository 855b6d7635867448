"""Run the command in process, on models written for the test."""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rematc.cli.main import main
from rematc.cli.progress import Progress
from tests.support.command import SMALL_MODEL, Command, WriteModel


@pytest.fixture(autouse=True)
def imports_as_before(tmp_path: Path) -> Iterator[None]:
    """Take back what loading a model does to this process."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command as a function of its arguments; it says nothing of its progress, however slow the machine is."""
    for module in ("command", "differing"):
        monkeypatch.setattr(f"rematc.cli.{module}.Progress", functools.partial(Progress, delay=3600.0))
    return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args], prog_name="remat-compile")


@pytest.fixture
def write_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteModel:
    """Write a model file into a fresh working directory; its path is relative."""
    monkeypatch.chdir(tmp_path)

    def write(source: str, name: str = "model.py") -> Path:
        Path(name).write_text("import numpy as np\n" + textwrap.dedent(source), encoding="utf-8")
        return Path(name)

    return write


@pytest.fixture
def small_model(write_model: WriteModel) -> Path:
    """sum(sin(w x)) with w: [3, 4], x: [4]."""
    return write_model(SMALL_MODEL)
