"""Which of JAX's tests are of `jax.checkpoint`: those whose source says its name, or that of a helper which does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

_NAMES = re.compile("remat|checkpoint", re.IGNORECASE)
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def files_of(tree: Path) -> list[Path]:
    """The files of a source tree's tests that have such a test."""
    return [file for file in sorted((tree / "tests").rglob("*_test.py")) if any(tests_of(file).values())]


@lru_cache(maxsize=256)
def tests_of(file: Path) -> Mapping[str, frozenset[str]]:
    """For each class of a file, the methods that are such tests.

    A class whose own name says it is one of them as a whole. Parameters of a test count as its source.
    """
    text = file.read_text()
    if not _NAMES.search(text):
        return {}
    module = ast.parse(text)
    tainted = _tainted(module)
    return {
        node.name: frozenset(
            [
                method.name
                for method in node.body
                if isinstance(method, _Function)
                and method.name.startswith("test")
                and (_NAMES.search(node.name) or _is_tainted(method, tainted))
            ]
        )
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }


def _tainted(module: ast.Module) -> frozenset[str]:
    """The helpers and constants of a file whose definition says the name of the thing, or of another such helper."""
    definitions = list(_definitions(module))
    tainted: frozenset[str] = frozenset()
    while True:
        found = frozenset([name for name, node in definitions if _is_tainted(node, tainted)])
        if found == tainted:
            return found
        tainted = found


def _definitions(module: ast.Module) -> Iterable[tuple[str, ast.AST]]:
    for node in module.body:
        if isinstance(node, _Function):
            yield node.name, node
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        if isinstance(node, ast.ClassDef):
            methods = [method for method in node.body if isinstance(method, _Function)]
            yield from ((method.name, method) for method in methods if not method.name.startswith("test"))


def _is_tainted(node: ast.AST, tainted: frozenset[str]) -> bool:
    return any(_NAMES.search(name) or name in tainted for name in _identifiers(node))


def _identifiers(node: ast.AST) -> Iterable[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, _Function):
            yield part.name
