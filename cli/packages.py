"""Models with relative imports: the package that a file is part of."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from rematc.ir.errors import CompileError
from rematc.ir.locations import Location

#: What a file with relative imports has somewhere, perhaps in a string: only such files are parsed for them.
_PERHAPS_RELATIVE = re.compile(rb"\bfrom[\s\\]*\.")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file stands among packages.

    Attributes:
        package: the package that it is part of, with dots.
        root: the folder that holds the outermost package: what has to be on `sys.path`.
    """

    package: str
    root: Path


def place_of(path: Path, source: bytes) -> Place | None:
    """The package of a file that imports relatively; None for a file that does not, which is a script.

    The package goes up as far as there is an `__init__.py`, and as far as the imports do: Python takes folders without
    one for packages too. Raises CompileError where the folders end before, and where another module has the name.
    """
    deepest = max(_relative_imports(source), key=lambda found: found.level, default=None)
    if deepest is None:
        return None
    folders = [path.parent]
    while len(folders) < deepest.level or (folders[-1].parent / "__init__.py").is_file():
        folders.append(folders[-1].parent)
    loc = Location(str(path), deepest.lineno, deepest.col_offset + 1)
    if not all(folder.name for folder in folders):
        raise CompileError(f"a relative import of {deepest.level} dots, and no folder is so far up", loc)
    _check_outermost(folders[-1], loc)
    return Place(".".join([folder.name for folder in reversed(folders)]), folders[-1].parent)


def _relative_imports(source: bytes) -> list[ast.ImportFrom]:
    if _PERHAPS_RELATIVE.search(source) is None:
        return []
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level]


def _check_outermost(folder: Path, loc: Location) -> None:
    """Raises CompileError where `import` of the folder's name would find another module."""
    loaded = sys.modules.get(folder.name)
    if loaded is not None and str(folder) not in map(str, getattr(loaded, "__path__", ())):
        raise CompileError(
            f"the package that this file imports from is the folder {folder}, and a module of the name "
            f"'{folder.name}' is loaded already; rename the folder, or import without dots",
            loc,
        )
