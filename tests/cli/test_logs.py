"""What the command says beside its results goes through `logging`, and is shown on standard error."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rematc.cli.logs import LOGGER
from tests.support.command import Command, WriteModel

WARNS = """
import logging
import warnings

def loss(x):
    warnings.warn("look here")
    return np.sum(np.sin(x))

def example_args():
    logging.basicConfig(level=logging.DEBUG, format="MODEL %(message)s", force=True)
    np.log(np.zeros(1))
    return (np.ones(3, np.float32),)
"""


def test_what_is_written_is_said_unless_quiet(command: Command, write_model: WriteModel) -> None:
    model = write_model(WARNS)
    said = command(model, "-o", "step.mlir").stderr
    assert "remat-compile: wrote stablehlo to step.mlir (" in said
    assert "MODEL wrote" not in said, "a model's own logging changes nothing"
    assert "wrote" not in command(model, "-o", "step.mlir", "-q").stderr


@pytest.mark.parametrize("options", [(), ("-q",)])
def test_warnings_are_a_line_with_their_place(
    command: Command, write_model: WriteModel, options: tuple[str, ...]
) -> None:
    lines = command(write_model(WARNS), "--emit", "ir", *options).stderr.splitlines()
    assert "model.py:7: warning: look here" in lines
    assert "model.py:12: warning: RuntimeWarning: divide by zero encountered in log" in lines


def test_nothing_of_it_stays(command: Command, small_model: Path) -> None:
    before = (list(LOGGER.handlers), LOGGER.level, LOGGER.propagate)
    assert command(small_model, "--emit", "ir").exit_code == 0
    assert command(small_model, "--entry", "none").exit_code == 1
    assert (list(LOGGER.handlers), LOGGER.level, LOGGER.propagate) == before


def test_programs_and_passes_are_logged(command: Command, small_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "rematc"):
        command(small_model, "--policy", "nothing", "-q")
    said = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert any(name == "rematc.compile" and text.startswith("compiled 'loss' for cpu in ") for name, _, text in said)
    passes = [text.partition(":")[0] for name, level, text in said if (name, level) == ("rematc.passes", "DEBUG")]
    assert {"partial_eval", "transpose", "legalize"} <= set(passes)
