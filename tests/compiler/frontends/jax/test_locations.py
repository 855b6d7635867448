"""Equations have the user's line: not that of a package which the model is made of, and not ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp

import rematc

X = jnp.ones((2, 2), jnp.float32)
from_jax: Any = rematc.from_jax


def module(path: Path, source: str) -> ModuleType:
    """A module in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def places(function: Any) -> set[tuple[str, int]]:
    graph = rematc.trace(from_jax(function), X)
    return {(Path(eqn.loc.file).name, eqn.loc.line) for eqn in graph.equations if eqn.loc is not None}


def test_the_line_of_a_package_is_that_of_the_model_which_calls_it(tmp_path: Path) -> None:
    package = module(
        tmp_path / "site-packages" / "layers.py",
        "import jax.numpy as jnp\n\ndef layer(x):\n    return jnp.sin(x @ x)\n\ndef loss(x):\n    return layer(x)\n",
    )

    def model(x: Any) -> Any:
        return package.layer(x)

    assert places(model) == {(Path(__file__).name, model.__code__.co_firstlineno + 1)}
    # Where nothing is the user's, the line is that of the package.
    assert places(package.loss) == {("layers.py", 4)}


def test_equal_code_in_two_files_has_the_lines_of_each(tmp_path: Path) -> None:
    source = "import jax.numpy as jnp\n\ndef loss(x):\n    return jnp.sin(x)\n"
    first, second = (module(tmp_path / name, source) for name in ("one.py", "two.py"))
    assert places(first.loss) == {("one.py", 4)}
    assert places(second.loss) == {("two.py", 4)}
