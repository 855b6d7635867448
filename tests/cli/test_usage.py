"""Command lines that are wrong by themselves: click's exit code 2, before any model is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rematc.cli.comparison import split_policies
from tests.support.command import Command, WriteModel


@pytest.fixture
def untouched(write_model: WriteModel) -> Path:
    """A model that must not be loaded."""
    return write_model("raise AssertionError('the model was loaded')")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--policy", "dotz"], "unknown policy 'dotz'; did you mean 'dots'?"),
        (["--policy", "names="], "the policy 'names' takes names: names=a,b"),
        (["--policy", "gone.py:f"], "names a file that is not there"),
        (["--compare", "none,dotz"], "Invalid value for '--compare': unknown policy 'dotz'"),
        (["--compare", ","], "Invalid value for '--compare': no policy is named; write none,dots"),
        (["--compare", ""], "no policy is named"),
        (["--passes", "cs"], "Invalid value for '--passes': there is no pass 'cs'; did you mean 'cse'?"),
        (["--arg", "f32[3"], "'f32[3' is no array type; write f32[5,4], i32[8] or bool[]"),
        (["--arg", "f33[3]"], "unknown element type 'f33' in 'f33[3]'; did you mean"),
        (["--argnums", "a"], "'a' is no list of positions; write 0 or 0,1"),
        (["--emit", "assembly"], "'assembly' is not one of 'ir', 'linear', 'forward'"),
        (
            ["--target", "gameboy"],
            "Invalid value for '--target': 'gameboy' is no target; devices that need not be here",
        ),
        (["--target", "h100", "--run"], "nothing runs on 'h100', which need not be here; leave out --run, or --target"),
        (["--emit", "ir", "--json"], "--emit prints the program and nothing else; leave out --emit or --json"),
        (["--emit", "ir", "--run"], "leave out --emit or --run"),
        (["--emit", "ir", "--compare", "none"], "leave out --emit or --compare"),
        (["--compare", "none", "--policy", "dots"], "leave out --policy, or add it to the list"),
        (["--compare", "none", "-o", "x"], "-o writes one; leave out one of them"),
        (["--barrier", "none", "--passes", "cse"], "leave out --passes, or write 'barriers{strategy=...}'"),
        (["--barrier", "wall"], "'wall' is not one of 'auto', 'optimization_barrier', 'call', 'conditional', 'none'"),
        (["-q", "-v"], "-q and -v exclude each other"),
        (["--frobnicate"], "No such option"),
    ],
)
def test_usage_error(command: Command, untouched: Path, args: list[str], message: str) -> None:
    result = command(untouched, *args)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_missing_file_is_a_usage_error(command: Command) -> None:
    result = command("no_such_model.py")
    assert result.exit_code == 2
    assert "File 'no_such_model.py' does not exist" in result.stderr


def test_no_model_is_a_usage_error(command: Command) -> None:
    result = command()
    assert result.exit_code == 2
    assert "Missing argument 'MODEL.py'" in result.stderr


@pytest.mark.parametrize(
    ("texts", "policies"),
    [
        (["none,dots,nothing"], ["none", "dots", "nothing"]),
        (["none, dots"], ["none", "dots"]),
        (["names=a,b"], ["names=a,b"]),
        (["none,names=a,b,dots"], ["none", "names=a,b", "dots"]),
        (["names=a,b+dots,nothing"], ["names=a,b+dots", "nothing"]),
        (["dots+names=a,b,nothing"], ["dots+names=a,b", "nothing"]),
        (["names=a,except=b,c"], ["names=a", "except=b,c"]),
        (["names=a,mine.py:f,b"], ["names=a", "mine.py:f", "b"]),
        (["names=a,dots_saveable"], ["names=a", "dots_saveable"]),
        (["none", "dots"], ["none", "dots"]),
        (["names=a", "names=b"], ["names=a", "names=b"]),
        (["dots,dots"], ["dots"]),
        (["dots,,none,"], ["dots", "none"]),
    ],
)
def test_commas_separate_policies_but_not_names(texts: list[str], policies: list[str]) -> None:
    assert split_policies(texts) == tuple(policies)


def test_list_policies_needs_no_model(command: Command) -> None:
    result = command("--list-policies")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["policy", "in", "JAX", "what", "it", "does"]
    listed = [line.split()[0] for line in lines[1:-1]]
    assert listed[0] == "none" and listed[-1] == "FILE.py:FUNCTION"
    assert {"dots", "nothing", "everything", "dots-no-batch", "names=a,b"} <= set(listed)


def test_help_names_every_option(command: Command) -> None:
    text = command("--help").stdout
    for option in (
        *("--entry", "--arg", "--argnums", "--policy", "--compare", "--emit", "--output", "--run", "--target"),
        *("--barrier", "--passes", "--print-between-passes", "--time-passes", "--json", "--list-policies"),
        *("--traceback", "--has-aux", "--quiet", "--verbose", "--version"),
        *("--html", "--completion", "--json-schema"),
    ):
        assert option in text


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        (("--policy", "dtos"), "dots"),
        (("--policy", "dots+nmes=a"), "names"),
        (("--compare", "none,dtos"), "dots"),
        (("--emit", "stablhlo"), "stablehlo"),
        (("--barrier", "cal"), "call"),
        (("--frontend", "numy"), "numpy"),
        (("--target", "h10"), "h100"),
        (("--target", "cup"), "cpu"),
        (("--budget", "devce"), "device"),
        (("--budget", "1GiB", "--never-repeat", "dot_genral"), "dot_general"),
        (("--slices", "aut"), "auto"),
        (("--passes", "simplfy"), "simplify"),
        (("--passes", "barriers{stratgy=call}"), "strategy"),
        (("--passes", "barriers{strategy=cal}"), "call"),
        (("--arg", "f23[3]"), "f32"),
        (("--completion", "bsh"), "bash"),
        (("--polcy", "dots"), "--policy"),
    ],
)
def test_misspelt_words_are_asked_about(
    command: Command, small_model: Path, options: tuple[str, ...], meant: str
) -> None:
    result = command(small_model, *options)
    assert result.exit_code == 2
    assert re.search(f"[Dd]id you mean .*'{meant}'", result.stderr), result.stderr


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        (("--entry", "los"), "loss"),
        (("--policy", "names=hiden"), "hidden"),
        (("--budget", "1GiB", "--keep", "hiden"), "hidden"),
    ],
)
def test_misspelt_names_of_the_model_are_asked_about(
    command: Command, write_model: WriteModel, options: tuple[str, ...], meant: str
) -> None:
    model = write_model(
        "import rematc\n"
        "def loss(w, x):\n    return np.sum(np.sin(rematc.checkpoint_name(np.dot(w, x), 'hidden')))\n"
        "def example_args():\n    return np.ones((3, 4), np.float32), np.ones(4, np.float32)\n"
    )
    result = command(model, *options, "-q")
    assert result.exit_code == 1 and f"did you mean '{meant}'?" in result.stderr
