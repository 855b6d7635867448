"""Defaults of options in pyproject.toml, completion in shells, and what --version says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

import rematc
from rematc.cli.defaults import KEYS, defaults_for
from rematc.cli.main import main
from tests.support.command import Command

ROOT = Path(__file__).parents[2]


def table(text: str, folder: Path | None = None) -> None:
    ((folder or Path()) / "pyproject.toml").write_text(f"[project]\nname = 'mine'\n[tool.rematc]\n{text}\n")


def policy_of(command: Command, *args: str) -> object:
    result = command("model.py", "--json", "-q", *args)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["policy"]


def test_options_have_defaults_and_the_command_line_comes_first(command: Command, small_model: Path) -> None:
    table("policy = 'nothing'")
    assert policy_of(command) == "nothing"
    assert policy_of(command, "--policy", "dots") == "dots"


def test_the_nearest_table_above_the_model_counts(command: Command, small_model: Path) -> None:
    inner = Path("inner/deep")
    inner.mkdir(parents=True)
    (inner / "model.py").write_text(small_model.read_text())
    table("policy = 'nothing'")
    (Path("inner") / "pyproject.toml").write_text("[project]\nname = 'without a table'\n")
    assert defaults_for(inner / "model.py", {}) == {"policy": "nothing"}
    table("policy = 'auto'", inner)
    assert defaults_for(inner / "model.py", {}) == {"policy": "auto"}
    assert defaults_for(small_model, {}) == {"policy": "nothing"}


def test_every_key_is_an_option_and_is_taken(small_model: Path) -> None:
    table(
        "entry = 'loss'\nfrontend = 'numpy'\narg = ['f32[3,4]', 'f32[4]']\nargnums = [0, 1]\nhas-aux = false\n"
        "policy = 'dots'\nbudget = 4096\nkeep = ['a', 'b']\nnever-repeat = ['tanh']\nplan-seconds = 2.5\n"
        "slices = 4\ntarget = 'cpu'\nbarrier = 'call'\npasses = 'cse'\nstrict = true\nquiet = true\nverbose = false"
    )
    found = defaults_for(small_model, {})
    assert set(found) == {parameter for parameter, _ in KEYS.values()} <= {one.name for one in main.params}
    assert (found["argnums"], found["keep"], found["budget"], found["slices"]) == ("0,1", "a,b", "4096", "4")
    assert found["args"] == ["f32[3,4]", "f32[4]"]


@pytest.mark.parametrize(
    ("text", "given", "left"),
    [
        ("policy = 'dots'", {"compare": ["none"]}, {}),
        ("policy = 'dots'", {"pareto": True}, {}),
        ("budget = '50%'\nkeep = ['a']", {"plan": "p.json"}, {}),
        ("budget = '50%'\nkeep = ['a']", {"emit": "backward"}, {}),
        ("budget = '50%'\nplan-seconds = 1", {"emit": "plan"}, {"budget": "50%", "plan_seconds": 1}),
        ("keep = ['a']\nplan-seconds = 1", {}, {}),
        ("keep = ['a']\nplan-seconds = 1", {"budget": "50%"}, {"keep": "a", "plan_seconds": 1}),
        ("slices = 'auto'", {"pareto": True}, {}),
        ("slices = 'auto'", {"emit": "backward"}, {}),
        ("strict = true\nquiet = true", {"emit": "ir"}, {"quiet": True}),
        ("verbose = true", {"quiet": True}, {}),
    ],
)
def test_a_default_gives_way_to_what_excludes_it(
    small_model: Path, text: str, given: dict[str, object], left: dict[str, object]
) -> None:
    table(text)
    assert defaults_for(small_model, given) == left


def test_a_module_takes_no_defaults_of_derivatives(small_model: Path) -> None:
    table("policy = 'dots'\nbudget = '1GiB'\nargnums = [1]")
    assert defaults_for(Path("step.mlir"), {}) == {"budget": "1GiB"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy = 'dots'", "[tool.rematc] has no option 'polcy'; did you mean 'policy'?"),
        ("zzz = 1", "[tool.rematc] has no option 'zzz'; known: entry, frontend"),
        ("policy = 3", "policy of [tool.rematc] is 3, expected text"),
        ("argnums = []", "expected a list of integers"),
        ("strict = 'yes'", "expected true or false"),
        ("policy = 'nope'", "unknown policy 'nope'"),
        ("policy = ", "cannot read"),
    ],
)
def test_what_is_wrong_with_a_table(command: Command, small_model: Path, text: str, message: str) -> None:
    table(text)
    result = command("model.py")
    assert result.exit_code == 2
    assert message in result.stderr


def test_help_needs_no_table(command: Command, small_model: Path) -> None:
    table("polcy = 'dots'")
    assert command("model.py", "--help").exit_code == command("model.py", "--version").exit_code == 0
    with pytest.raises(click.UsageError):
        defaults_for(small_model, {})


def test_version_says_what_compiles_and_on_what(command: Command) -> None:
    first, versions, devices = command("--version").stdout.splitlines()
    assert first == f"remat-compile, version {rematc.__version__}"
    assert f"jax {version('jax')}, jaxlib {version('jaxlib')}, " in versions and "Python 3." in versions
    assert devices.startswith("devices: ") and "cpu" in devices


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_the_shells_own(command: Command, shell: str) -> None:
    result = command("--completion", shell)
    assert result.exit_code == 0
    assert "_REMAT_COMPILE_COMPLETE" in result.stdout and "remat-compile" in result.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("remat-compile --bud", ["--budget"]),
        ("remat-compile model.py --policy dots", ["dots", "dots-no-batch"]),
        ("remat-compile model.py --target v5", ["v5e", "v5p"]),
        ("remat-compile model.py --emit hlo", ["hlo", "hlo-optimized"]),
    ],
)
def test_words_are_completed(line: str, found: list[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    code = "from rematc.cli.main import main; main(prog_name='remat-compile')"
    environment = {**os.environ, **words, "_REMAT_COMPILE_COMPLETE": "bash_complete"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.partition(",")[2] for line in ran.stdout.split()] == found, ran.stderr
