"""The notebooks of examples/ as pages: executed, so that they show what this version prints."""

import html
import logging
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import MarkdownExporter

EXAMPLES = Path(__file__).parents[3] / "examples"
SOURCES = EXAMPLES.parent / "src"
_LOG = logging.getLogger("mkdocs.hooks.notebooks")
_NOTE = "!!! note\n\n    The cells were not run for this page: run `examples/{}` to see what they print.\n"
_FRAME = re.compile(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and a file for each report that it shows."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        notebook = executed(path) if config.extra["execute_notebooks"] else None
        if notebook is None:
            notebook = without_outputs(path)
        for number, page in enumerate(take_out_frames(notebook, path.stem)):
            files.append(File.generated(config, f"notebooks/{path.stem}-{number}.html", content=page))
        text, _ = MarkdownExporter(exclude_output_prompt=True).from_notebook_node(notebook)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


def executed(path: Path) -> Any | None:
    """The notebook, its cells run in examples/; None where it compiles for a device whose compiler is not installed.

    A cell that raises otherwise ends the build.
    """
    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "JAX_PLATFORMS": "cpu"}
    try:
        NotebookClient(notebook, timeout=600).execute(cwd=str(EXAMPLES), env=environment)
    except CellExecutionError as error:
        if error.ename != "CompileError" or "is not installed" not in error.evalue:
            raise
        _LOG.info("%s is shown without outputs: %s", path.name, error.evalue)
        return None
    return notebook


def without_outputs(path: Path) -> Any:
    """The notebook as it is committed, with a note after its title that says where its outputs are."""
    notebook = nbformat.read(path, as_version=4)
    title, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{title}\n\n{_NOTE.format(path.name)}\n{rest}"
    return notebook


def take_out_frames(notebook: Any, stem: str) -> list[str]:
    """The pages that a notebook shows in frames, which then read them from files beside its own page."""
    pages: list[str] = []

    def replace(match: re.Match[str]) -> str:
        pages.append(html.unescape(match[1]))
        return f'<iframe class="report" loading="lazy" title="report" src="{stem}-{len(pages) - 1}.html"></iframe>'

    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    for output in outputs:
        if "text/html" in output.get("data", ()):
            output.data["text/html"] = f"<div>{_FRAME.sub(replace, output.data['text/html'])}</div>"
    return pages
