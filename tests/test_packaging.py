"""The installed package is the checkout: every folder ships, the links lead to it, start-up stays light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("cli", "compiler", "ir", "lowering", "passes")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def folders_with_python_files() -> set[str]:
    found = {"rematc"}
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            found.add(".".join(["rematc", *file.parent.relative_to(ROOT).parts]))
    return found


def test_every_folder_with_python_files_is_a_listed_package() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert len(listed) == len(set(listed))
    assert set(listed) == folders_with_python_files()


def test_every_listed_package_has_an_init_file() -> None:
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        folder = ROOT.joinpath(*package.split(".")[1:]) if "." in package else ROOT / "src" / "rematc"
        assert (folder / "__init__.py").is_file(), package


def test_an_editable_install_is_a_path() -> None:
    """Where every package lies where its name says, setuptools installs the folder: no import hook."""
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"": "src"}
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        assert ROOT.joinpath("src", *package.split("."), "__init__.py").is_file(), package


def test_import_beside_a_clone_named_rematc(tmp_path: Path) -> None:
    """The clone's folder has no __init__.py: a namespace package, which gives way to a package found by path alone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "rematc").symlink_to(ROOT)
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "rematc.pth").write_text(f"{ROOT / 'src'}\n")
    code = f"import site; site.addsitedir({str(tmp_path / 'installed')!r}); import rematc; print(rematc.__version__)"
    command = [sys.executable, "-S", "-c", code]
    ran = subprocess.run(command, env={}, cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == (PROJECT["project"]["version"], "")


@pytest.mark.parametrize("folder", FOLDERS)
def test_link_is_relative_and_leads_to_the_folder(folder: str) -> None:
    link = ROOT / "src" / "rematc" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / ".." / folder


@pytest.mark.parametrize("folder", FOLDERS)
def test_importing_a_folder_by_its_bare_name_is_banned(folder: str) -> None:
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert banned[folder]["msg"] == f"Import rematc.{folder}."


@pytest.mark.skipif(not (ROOT / "cli" / "main.py").exists(), reason="the command is not written yet")
def test_the_command_starts_without_jax() -> None:
    code = "import sys, rematc.cli.main; print([m for m in ('jax', 'jaxlib', 'scipy') if m in sys.modules])"
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
