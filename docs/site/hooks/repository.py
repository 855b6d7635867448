"""Files of the repository that pages link to, as pages: links of the documents work on GitHub and on the site."""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
#: Documents outside of docs/, which have pages of their own.
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".md": "markdown", ".json": "json"}


@event_priority(-50)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each document outside of docs/, and for each file that some page links to."""
    for document in DOCUMENTS:
        files.append(File.generated(config, f"repository/{document}", content=(ROOT / document).read_text("utf-8")))
    linked: set[Path] = set()
    for file in files.documentation_pages():
        for path in linked_files(folder_of(file.src_uri), file.content_string):
            linked.add(path)
    for path in sorted(linked):
        files.append(File.generated(config, place_of(path), content=listing(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links to files of the repository leading to their pages."""
    folder = folder_of(page.file.src_uri)

    def follow(match: re.Match[str]) -> str:
        path = target(folder, match[2])
        if path is None:
            return match[0]
        to = posixpath.relpath(place_of(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{to}{match[3]}"

    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(follow, part) for part in parts)


def folder_of(uri: str) -> Path:
    """The folder in the repository in which a page's source stands, from which its links lead."""
    if uri.startswith("repository/"):
        return (ROOT / uri.removeprefix("repository/")).parent
    if uri.startswith("notebooks/"):
        return ROOT / "examples"
    return (DOCS / uri).parent


def target(folder: Path, link: str) -> Path | None:
    """The file of the repository that a link of a document leads to; None for another kind of link."""
    if re.match(r"[a-z]+:", link) or link.startswith("/"):
        return None
    path = Path(os.path.normpath(folder / link))
    return path if path.exists() and path.is_relative_to(ROOT) else None


def linked_files(folder: Path, text: str) -> set[Path]:
    """What a page links to that has no page yet."""
    paths = {target(folder, match[2]) for match in _LINK.finditer(_FENCED.sub("", text))}
    return {path for path in paths if path is not None and needs_listing(path)}


def needs_listing(path: Path) -> bool:
    """Whether nothing else makes a page of it."""
    is_document = path.suffix == ".md" and (path.parent == DOCS or path.name in DOCUMENTS)
    return not (is_document or path.suffix == ".ipynb" or path.is_relative_to(DOCS / "images"))


def place_of(path: Path) -> str:
    """Where the page of a file of the repository stands on the site."""
    if path.is_relative_to(DOCS) and not needs_listing(path):
        return path.relative_to(DOCS).as_posix()
    if path.suffix == ".ipynb":
        return f"notebooks/{path.stem}.md"
    uri = f"repository/{path.relative_to(ROOT).as_posix()}"
    return uri if path.name in DOCUMENTS else f"{uri}.md"


def listing(path: Path) -> str:
    """A page with the text of a file, or the names and first lines of the files in a folder."""
    name = path.relative_to(ROOT).as_posix()
    front = f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n"
    if path.is_dir():
        rows = [f"| `{one.name}` | {summary(one)} |" for one in sorted(path.glob("*.py"))]
        return front + "\n".join(["| file | |", "|---|---|", *rows, ""])
    return f"{front}````{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8').rstrip()}\n````\n"


def summary(path: Path) -> str:
    """The first line of a module's docstring."""
    found = re.match(r'"""(.*?)(?:"""|\n)', path.read_text("utf-8"))
    return found[1] if found else ""
