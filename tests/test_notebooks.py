"""The notebooks of examples/ run from top to bottom, and what their text says holds: each asserts it in its cells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from _pytest.mark.structures import ParameterSet

from tests.support import documents
from tests.support.ahead import compiler_for
from tests.test_docs import is_there, links

EXAMPLES = documents.ROOT / "examples"
FILES = sorted(EXAMPLES.glob("*.ipynb"))
#: What a notebook compiles for, where that is not the machine that it runs on.
TARGETS = {"will_it_fit": "h100"}
#: Those that end in the report as a page.
WITH_PAGE = {"what_is_saved", "gpt2_under_a_budget"}


def stem(file: Path) -> str:
    return file.stem


def cells(notebook: Any, kind: str) -> Iterator[str]:
    """The sources of the cells of a kind."""
    return (cell.source for cell in notebook.cells if cell.cell_type == kind)


def shown_pages(notebook: Any) -> list[str]:
    """The HTML that cells show in frames."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["data"].get("text/html", "") for output in outputs if "data" in output]
    return [html for html in shown if "<iframe" in html]


def test_there_are_four() -> None:
    assert {file.stem for file in FILES} == {
        "gpt2_under_a_budget",
        "what_is_saved",
        "why_remat_did_nothing",
        "will_it_fit",
    }


@pytest.mark.each_case
@pytest.mark.parametrize("file", FILES, ids=stem)
def test_notebook_is_committed_without_outputs_and_asserts_what_it_says(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]  # nbformat
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    trees = [ast.parse(source) for source in cells(notebook, "code")]
    assert sum(isinstance(node, ast.Assert) for tree in trees for node in ast.walk(tree)) >= 3
    targets = [target for source in cells(notebook, "markdown") for target in links(source)]
    assert not [target for target in targets if not is_there(file, target)]


def each() -> Iterator[ParameterSet]:
    """The notebooks; all but one take longer than a few seconds."""
    for file in FILES:
        yield pytest.param(file, id=file.stem, marks=() if file.stem == "what_is_saved" else pytest.mark.slow)


@pytest.mark.each_case
@pytest.mark.parametrize("file", list(each()))
def test_notebook_runs_and_its_assertions_hold(file: Path) -> None:
    if file.stem in TARGETS:
        compiler_for(TARGETS[file.stem])
    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]  # nbformat
    nbclient.NotebookClient(notebook, timeout=300).execute(cwd=str(EXAMPLES), env=documents.environment())
    assert len(shown_pages(notebook)) == (file.stem in WITH_PAGE)
