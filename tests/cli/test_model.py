"""Loading a model file and finding its entry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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


# -- the model's own command line --------------------------------------------------------------------------------------

READS_ITS_ARGUMENTS = """
import argparse
import sys
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=2)
parser.add_argument("rest", nargs="*")
ARGS = parser.parse_args()
def loss(x): return np.sum(x) * ARGS.size
def example_args():
    assert len(sys.argv) == 1 or sys.argv == ["model.py", "--size", str(ARGS.size), *ARGS.rest]
    return (np.ones(len(ARGS.rest)),)
"""


def test_a_model_reads_its_own_arguments(command: Command, write_model: WriteModel) -> None:
    path = write_model(READS_ITS_ARGUMENTS)
    before = list(sys.argv)
    alone = command(path, "--emit", "ir")
    assert alone.exit_code == 0, alone.stderr
    assert "%x: f64[0]" in alone.stdout
    given = command(path, "--emit", "ir", "--", "--size", "7", "a", "b")
    assert given.exit_code == 0, given.stderr
    assert "%x: f64[2]" in given.stdout and "7.0" in given.stdout
    first = command("--emit", "ir", "--", path, "--size", "7", "a")
    assert "%x: f64[1]" in first.stdout
    assert sys.argv == before


def test_what_a_model_does_not_take_is_its_own_error(command: Command, write_model: WriteModel) -> None:
    path = write_model(READS_ITS_ARGUMENTS)
    refused = command(path, "--", "--sise", "7")
    assert refused.exit_code == 1
    assert "unrecognized arguments: --sise" in refused.stderr
    assert "the model called sys.exit(2); arguments of its own go behind --" in refused.stderr


def test_extra_arguments_go_behind_two_dashes(command: Command, write_model: WriteModel) -> None:
    for args in (["extra"], ["extra", "--", "more"]):
        result = command(write_model(READS_ITS_ARGUMENTS), *args)
        assert result.exit_code == 2
        assert "unexpected extra arguments (extra); the model's own go behind --" in " ".join(result.stderr.split())


# -- models in packages ------------------------------------------------------------------------------------------------


@pytest.fixture
def package(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `nets` with a package `vision` in it, in a folder that is not the working directory."""
    monkeypatch.chdir(write_model("").resolve().parent)
    Path("src/nets/vision").mkdir(parents=True)
    write_model("SIZE = 3", "src/nets/__init__.py")
    write_model("def shared(x): return np.sin(x)", "src/nets/shared.py")
    write_model("", "src/nets/vision/__init__.py")
    write_model("from ..shared import shared\ndef layer(x): return shared(x)", "src/nets/vision/json.py")
    yield Path("src/nets")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("nets", "src")]:
        del sys.modules[name]


MODEL_IN_A_PACKAGE = """
import dataclasses
import json
import pickle
from . import json as layers
from .. import SIZE
from ..shared import shared

@dataclasses.dataclass
class Config:
    size: int = SIZE

assert json.dumps([]) == "[]", "a module beside it has not taken the place of Python's"
assert pickle.loads(pickle.dumps(Config())) == Config()

def loss(x): return np.sum(layers.layer(shared(x))) * Config().size
"""


def test_a_model_in_a_package_imports_relatively(command: Command, write_model: WriteModel, package: Path) -> None:
    write_model(MODEL_IN_A_PACKAGE, "src/nets/vision/model.py")
    result = command(package / "vision" / "model.py", "--arg", "f32[2]", "--emit", "ir")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count(" = sine ") == 2
    assert sys.modules["nets.vision.model"].__package__ == "nets.vision"


def test_a_package_that_imports_the_model_has_the_same_one(write_model: WriteModel, package: Path) -> None:
    write_model("from .model import loss", "src/nets/vision/__init__.py")
    path = write_model("from ..shared import shared\ndef loss(x): return shared(x)", "src/nets/vision/model.py")
    assert load_model(path) is sys.modules["nets.vision.model"]
    assert load_model(path).loss is sys.modules["nets.vision"].loss


def test_folders_without_init_are_packages_too(write_model: WriteModel, package: Path) -> None:
    Path("src/plain").mkdir()
    path = write_model("from ..nets.shared import shared\ndef loss(x): return shared(x)", "src/plain/model.py")
    assert load_model(path).__name__ == "src.plain.model"


def test_a_package_with_the_name_of_a_loaded_module_is_refused(command: Command, write_model: WriteModel) -> None:
    Path("json").mkdir()
    write_model("", "json/layers.py")
    result = command(write_model("from . import layers\ndef loss(x): return x", "json/model.py"), "--arg", "f32")
    assert result.exit_code == 1
    assert "json/model.py:2:1: error: the package that this file imports from is the folder " in result.stderr
    assert "a module of the name 'json' is loaded already; rename the folder" in result.stderr


def test_a_relative_import_of_what_is_not_there_is_named(command: Command, write_model: WriteModel) -> None:
    Path("alone").mkdir()
    result = command(write_model("from . import nothing\ndef loss(x): return x", "alone/model.py"), "--arg", "f32")
    assert result.exit_code == 1
    assert "alone/model.py:2:1: error: ImportError: cannot import name 'nothing' from 'alone'" in result.stderr
    sys.modules.pop("alone", None)
