"""Every error as the user sees it: whose it is, where it is, the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from rematc.cli.source import excerpt, excerpt_at_character
from rematc.compiler.driver import ahead
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.locations import Location
from tests.support.command import Command, WriteModel


def test_syntax_error(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(x):\n    return (x +\n"))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "model.py:3:12: error: SyntaxError: '(' was never closed\n    3 |     return (x +\n"
    )
    assert result.stderr.endswith("\n      |            ^\n")


def test_syntax_error_in_a_module_that_the_model_imports(command: Command, write_model: WriteModel) -> None:
    write_model("1 +", "broken_helper_of_the_model.py")
    result = command(write_model("import broken_helper_of_the_model"))
    assert result.exit_code == 1
    assert result.stderr.startswith("broken_helper_of_the_model.py:2:4: error: SyntaxError: invalid syntax\n")


def test_import_error_shows_the_import(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("import a_module_that_is_not_there"))
    assert result.exit_code == 1
    assert result.stderr == (
        "model.py:2:1: error: ModuleNotFoundError: No module named 'a_module_that_is_not_there'\n"
        "    2 | import a_module_that_is_not_there\n"
        "      | ^\n"
    )


def test_exception_of_the_model_shows_its_innermost_line(command: Command, write_model: WriteModel) -> None:
    source = """
    def layer(x):
        return x @ undefined_weights

    def loss(x):
        return np.sum(layer(x))
    """
    result = command(write_model(source), "--arg", "f32[3]")
    assert result.exit_code == 1
    assert result.stderr == (
        "model.py:4:16: error: NameError: name 'undefined_weights' is not defined\n"
        "    4 |     return x @ undefined_weights\n"
        "      |                ^\n"
    )


def test_exception_inside_a_library_shows_the_model_that_called_it(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("import json\ndef loss(x): return json.loads('{')"), "--arg", "f32[3]")
    assert result.exit_code == 1
    assert result.stderr.startswith("model.py:3:21: error: JSONDecodeError: ")


def test_unsupported_numpy_function(command: Command, write_model: WriteModel) -> None:
    source = """
    def loss(x):
        line = np.is_busday(np.sin(x))
        return np.sum(line)
    """
    result = command(write_model(source), "--arg", "f32[4]")
    assert result.exit_code == 1
    assert result.stderr.startswith("model.py:4:12: error: np.is_busday is not supported")
    assert result.stderr.endswith("    4 |     line = np.is_busday(np.sin(x))\n      |            ^\n")


def test_shapes_that_do_not_fit(command: Command, small_model: Path) -> None:
    result = command(small_model, "--arg", "f32[3,4]", "--arg", "f32[5]")
    assert result.exit_code == 1
    assert result.stderr.startswith("model.py:4:26: error: np.dot of shapes (3, 4) and (5,)")


def test_loss_that_is_no_scalar_shows_the_function(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(x): return x"), "--arg", "f32[3]")
    assert result.exit_code == 1
    assert result.stderr.startswith("model.py:2: error: 'loss' returns f32[3], expected one floating-point scalar")
    assert result.stderr.endswith("    2 | def loss(x): return x\n")


def test_gradient_with_respect_to_integers(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(i): return np.sum(i * 1.0)"), "--arg", "i32[3]")
    assert result.exit_code == 1
    assert "needs floating-point values, got i32[3]" in result.stderr


def test_model_that_exits(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("import sys\nsys.exit(0)"))
    assert result.exit_code == 1
    assert result.stderr.startswith("model.py:3:1: error: the model called sys.exit(0)\n")


def test_platform_that_is_not_there_says_what_is(command: Command, small_model: Path) -> None:
    result = command(small_model, "--target", "tpu")
    assert result.exit_code == 1
    assert "tpu" in result.stderr and "cpu" in result.stderr and "Traceback" not in result.stderr


def test_no_traceback_unless_asked(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(x): return x + undefined_name")
    assert "Traceback" not in command(model, "--arg", "f32[3]").stderr
    asked = command(model, "--arg", "f32[3]", "--traceback")
    assert asked.exit_code == 1
    assert "Traceback (most recent call last)" in asked.stderr
    assert "NameError: name 'undefined_name' is not defined" in asked.stderr.splitlines()[-3]


def check_fault_of_ours(command: Command, model: Path, message: str) -> None:
    result = command(model)
    assert result.exit_code == 3
    assert f"a fault of rematc: {message}" in result.stderr
    assert "please report it, with the model and what --traceback prints" in result.stderr
    assert "Traceback" not in result.stderr


def test_internal_error_is_ours(command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InternalError("a broken law")

    monkeypatch.setattr(ahead, "run_passes", fail)
    check_fault_of_ours(command, small_model, "a broken law")


def test_any_other_exception_in_rematc_is_ours(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "run_passes", None)
    check_fault_of_ours(command, small_model, "TypeError: 'NoneType' object is not callable")


def test_exception_of_ours_below_the_model_shows_the_models_line(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rematc.compiler.tracing.trace.user_location", None)
    check_fault_of_ours(command, small_model, "TypeError: 'NoneType' object is not callable")
    assert command(small_model).stderr.startswith("model.py:4:")


def test_ctrl_c(command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ahead, "lower_call", interrupt)
    result = command(small_model, "-o", "out.mlir")
    assert result.exit_code == 130
    assert result.stderr == "remat-compile: interrupted\n"
    assert [path.name for path in Path().iterdir() if path.suffix != ""] == ["model.py"]


def test_errors_are_not_wrapped_or_coloured(command: Command, write_model: WriteModel) -> None:
    name = "a_name_that_is_not_defined_" * 6
    result = command(write_model(f"def loss(x): return {name}"), "--arg", "f32[3]")
    first = result.stderr.splitlines()[0]
    assert first == f"model.py:2:21: error: NameError: name '{name}' is not defined"
    assert "\x1b" not in result.stderr


# -- excerpts --------------------------------------------------------------------------------------------------------


def place_of(text: str, column: int) -> tuple[str, ...]:
    Path("source.py").write_text(text, encoding="utf-8")
    return excerpt(Location("source.py", 1, column)).lines


@pytest.fixture(autouse=True)
def fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_caret_stands_under_the_column() -> None:
    assert place_of("x = y", 5) == ("    1 | x = y", "      |     ^")


def test_columns_count_bytes_and_carets_cells() -> None:
    line = 'é = "漢字"; y'
    column = line.encode().index(b"y") + 1
    shown, caret = place_of(line, column)
    assert shown == f"    1 | {line}"
    # Each of the two ideographs is two cells wide.
    assert caret == "      | " + " " * (line.index("y") + 2) + "^"


def test_tabs_stay_tabs() -> None:
    assert place_of("\tx = y", 6) == ("    1 | \tx = y", "      | \t    ^")


def test_line_without_column_has_no_caret() -> None:
    assert place_of("x = y", 0) == ("    1 | x = y",)


@pytest.mark.parametrize("loc", [Location("gone.py", 3, 4), Location("<string>", 1, 1), Location("source.py", 99, 1)])
def test_source_that_cannot_be_read_is_left_out(loc: Location) -> None:
    Path("source.py").write_text("x = 1\n", encoding="utf-8")
    assert excerpt(loc).lines == ()


def test_column_beyond_the_line_is_ignored() -> None:
    assert place_of("x", 40) == ("    1 | x", "      |  ^")
    assert excerpt_at_character(Location("source.py", 1, 40)).lines == ("    1 | x",)


def test_files_below_the_working_directory_are_shown_relative_to_it() -> None:
    Path("sub").mkdir()
    Path("sub/source.py").write_text("x", encoding="utf-8")
    assert excerpt(Location(str(Path("sub/source.py").resolve()), 1, 1)).place == "sub/source.py:1:1"
    assert excerpt(Location("/elsewhere/source.py", 1, 1)).place == "/elsewhere/source.py:1:1"


def test_compile_error_without_a_place_names_the_command(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CompileError("there is something to mend")

    monkeypatch.setattr(ahead, "lower_call", fail)
    result = command(small_model)
    assert result.exit_code == 1
    # It was raised while the entry was traced: its definition is the nearest place there is.
    assert result.stderr.startswith("model.py:3: error: there is something to mend\n")
