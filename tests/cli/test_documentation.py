"""The commands in docs/command.md print what stands there, but for times and what XLA counts."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from rematc.cli import errors
from rematc.cli.defaults import KEYS
from tests.support.command import SMALL_MODEL, Command, WriteModel

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n\$ (.*)\n((?:.*\n)*?)```$", re.MULTILINE)
TEXT = (ROOT / "docs" / "command.md").read_text()
BLOCKS = BLOCK.findall(TEXT)


def lasting(text: str) -> list[str]:
    """The lines without what depends on the machine and on XLA's version."""
    lines = []
    for line in text.splitlines():
        steady = re.sub(r"\d[\d.]* (us|ms|s)\b", "TIME", line)
        steady = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.3g}", steady)
        if re.match(r"temporary memory|predicted|FLOPs|compile time|memory: |--barrier call", steady):
            steady = re.sub(r"\d[\d.]* ?([KM]i)?(B|FLOP|x)?", "AMOUNT", steady)
        if compared := re.match(r"((?:none|dots|nothing) +\d+ B) +\d.* TIME( .*)", steady):
            steady = compared[1] + compared[2]
        steady = re.sub("costs memory|saves nothing", "SAVES NONE", steady)  # by how XLA pads a few bytes
        if re.fullmatch(r"remat-compile: .* \.\.\.", steady):
            continue  # progress, which shows only where a step takes over a second
        lines.append(" ".join(steady.replace("median of 30", "median of N").split()))
    return lines


#: Objects whose keys are names: of operations, of arguments, of functions.
BY_NAME = ("recomputed", "gradient_norms", "uncounted_calls")


def keys_of(value: object) -> set[str]:
    """The keys of a JSON document, at any depth."""
    match value:
        case dict():
            below = [keys_of(item) for key, item in value.items() if key not in BY_NAME or not isinstance(item, dict)]
            return {*value, *itertools.chain.from_iterable(below)}
        case list():
            return set(itertools.chain.from_iterable(map(keys_of, value)))
    return set()


def test_every_key_of_the_json_is_documented(command: Command, write_model: WriteModel) -> None:
    model = write_model(SMALL_MODEL)
    report = json.loads(command(model, "--policy", "nothing", "--json", "--run", "--profile").stdout)
    compared = json.loads(command(model, "--compare", "none,nothing", "--json").stdout)
    assert report["check"]["saving"] is not None
    told = set(re.findall(r"`(\w+)`", TEXT.partition("## For programs")[2].partition("## Errors")[0]))
    assert keys_of(report) | keys_of(compared) <= told


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 7


@pytest.mark.each_case
@pytest.mark.parametrize(("line", "printed"), BLOCKS, ids=[line for line, _ in BLOCKS])
def test_example(command: Command, monkeypatch: pytest.MonkeyPatch, line: str, printed: str) -> None:
    monkeypatch.chdir(ROOT)
    call, *filters = line.split(" | ")
    call, has_redirection, _ = call.partition(" 2>&1 >/dev/null")
    result = command(*shlex.split(call)[1:])
    assert result.exit_code in (0, 1), result.output
    text = result.stderr if has_redirection else result.output
    if filters:
        text = subprocess.run(
            " | ".join(filters), shell=True, input=text, capture_output=True, text=True, check=True
        ).stdout
    assert lasting(text) == lasting(printed)


def test_every_key_of_a_projects_table_is_documented() -> None:
    told = TEXT.partition("## Defaults of a project")[2].partition("## For programs")[0]
    assert set(KEYS) <= set(re.findall(r"`([a-z-]+)`", told))


EXIT_CODES = {"0", str(errors.USER_ERROR), "2", str(errors.OUR_ERROR), str(errors.INTERRUPTED), str(errors.BROKEN_PIPE)}


def test_every_exit_code_is_documented() -> None:
    assert set(re.findall(r"^\| (\d+) \|", TEXT.partition("## Errors")[2], re.MULTILINE)) == EXIT_CODES
