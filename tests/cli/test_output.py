"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rematc.cli.output import check_writable, is_standard_output, write_file
from rematc.ir.errors import CompileError
from tests.support.command import Command


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_new_file_has_the_mode_of_new_files() -> None:
    umask = os.umask(0o027)
    try:
        assert write_file(Path("out"), "text é") == 7
    finally:
        os.umask(umask)
    assert Path("out").read_text(encoding="utf-8") == "text é"
    assert stat.S_IMODE(Path("out").stat().st_mode) == 0o640
    assert os.listdir() == ["out"]


def test_file_that_is_there_keeps_its_mode() -> None:
    Path("out").write_text("before")
    Path("out").chmod(0o600)
    write_file(Path("out"), "after")
    assert Path("out").read_text() == "after"
    assert stat.S_IMODE(Path("out").stat().st_mode) == 0o600


def test_link_stays_a_link() -> None:
    Path("folder").mkdir()
    Path("folder/real").write_text("before")
    Path("link").symlink_to("folder/real")
    write_file(Path("link"), "after")
    assert Path("link").is_symlink()
    assert Path("folder/real").read_text() == "after"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_leaves_the_old_file_and_nothing_else(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out").write_text("before")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((CompileError, KeyboardInterrupt)) as caught:
        write_file(Path("out"), "after")
    assert Path("out").read_text() == "before"
    assert os.listdir() == ["out"]
    if isinstance(error, OSError):
        assert str(caught.value) == "cannot write out: the disk is full"


def test_device_is_written_to_and_not_replaced() -> None:
    write_file(Path(os.devnull), "text")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's full device")
def test_full_device() -> None:
    with pytest.raises(CompileError, match="cannot write /dev/full: the disk is full"):
        write_file(Path("/dev/full"), "text")


def test_directory_is_refused_before_the_work(command: Command, small_model: Path) -> None:
    Path("folder").mkdir()
    result = command(small_model, "-o", "folder")
    assert result.exit_code == 1
    assert result.stderr == "remat-compile: error: cannot write folder: it is a directory; name a file in it\n"


@pytest.mark.parametrize("name", ["model.py", "./model.py", "link", "hard"])
def test_the_model_is_not_overwritten(command: Command, small_model: Path, name: str) -> None:
    before = small_model.read_text()
    Path("link").symlink_to("model.py")
    os.link("model.py", "hard")
    result = command(small_model, "-o", name)
    assert result.exit_code == 1
    assert result.stderr == f"remat-compile: error: cannot write {Path(name)}: it is the model; name another file\n"
    assert small_model.read_text() == before


def test_missing_folder_is_refused_before_the_work(command: Command, small_model: Path) -> None:
    result = command(small_model, "-o", "nowhere/out.mlir")
    assert result.exit_code == 1
    assert "cannot write nowhere/out.mlir: there is no directory" in result.stderr


def test_folder_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root, who may run the tests, may write everywhere
    with pytest.raises(CompileError, match="cannot write out: no permission to write in"):
        check_writable(Path("out"), Path("model.py"))


def test_nothing_is_written_where_the_model_fails(command: Command, small_model: Path) -> None:
    Path("out.mlir").write_text("before")
    assert command(small_model, "-o", "out.mlir", "--arg", "f32[2]").exit_code == 1
    assert Path("out.mlir").read_text() == "before"


def test_emitted_text_goes_to_the_file(command: Command, small_model: Path) -> None:
    printed = command(small_model, "--emit", "backward")
    written = command(small_model, "--emit", "backward", "-o", "out.ir")
    assert (written.exit_code, written.stdout) == (0, "")
    assert Path("out.ir").read_text() == printed.stdout
    assert written.stderr.startswith("remat-compile: wrote backward to out.ir (")
    assert command(small_model, "--emit", "backward", "-o", "out.ir", "-q").stderr == ""


def test_standard_output_has_a_name(command: Command, small_model: Path) -> None:
    printed = command(small_model, "--emit", "ir")
    named = command(small_model, "--emit", "ir", "-o", "-")
    assert (named.exit_code, named.stdout, named.stderr) == (0, printed.stdout, "")
    assert os.listdir() == ["model.py"]
    mixed = command(small_model, "-o", "-")
    assert (mixed.exit_code, mixed.stdout) == (2, "")
    assert "-o - would mix the program with the report; add --emit stablehlo, or name a file" in mixed.stderr


def test_the_file_that_is_standard_output_is_printed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("out", "w+") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert is_standard_output(Path("out")) and not is_standard_output(Path("other"))


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="names of open files")
def test_pipes_are_written_to_by_any_name() -> None:
    reader, writer = os.pipe()
    path = Path(f"/dev/fd/{writer}")
    check_writable(path, Path("model.py"))
    assert write_file(path, "text") == 4
    os.close(writer)
    with os.fdopen(reader) as stream:
        assert stream.read() == "text"


def test_a_named_pipe_is_written_to() -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    check_writable(Path("pipe"), Path("model.py"))
    write_file(Path("pipe"), "text")
    assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode) and os.listdir() == ["pipe"]
