"""docs/ops.md says what the registry says, and every file of ops, passes and lowerings is imported."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import rematc.ir.ops
import rematc.lowering.ops
import rematc.passes

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_ops", ROOT / "docs/generate_ops.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(generator: ModuleType) -> str:
    text = generator.page()
    assert isinstance(text, str)
    return text


def test_the_page_is_up_to_date(page: str) -> None:
    assert (ROOT / "docs/ops.md").read_text(encoding="utf-8") == page, "run python docs/generate_ops.py"


def test_no_rule_is_missing(page: str) -> None:
    assert [line for line in page.splitlines() if "**missing**" in line] == []


def modules(package: ModuleType) -> dict[str, ast.Module]:
    """The modules of a package, parsed."""
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg:
            continue  # no passes, lowerings or ops stand in folders within
        path = Path(package.__path__[0]) / f"{module.name}.py"
        found[module.name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def with_decorator(package: ModuleType, *names: str) -> set[str]:
    """The modules of a package that apply one of these decorators."""
    return {
        name
        for name, tree in modules(package).items()
        if any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))
    }


def imported_by(path: str) -> set[str]:
    """What a module imports with `from ... import`."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_every_family_of_ops_is_imported() -> None:
    """Text can name an op only where its file has been imported."""
    assert sorted(with_decorator(rematc.ir.ops, "register") - imported_by("ir/ops/__init__.py")) == []


def test_every_lowering_is_imported() -> None:
    assert sorted(with_decorator(rematc.lowering.ops, "lowers") - imported_by("lowering/module.py")) == []


def test_every_pass_is_imported() -> None:
    passes = with_decorator(rematc.passes, "register_pass") - {"manager"}
    assert sorted(passes - imported_by("passes/__init__.py")) == []
