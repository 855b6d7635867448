"""Circles of imports, between files or between packages: `python -m tests.support.circles` names them, and fails.

Every import counts, those inside functions and under TYPE_CHECKING, too. The children of a package are its files, its
`__init__` among them, and its packages with all that is in them. Files that import each other in a circle lie in
different children of the innermost package that holds them all; so if no package has a circle among its children, there
is none anywhere.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
INIT = "__init__"


#: The lines that import, by importing and imported module.
Imports = dict[tuple[str, str], str]


def modules(package: Path) -> dict[str, Path]:
    """The files of a package by their dotted names; that of a folder's own code ends in `__init__`. Follows links."""
    found = {}
    for entry in package.iterdir():
        for file in entry.resolve().rglob("*.py") if entry.is_dir() else [entry]:
            if file.suffix == ".py":
                inside = file.relative_to(entry.resolve()).parts if entry.is_dir() else ()
                found[".".join([package.name, entry.stem, *inside]).removesuffix(".py")] = file
    return found


def imports(files: Mapping[str, Path]) -> Imports:
    """Which of the modules import each other, and where."""
    found: Imports = {}
    for module, file in files.items():
        for line, name in _imported(ast.parse(file.read_text(encoding="utf-8"))):
            options = (name, f"{name}.{INIT}", name.rpartition(".")[0], f"{name.rpartition('.')[0]}.{INIT}")
            target = next((one for one in options if one in files), None)
            if target is not None and target != module:
                found.setdefault((module, target), f"{file}:{line} imports {target.removesuffix(f'.{INIT}')}")
    return found


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and names: of `from a import b` it is a.b, which may be a module or a name in a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def circles(package: Path) -> dict[str, list[str]]:
    """For each package, this one or in it, whose children import each other in a circle, the lines that do."""
    files = modules(package)
    lines = imports(files)
    found = {}
    for parent in sorted({name[:at] for name in files for at, letter in enumerate(name) if letter == "."}):
        between = _between_children(parent, lines)
        graph: dict[str, set[str]] = {}
        for child, other in between:
            graph.setdefault(child, set()).add(other)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            found[parent] = [between[pair] for pair in pairwise(reversed(error.args[1]))]
    return found


def _between_children(parent: str, lines: Imports) -> Imports:
    """For each two children of a package of which one imports the other, a line that does."""
    found: Imports = {}
    for (module, target), line in lines.items():
        child, other = _child(parent, module), _child(parent, target)
        if child and other and child != other:
            found.setdefault((child, other), line)
    return found


def _child(parent: str, module: str) -> str:
    """The child of a package that a module is, or is in; "" where it is not in the package."""
    return module.removeprefix(f"{parent}.").partition(".")[0] if module.startswith(f"{parent}.") else ""


def main() -> int:
    """Print the circles; 1 if there are any."""
    found = circles(ROOT / "src" / "rematc")
    for package, lines in found.items():
        print(f"{package}: a circle of imports", *lines, sep="\n  ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
