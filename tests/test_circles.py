"""No file or package imports another one in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.circles import circles, main

pytestmark = pytest.mark.each_case


def package(root: Path, files: dict[str, str]) -> Path:
    """A package named `house` with these files, by path; a folder's `__init__.py` is made where none is given."""
    for name, text in files.items():
        path = root / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root / "house"


def test_the_packages_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(), capsys.readouterr().out) == (0, "")


def test_what_imports_one_way_has_none(tmp_path: Path) -> None:
    files = {
        "low/one.py": "import sys\n",
        "low/two.py": "from house.low import one\nfrom house.low.one import sys\n",
        "high/one.py": "import house.low.two\n",
    }
    assert circles(package(tmp_path, files)) == {}


@pytest.mark.parametrize(
    "back",
    [
        "from house.low.two import x\n",
        "from house.low import two\n",
        "import house.low.two\n",
        "def f():\n    from house.low.two import x\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.low.two import x\n",
    ],
)
def test_files_in_a_circle_are_named_by_the_lines_that_import(tmp_path: Path, back: str) -> None:
    house = package(tmp_path, {"low/one.py": back, "low/two.py": "from house.low.one import y\n"})
    line = back.count("\n")
    assert {name: sorted(lines) for name, lines in circles(house).items()} == {
        "house.low": [
            f"{house}/low/one.py:{line} imports house.low.two",
            f"{house}/low/two.py:1 imports house.low.one",
        ]
    }


def test_packages_in_a_circle_whose_files_are_in_none(tmp_path: Path) -> None:
    files = {
        "low/one.py": "",
        "low/two.py": "import house.high.two\n",
        "high/one.py": "import house.low.one\n",
        "high/two.py": "",
    }
    house = package(tmp_path, files)
    assert circles(house).keys() == {"house"}


def test_a_folders_own_code_is_one_of_its_files(tmp_path: Path) -> None:
    files = {"low/__init__.py": "from house.low.one import x\n", "low/one.py": "from house.low import y\n"}
    assert circles(package(tmp_path, files)).keys() == {"house.low"}
    (tmp_path / "house" / "low" / "one.py").write_text("")
    assert circles(tmp_path / "house") == {}


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    house = package(tmp_path, {"top.py": "import house.low.one\n"})
    elsewhere = package(tmp_path / "elsewhere", {"one.py": "import house.top\n"})
    (house / "low").symlink_to(elsewhere)
    assert circles(house).keys() == {"house"}
