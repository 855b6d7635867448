"""`remat-compile diff`: two programs, plans or reports beside each other."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import SMALL_MODEL, Command, WriteModel

ROOT = Path(__file__).parents[2]
MODEL = "examples/sin_chain.py"
CHAIN = """
def layer(w, x):
    return x + np.tanh(x @ w)

def loss(layers, x):
    for w in layers:
        x = layer(w, x)
    return np.mean(x * x)

def example_args():
    return np.full((6, 32, 32), 0.1, np.float32), np.ones((256, 32), np.float32)
"""


def rows(text: str) -> dict[str, Sequence[str]]:
    return {cells[0]: cells[1:] for line in text.splitlines() for cells in [re.split("  +", line)]}


def test_one_program_under_two_policies(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = command("diff", f"{MODEL}@none", f"{MODEL}@nothing", "--argnums", "0,1,2,3")
    assert result.exit_code == 0, result.stderr
    found = rows(result.stdout)
    assert found["policy"] == ["none", "nothing"]
    assert found["kept"] == ["116 B", "0 B", "0.00x"]
    assert found["products recomputed"][:2] == ["0", "3"]
    assert found["output of sine"], "a row of what only one of them keeps"
    assert "kept differently: 5 rows, -116 B" in result.stdout
    assert "computed again differently" in result.stdout


def test_as_json(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = command("diff", f"{MODEL}@none", f"{MODEL}@nothing", "--json")
    document: Any = json.loads(result.stdout)
    assert document["names"] == [f"{MODEL}@none", f"{MODEL}@nothing"]
    kept = [one for one in document["changed"] if one["is_kept"]]
    first, second = document["figures"]["kept_bytes"]
    assert sum(one["size"] * (one["counts"][0] - one["counts"][1]) for one in kept) == first - second > 0


def test_reports_that_were_written_before(command: Command, small_model: Path) -> None:
    for policy in ("none", "nothing"):
        Path(f"{policy}.json").write_text(command(str(small_model), "--policy", policy, "--json").stdout)
    of_files = command("diff", "none.json", "nothing.json")
    of_programs = command("diff", f"{small_model}@none", f"{small_model}@nothing")
    assert of_files.exit_code == of_programs.exit_code == 0
    assert rows(of_files.stdout)["kept"] == rows(of_programs.stdout)["kept"]
    same = command("diff", "none.json", f"{small_model}")
    assert "the same values are kept and computed again" in same.stdout


def test_programs_of_two_files_are_told_apart_by_function(command: Command, write_model: WriteModel) -> None:
    write_model(SMALL_MODEL, "old.py")
    write_model("\n\n" + SMALL_MODEL, "new.py")
    result = command("diff", "old.py", "new.py")
    assert "the same values are kept and computed again" in result.stdout, "two lines further down"


def test_two_plans(command: Command, write_model: WriteModel) -> None:
    model = write_model(CHAIN)
    for budget in ("60%", "90%"):
        assert command(str(model), "--budget", budget, "--save-plan", f"{budget[:2]}.json", "-q").exit_code == 0
    result = command("diff", "60.json", "90.json")
    assert result.exit_code == 0, result.stderr
    assert rows(result.stdout)["predicted peak"]
    assert "computed again by the first plan, kept by the second" in result.stdout
    beside = command("diff", "60.json", f"{model}@budget=60%")
    assert beside.exit_code == 0 and rows(beside.stdout)["temporary memory"][0] == "-"


@pytest.mark.parametrize(
    ("operands", "code", "message"),
    [
        (("--json", "a.py", "b.py"), 2, "options come behind them"),
        (("model.py",), 2, "Missing argument 'B'"),
        (("model.py@nope", "model.py"), 2, "unknown policy 'nope'"),
        (("model.py", "model.py", "--emit", "ir"), 2, "leave out --emit"),
        (("missing.json", "model.py"), 1, "cannot read missing.json"),
        (("other.json", "model.py"), 1, "other.json is no report"),
    ],
)
def test_what_cannot_be_compared(
    command: Command, small_model: Path, operands: tuple[str, ...], code: int, message: str
) -> None:
    Path("other.json").write_text("{}")
    result = command("diff", *operands)
    assert result.exit_code == code
    assert message in result.stderr


def test_a_file_called_diff_is_a_model_as_before(command: Command, write_model: WriteModel) -> None:
    write_model(SMALL_MODEL, "diff")
    result = command("diff", "--emit", "ir")
    assert result.exit_code == 0 and result.stdout.startswith("graph @loss")


def test_its_help_says_what_it_takes(command: Command) -> None:
    result = command("diff", "--help")
    assert result.exit_code == 0 and "model.py@none model.py@dots" in result.stdout
