"""`--dump`: every stage as a file of a directory that is written whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rematc
from rematc.cli import dump, folders
from rematc.lowering.validation import validate
from rematc.passes.planning.plan import Plan
from tests.support.command import SMALL_MODEL, Command, WriteModel

MODEL = str(Path(__file__).parents[2] / "examples/sin_chain.py")
DOTS = ("--argnums", "0,1,2,3", "--policy", "dots", "-q")


def links(folder: Path) -> list[str]:
    return re.findall(r'<a href="([^"]*)"', (folder / "index.html").read_text(encoding="utf-8"))


def files(folder: Path) -> Iterator[str]:
    return (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_each_stage_is_a_file_that_the_page_links(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    printed = command(MODEL, *DOTS, "--dump", str(folder))
    assert printed.exit_code == 0, printed.stderr
    assert sorted(files(folder)) == sorted(["index.html", *links(folder)])
    for name in files(folder):
        text = (folder / name).read_text(encoding="utf-8")
        assert "http://" not in (folder / "index.html").read_text(encoding="utf-8")
        if name.endswith(".ir"):
            assert rematc.parse(text).name == "loss", name
    validate((folder / "stablehlo.mlir").read_text(encoding="utf-8"))
    for stage, name in [("linear", "linear.ir"), ("backward", "backward.ir"), ("stablehlo", "stablehlo.mlir")]:
        assert (folder / name).read_text(encoding="utf-8") == command(MODEL, *DOTS, "--emit", stage).stdout
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["policy"] == "dots"
    assert (folder / "report.txt").read_text(encoding="utf-8") == printed.stdout


def test_passes_are_those_that_ran(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    command(MODEL, *DOTS, "--dump", str(folder), "--passes", "barriers{strategy=call},cse,dce")
    names = [name.removeprefix("passes/") for name in links(folder) if name.startswith("passes/")]
    assert [name[:3] for name in names] == [f"{index:02}-" for index in range(len(names))]
    assert [name[3:] for name in names][-3:] == ["barriers-strategy-call.ir", "cse.ir", "dce.ir"]
    last = (folder / "passes" / names[-1]).read_text(encoding="utf-8")
    assert last == (folder / "graph.ir").read_text(encoding="utf-8")


def test_a_plan_is_written_so_that_it_can_be_applied(command: Command, tmp_path: Path, write_model: WriteModel) -> None:
    folder = tmp_path / "stages"
    model = write_model(SMALL_MODEL)
    result = command(str(model), "--budget", "1MiB", "-q", "--dump", str(folder))
    assert result.exit_code == 0, result.stderr
    assert Plan.read(folder / "plan.json").budget == 2**20
    assert {"plan.txt", "plan.json"} <= set(links(folder))


def test_the_report_as_a_page_is_there_where_it_can_be_made(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "has_library", lambda: False)
    command(MODEL, *DOTS, "--dump", str(tmp_path / "stages"))
    assert "report.html" not in links(tmp_path / "stages") and "report.txt" in links(tmp_path / "stages")


def test_an_earlier_directory_is_replaced_and_another_one_is_not(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    for _ in range(2):
        result = command(MODEL, *DOTS, "--passes", "barriers,cse,dce", "--dump", str(folder))
        assert result.exit_code == 0, result.stderr
    (folder / "notes.txt").write_text("mine")
    result = command(MODEL, *DOTS, "--dump", str(folder))
    assert result.exit_code == 1 and "it has notes.txt, which --dump did not write there" in result.stderr
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_the_earlier_directory_as_it_was(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    folder = tmp_path / "stages"
    command(MODEL, *DOTS, "--dump", str(folder))
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    write = Path.write_bytes

    def failing(path: Path, data: bytes) -> int:
        if path.name == "graph.ir":
            raise error
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    result = command(MODEL, "--policy", "nothing", "-q", "--dump", str(folder))
    assert result.exit_code == (1 if isinstance(error, OSError) else 130)
    if isinstance(error, OSError):
        assert "graph.ir: the disk is full" in result.stderr
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
    assert list(tmp_path.iterdir()) == [folder]


def test_a_directory_that_cannot_take_its_place_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "stages"
    folder.mkdir()
    replace = Path.replace

    def failing(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(KeyboardInterrupt), folders.whole_folder(folder) as made:
        folders.write_text(made, "a", "b")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("name", "message"), [("model.py", "it is no directory"), ("no/stages", "there is no directory")]
)
def test_what_cannot_be_written_is_said_before_the_work(
    command: Command, write_model: WriteModel, name: str, message: str
) -> None:
    model = write_model("raise SystemExit('loaded')")
    result = command(str(model), "--dump", str(model.parent / name))
    assert result.exit_code == 1 and message in result.stderr and "loaded" not in result.stderr


@pytest.mark.parametrize("options", [("--emit", "ir"), ("--compare", "none,dots"), ("--pareto",)])
def test_it_is_about_one_program(command: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    result = command(MODEL, "--dump", str(tmp_path / "stages"), *options)
    assert result.exit_code == 2 and f"leave out --dump or {options[0]}" in result.stderr
