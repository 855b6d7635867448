"""How places in the user's code are written."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from rematc.ir.locations import Location, relative


def test_cells_of_a_notebook_have_the_names_that_ipython_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {"/elsewhere/ipykernel_7/1485840681.py": ("Cell", "In[3]")}
    ipython = ModuleType("IPython")
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get))
    ipython.__dict__["get_ipython"] = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    (cell,) = cells
    assert Location(cell, 4, 12, "layer").from_here().describe() == "In[3]:4 (layer)"
    assert relative("/elsewhere/model.py") == "/elsewhere/model.py"


def test_where_ipython_is_loaded_and_no_notebook_runs_files_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = ModuleType("IPython")
    ipython.__dict__["get_ipython"] = lambda: None
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert relative("/elsewhere/model.py") == "/elsewhere/model.py"


def test_files_below_the_working_directory_are_named_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert relative(str(tmp_path / "models" / "one.py")) == "models/one.py"
    assert relative(str(tmp_path.parent / "one.py")) == str(tmp_path.parent / "one.py")
