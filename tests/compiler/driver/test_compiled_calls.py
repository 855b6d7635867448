"""Calls of functions compiled ahead of time: the first, and later ones, whose arguments are not named unless wrong."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rematc
from rematc.lowering.signature import Signature

X = np.arange(3, dtype=np.float32)


def scaled(tree: Any, scale: Any = 1) -> Any:
    return tree["layers"][0] * tree["layers"][1] * scale


def tree_of(*arrays: Any, tag: Any = "a tag") -> dict[str, Any]:
    return {"layers": list(arrays), "tag": tag}


@pytest.fixture
def compiled() -> Any:
    """Called once already."""
    made: Any = rematc.compile(scaled, tree_of(X, X))
    np.testing.assert_array_equal(made(tree_of(X, X)), X * X)
    return made


def test_later_calls_take_other_arrays_and_name_none(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Signature, "leaf_names", lambda *_: pytest.fail("the arguments are named"))
    np.testing.assert_array_equal(compiled(tree_of(X, X + 1)), X * (X + 1))
    np.testing.assert_array_equal(compiled(tree_of(jax.numpy.asarray(X), X)), X * X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (tree_of(X, X.astype(np.float64)), r"compiled for f32\[3\] as args\[0\]\['layers'\]\[1\], got f64\[3\]"),
        (tree_of(X, X[:2]), r"compiled for f32\[3\] as args\[0\]\['layers'\]\[1\], got f32\[2\]"),
        (tree_of(X, 1.0), r"compiled for f32\[3\] as args\[0\]\['layers'\]\[1\], got f64"),
        (tree_of(X), "compiled for arguments of the structure"),
        (tree_of(X, "a word"), "compiled for arguments of the structure"),
        (tree_of(X, X, tag=X), "compiled for arguments of the structure"),
        (tree_of(X, X, tag="another"), r"compiled for 'a tag' as args\[0\]\['tag'\], got 'another'; flags and static"),
        (tree_of(X, jax.random.key(0)), "compiled for arguments of the structure"),
    ],
    ids=["type", "shape", "number", "fewer", "no array", "one more array", "another flag", "key"],
)
def test_wrong_arguments_of_later_calls_are_named(compiled: Any, wrong: Any, message: str) -> None:
    with pytest.raises(rematc.CompileError, match=message):
        compiled(wrong)
    np.testing.assert_array_equal(compiled(tree_of(X, X)), X * X)


def test_calls_with_typed_keys_are_those_of_keys_each_time() -> None:
    def normal(key: Any) -> Any:
        return jax.random.normal(key, (2,))

    draw: Any = rematc.compile(rematc.from_jax(normal), jax.random.key(0))
    for seed in (0, 1):
        key = jax.random.key(seed)
        np.testing.assert_allclose(draw(key), jax.random.normal(key, (2,)), rtol=1e-6)


def test_positions_and_keywords_are_told_apart(compiled: Any) -> None:
    with pytest.raises(rematc.CompileError, match="of the structure"):
        compiled(tree=tree_of(X, X))
