"""The documentation is true: its examples run and print what it shows, its tables and links are up to date."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.mark.structures import ParameterSet

import rematc
from tests.support import documents
from tests.support.document_tables import TABLES
from tests.support.documents import ELSEWHERE, FILES, ROOT, Example

MARKDOWN = sorted(path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")))
_LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.each_case


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def with_python() -> list[ParameterSet]:
    return [
        _case(file, relative(file), file) for file in FILES if file not in ELSEWHERE and documents.python_examples(file)
    ]


def commands() -> list[ParameterSet]:
    return [
        _case(example, f"{file.name}: {example.source}", file)
        for file in FILES
        if file not in ELSEWHERE
        for example in documents.console_examples(file)
    ]


def _case(value: Path | Example, id: str, file: Path) -> ParameterSet:
    return pytest.param(value, id=id, marks=() if file == ROOT / "README.md" else pytest.mark.slow)


@pytest.mark.parametrize("file", with_python())
def test_python_examples_run_and_print_what_is_shown(file: Path) -> None:
    printed = documents.run_python(file)
    for example, text in zip(documents.python_examples(file), printed, strict=True):
        problem = documents.mismatch(example, text)
        assert not problem, f"{relative(file)}:{example.line}: {problem}"
    if absent := {name for example in documents.python_examples(file) for name in example.missing}:
        pytest.skip(f"examples that need {', '.join(sorted(absent))} are not run; all others print what is shown")


@pytest.mark.parametrize("example", commands())
def test_commands_succeed_and_print_what_is_shown(example: Example) -> None:
    problem = documents.mismatch(example, documents.run_console(example))
    assert not problem, f"{relative(example.file)}:{example.line}: {problem}"


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_what_follows_from_the_code_is_up_to_date(file: Path) -> None:
    stale = [name for name, _, _ in documents.stale_tables(file)]
    assert not stale, f"run python -m tests.support.documents --write {relative(file)}"


def test_the_generated_tables_are_shown_somewhere() -> None:
    shown = {name for file in FILES for name in re.findall(r"<!-- begin (\w+) -->", file.read_text(encoding="utf-8"))}
    assert shown == set(TABLES)


def test_the_reference_shows_every_public_name() -> None:
    """As the hook demands when the site is built; it cannot be imported without what builds the site."""
    hook = ast.parse((ROOT / "docs/site/hooks/reference.py").read_text(encoding="utf-8"))
    groups = next(
        ast.literal_eval(node.value)
        for node in hook.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OF_REMATC"
    )
    shown = {name for group in groups.values() for name in group}
    public = {name for name in rematc.__all__ if not name.startswith("__")}
    assert {name for name in public if not isinstance(getattr(rematc, name), ModuleType)} == shown


@pytest.mark.parametrize("file", MARKDOWN, ids=relative)
def test_links_lead_somewhere(file: Path) -> None:
    assert not [target for target in links(file.read_text(encoding="utf-8")) if not is_there(file, target)]


def links(text: str) -> list[str]:
    """What Markdown text links to, and the images that it shows."""
    return [link or image for link, image in _LINK.findall(_FENCED.sub("", text))]


def is_there(file: Path, target: str) -> bool:
    """Whether a link leads to a file of the repository, and to a heading in it. Other places are not asked."""
    if re.match(r"[a-z]+:", target):
        return True
    path, _, heading = target.partition("#")
    found = (file.parent / path).resolve() if path else file
    return found.exists() and found.is_relative_to(ROOT) and (not heading or heading in headings(found))


def headings(file: Path) -> set[str]:
    """The anchors that GitHub makes of a file's headings."""
    text = _FENCED.sub("", file.read_text(encoding="utf-8"))
    plain = [re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {line.replace(" ", "-") for line in plain}


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("a 1\nb 2\n", "a 1\nb 2\n", True),
        ("a 1\nb 2\n", "a 1\nb 3\n", False),
        ("a   1\n", "a 1   \n", True),
        ("took 12 ms\n", "took 3.4 s\n", True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nb\nc\n", False),
        ("a ... z\n", "a b c z\n", True),
        ("", "a\n", False),
    ],
)
def test_what_counts_as_the_same_output(shown: str, printed: str, is_same: bool) -> None:
    block = documents.Block("text", shown, 1, 0, {}, True)
    assert (documents.mismatch(Example(ROOT / "README.md", "", 1, block), printed) == "") is is_same


@pytest.mark.parametrize(("printed", "is_same"), [("10.4 MiB\n", True), ("12.0 MiB\n", False), ("10.0 KiB\n", False)])
def test_figures_agree_within_a_tenth_on_the_version_they_were_taken_from(
    printed: str, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "version", lambda package: "0.10.2")
    block = documents.Block("text", "10.0 MiB\n", 1, 0, {"measured": "jaxlib 0.10"}, True)
    assert (documents.mismatch(Example(ROOT / "README.md", "", 1, block), printed) == "") is is_same
    other = documents.Block("text", "10.0 MiB\n", 1, 0, {"measured": "jaxlib 0.12"}, True)
    assert documents.mismatch(Example(ROOT / "README.md", "", 1, other), "12.0 MiB\n") == ""


def test_output_that_is_not_shown_is_an_error() -> None:
    assert documents.mismatch(Example(ROOT / "README.md", "", 1, None), "a\n")
    assert not documents.mismatch(Example(ROOT / "README.md", "", 1, None), "")
