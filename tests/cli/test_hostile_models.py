"""Model files that are broken, odd or malicious: each gives a message with its place, and never a traceback."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.command import Command, WriteModel


def refused(result: Result, *parts: str) -> None:
    """The command has failed with a message that has these parts."""
    assert result.exit_code == 1, result.stderr
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr and "a fault of rematc" not in result.stderr
    assert result.stdout == ""


# -- files that Python does not read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = 1\n\0\n", "Python cannot compile model.py: source code "),
        (b"\xff\xfe\x80 = 3\n", "SyntaxError: "),
        (b"# -*- coding: klingon -*-\n", "klingon"),
        (b"x = '\xe9'\n", "SyntaxError: "),
        (b"def loss(x): return " + b"(" * 300 + b"x" + b")" * 300, "SyntaxError: too many nested parentheses"),
        (b"def loss(x): return x" + b"+x" * 100_000, "Python cannot compile model.py: "),
        (b"x = " + b"-" * 100_000 + b"1", "model.py"),
    ],
    ids=["null byte", "binary", "unknown encoding", "not UTF-8", "parentheses", "long sum", "long sign"],
)
def test_what_python_cannot_read_is_the_models_fault(
    command: Command, write_model: WriteModel, data: bytes, message: str
) -> None:
    write_model("").write_bytes(data)
    refused(command("model.py", "--arg", "f32[3]"), message)


def test_another_encoding_is_read_and_shown(command: Command, write_model: WriteModel) -> None:
    source = "# -*- coding: latin-1 -*-\nimport numpy as np\ndef loss(x): return np.sum('\xe9'.join(y))\n"
    write_model("").write_bytes(source.encode("latin-1"))
    refused(command("model.py", "--arg", "f32[3]"), "model.py:3:", "NameError: name 'y' is not defined", "'é'.join(y)")


def test_of_a_long_line_the_place_is_shown(command: Command, write_model: WriteModel) -> None:
    terms = " + x" * 500
    result = command(write_model(f"def loss(x): return np.sum(x{terms} + y{terms})"), "--arg", "f32[3]")
    refused(result, "NameError: name 'y' is not defined")
    _, shown, caret = result.stderr.splitlines()
    assert len(shown) < 200
    assert shown[caret.index("^")] == "y"


# -- what a model raises -----------------------------------------------------------------------------------------------


RAISED = [
    ("raise SystemExit(5)", "the model called sys.exit(5)"),
    ("raise RecursionError('deep')", "RecursionError: deep"),
    ("return loss(x)", "RecursionError: "),
    ("raise MemoryError", "out of memory"),
    ("raise BrokenPipeError('mine')", "BrokenPipeError: mine"),
    ("raise BaseException('bare')", "BaseException: bare"),
    ("raise GeneratorExit", "GeneratorExit"),
    ("import click; raise click.UsageError('mine')", "UsageError: mine"),
    ("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})", "Mute: (its __str__ raises an exception)"),
    ("raise Exception('a\\x1b[2Jb\\0c')", "Exception: a\\x1b[2Jb\\x00c"),
    ("raise Exception('x' * 100_000)", "xxx ... (100011 characters)"),
    ("open('/nowhere/at/all')", "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all'"),
]


@pytest.mark.parametrize(("line", "message"), RAISED, ids=[line for line, _ in RAISED])
def test_what_a_model_raises_is_shown_with_its_line(
    command: Command, write_model: WriteModel, line: str, message: str
) -> None:
    result = command(write_model(f"def loss(x):\n    {line}\n    return np.sum(x)"), "--arg", "f32[3]")
    refused(result, "model.py:3:", message)
    assert len(result.stderr) < 10_000 and "\x1b" not in result.stderr


@pytest.mark.parametrize("source", ["raise KeyboardInterrupt", "def loss(x):\n    raise KeyboardInterrupt"])
def test_a_model_that_interrupts_itself(command: Command, write_model: WriteModel, source: str) -> None:
    result = command(write_model(source), "--arg", "f32[3]", "-o", "out.mlir")
    assert (result.exit_code, result.stderr) == (130, "remat-compile: interrupted\n")
    assert not Path("out.mlir").exists()


def test_a_model_that_prints_does_not_disturb_the_output(command: Command, write_model: WriteModel) -> None:
    source = "print('loaded')\ndef loss(x):\n    print('traced', flush=True)\n    return np.sum(x)"
    result = command(write_model(source), "--arg", "f32[3]", "--emit", "ir")
    assert result.exit_code == 0
    assert result.stdout.startswith("graph @loss(")
    assert result.stderr.splitlines() == ["loaded", "traced"]


# -- what a model is ---------------------------------------------------------------------------------------------------


def test_a_model_that_is_gone_by_the_time_of_the_error(command: Command, write_model: WriteModel) -> None:
    source = "import os\nos.remove(__file__)\ndef loss(x):\n    return np.sum(undefined)"
    result = command(write_model(source), "--arg", "f32[3]")
    refused(result)
    assert result.stderr == "model.py:5:19: error: NameError: name 'undefined' is not defined\n"


def test_a_working_directory_that_is_gone(
    command: Command, write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os\nos.rmdir(os.getcwd())\ndef loss(x): return np.sum(x)"
    model = write_model(source).resolve()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir("below")
    result = command(model, "--arg", "f32[3]", "-q")
    monkeypatch.chdir(tmp_path)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("loss = 3", "model.py defines no public function"),
        ("async def loss(x): return x", "the output of 'loss' is a coroutine"),
        ("def loss(x): yield np.sum(x)", "the output of 'loss' is a generator"),
        ("def loss(x): return None", "expected one scalar"),
        ("def loss(x): return 'a'", "the output of 'loss' is a str"),
        ("def loss(x): return x if x.sum() > 0 else -x", "is used as a Python bool"),
        ("class loss:\n    def __init__(self, x): pass", "the output of 'loss' is a loss"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_an_entry_that_is_no_function_of_arrays(
    command: Command, write_model: WriteModel, source: str, message: str
) -> None:
    refused(command(write_model(source), "--arg", "f32[3]"), message)


def test_a_loss_that_does_not_depend_on_its_arguments(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(x): return 3.0"), "--arg", "f32[3]", "--emit", "backward")
    assert result.exit_code == 0, result.stderr


# -- arrays without elements, without dimensions, without numbers ------------------------------------------------------


SHAPES = ["f32[0]", "f32[0,3]", "f64[]", "f32[1,1,1,1,1,1,1,1]", "bf16[2,0]"]
MODELS = [
    "def loss(x): return np.sum(np.sin(x) * x)",
    "def loss(x): return np.sum(x * np.nan + np.inf) / np.float32(0)",
    "def loss(x): return np.sum(np.where(x > 0, np.log(x - 1), np.sqrt(-x)))",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("source", MODELS, ids=["plain", "constants", "domains"])
def test_the_whole_path_of_unusual_arrays(command: Command, write_model: WriteModel, source: str, shape: str) -> None:
    result = command(write_model(source), "--arg", shape, "--policy", "nothing", "--run", "--json", "-o", "out.mlir")
    assert result.exit_code == 0, result.stderr
    assert '"gradient_norm":' in result.stdout
    assert Path("out.mlir").read_text().startswith("module @loss")


def test_nan_is_printed_and_is_json(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(x): return np.sum(x) * np.nan\ndef example_args(): return (np.ones(2),)")
    assert '"loss": "nan"' in command(model, "--run", "--json").stdout
    assert any(line.split() == ["loss", "nan"] for line in command(model, "--run").stdout.splitlines())


@pytest.mark.parametrize(
    "text", ["f32[99999999999999999999]", "f32[" + "1," * 65 + "1]", "f32[1000000000,1000000000,1000000000]", "🙂"]
)
def test_types_that_no_array_has(command: Command, write_model: WriteModel, text: str) -> None:
    result = command(write_model("raise AssertionError"), "--arg", text)
    assert result.exit_code == 2
    assert "Invalid value for '--arg'" in result.stderr


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_do_not_change_what_is_compiled(command: Command, write_model: WriteModel) -> None:
    """The file, its folder, a key of an argument and a label are called like what the compiler looks for."""
    name = "%0 = stablehlo.optimization_barrier pinned_host"
    source = """
    import rematc
    def loss(p): return np.sum(rematc.checkpoint_name(np.sin(p[NAME] @ p[NAME]), NAME))
    def example_args(): return ({NAME: np.ones((4, 4), np.float32)},)
    """
    Path(name).mkdir()
    odd = write_model(f"NAME = {name!r}\n{textwrap.dedent(source)}", f"{name}/{name}.py")
    plain = write_model(f"NAME = 'x'\n{textwrap.dedent(source)}")
    found, expected = [
        json.loads(command(path, "--policy", "nothing", "--json", "-q").stdout)["check"] for path in (odd, plain)
    ]
    assert found == expected


# -- example_args ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "example_args = (np.ones(3),)",
            "example_args is a tuple, expected a function: def example_args(): return (x,)",
        ),
        ("def example_args(n): return (n,)", "example_args() is called without arguments: missing a required argument"),
    ],
)
def test_example_args_that_cannot_be_called(
    command: Command, write_model: WriteModel, source: str, message: str
) -> None:
    refused(command(write_model(f"def loss(x): return np.sum(x)\n{source}")), message)


# -- what a model does to the process ----------------------------------------------------------------------------------


def test_a_model_that_goes_elsewhere_leaves_the_output_where_it_was(
    command: Command, write_model: WriteModel, tmp_path: Path
) -> None:
    Path("elsewhere").mkdir()
    path = write_model("import os\nos.chdir('elsewhere')\ndef loss(x): return np.sum(np.sin(x))")
    result = command(path, "--arg", "f32[2]", "--emit", "ir", "-o", "out.ir", "-q")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "out.ir").is_file() and not list((tmp_path / "elsewhere").iterdir())
