"""Loading a model file and finding its entry."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rematc.cli.model import find_entry, load_model
from rematc.ir.errors import CompileError
from tests.support.command import Command, WriteModel


def test_loss_is_the_entry(write_model: WriteModel) -> None:
    entry = find_entry(load_model(write_model("def loss(x): return x\ndef other(x): return x")), None)
    assert entry.name == "loss"
    assert entry.loc is not None and entry.loc.line == 2


def test_the_only_public_function_is_the_entry(write_model: WriteModel) -> None:
    source = """
    from math import sqrt
    from functools import partial
    class Model: pass
    SIZE = 3
    def example_args(): return ()
    def _helper(x): return x
    def energy(x): return x
    """
    assert find_entry(load_model(write_model(source)), None).name == "energy"


def test_two_names_of_one_function_are_one_candidate(write_model: WriteModel) -> None:
    assert find_entry(load_model(write_model("def f(x): return x\ng = f")), None).name == "f"


def test_two_candidates_are_listed_with_their_lines(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def f(x): return x\n\ndef g(x, y=2): return x"))
    assert result.exit_code == 1
    assert result.stderr == (
        "remat-compile: error: model.py has no function 'loss' and several others; name one with --entry, or call it "
        "loss:\n  model.py:2: f(x)\n  model.py:4: g(x, y=2)\n"
    )


def test_line_of_a_decorated_function_is_its_def(write_model: WriteModel) -> None:
    source = "import functools\n@functools.lru_cache(\n    maxsize=3,\n)\ndef loss(x): return x"
    entry = find_entry(load_model(write_model(source)), None)
    assert entry.loc is not None and entry.loc.line == 6


def test_no_candidate(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("from math import sqrt"))
    assert result.exit_code == 1
    assert "model.py defines no public function; define loss(...)" in result.stderr


def test_entry_that_is_not_there(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def energy(x): return x"), "--entry", "energie")
    assert result.exit_code == 1
    assert "model.py has no function 'energie'; did you mean 'energy'? its functions:" in result.stderr
    assert "  model.py:2: energy(x)" in result.stderr


def test_entry_that_is_no_function(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("SIZE = 3"), "--entry", "SIZE")
    assert result.exit_code == 1
    assert "'SIZE' in model.py is a int, expected a function" in result.stderr


def test_model_imports_from_its_own_folder(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sub").mkdir()
    write_model("def helper(x): return x", "sub/its_own_helper.py")
    path = write_model(
        "from its_own_helper import helper\ndef loss(x): return helper(x)", "sub/needs_helper.py"
    ).resolve()
    monkeypatch.chdir("/")
    assert load_model(path).loss(3) == 3


def test_model_is_found_under_its_own_name(write_model: WriteModel) -> None:
    source = """
    from dataclasses import dataclass
    @dataclass
    class Layer:
        width: int = 3
    import a_model_with_a_class
    """
    module = load_model(write_model(source, "a_model_with_a_class.py"))
    assert module.a_model_with_a_class is module
    assert module.Layer().width == 3


def test_model_does_not_take_the_place_of_a_loaded_module(write_model: WriteModel) -> None:
    loaded = sys.modules["json"]
    module = load_model(write_model("def loss(x): return x", "json.py"))
    assert sys.modules["json"] is loaded and module.loss(1) == 1


def test_file_without_suffix_is_loaded(write_model: WriteModel) -> None:
    assert load_model(write_model("def loss(x): return x", "model")).loss(1) == 1


def test_binary_file(write_model: WriteModel, command: Command) -> None:
    path = write_model("")
    path.write_bytes(b"\xff\xfe\x80\x81 = 3\n")
    result = command(path)
    assert result.exit_code == 1
    assert "SyntaxError" in result.stderr and "Traceback" not in result.stderr


def test_model_leaves_no_bytecode_beside_it(write_model: WriteModel) -> None:
    path = write_model("def loss(x): return x", "a_model_without_bytecode.py")
    load_model(path)
    assert [each.name for each in path.absolute().parent.iterdir()] == [path.name]


def test_failed_import_leaves_no_module(write_model: WriteModel) -> None:
    with pytest.raises(ZeroDivisionError):
        load_model(write_model("1 / 0", "a_model_that_fails.py"))
    assert "a_model_that_fails" not in sys.modules


def test_find_entry_of_an_unknown_name_raises_a_compile_error(write_model: WriteModel) -> None:
    with pytest.raises(CompileError):
        find_entry(load_model(write_model("")), "f")
