"""Signatures: which arguments are meant, what they are called, which calls are alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util
import numpy as np
import pytest

from rematc.ir.errors import CompileError
from rematc.lowering.signature import NO_OWNERS, Owners, Signature, owners_of_leaves, static_key

X = np.zeros(3, np.float32)


def plain(x: Any, y: Any = 1, *, k: Any = 2) -> None:
    """Arguments in each form."""


def leading(x: Any, /, y: Any) -> None:
    """An argument that has no keyword."""


def rest(x: Any, *xs: Any, **kwargs: Any) -> None:
    """Any number of arguments."""


@pytest.mark.parametrize(
    ("function", "argnums", "argnames", "positions", "names"),
    [
        (plain, (), (), set(), set()),
        (plain, 0, (), {0}, {"x"}),
        (plain, -1, (), {1}, {"y"}),
        (plain, (), "y", {1}, {"y"}),
        (plain, (0,), ("k", "y"), {0, 1}, {"x", "k", "y"}),
        (leading, (0, 1), (), {0, 1}, {"y"}),
        (rest, 3, "any", {3}, {"any"}),
        (min, 5, "any", {5}, {"any"}),
    ],
)
def test_arguments_are_meant_in_either_form(
    function: Callable[..., object], argnums: Any, argnames: Any, positions: set[int], names: set[str]
) -> None:
    assert Signature.of(function, argnums, argnames).statics == Owners(frozenset(positions), frozenset(names))


@pytest.mark.parametrize(
    ("function", "argnums", "argnames", "message"),
    [
        (plain, 2, (), "donate_argnums names argument 2, but 'plain' takes 2 positional arguments"),
        (plain, -3, (), "donate_argnums names argument -3, but 'plain' takes 2"),
        (rest, -1, (), "donate_argnums counts from the end"),
        (plain, (), "z", r"donate_argnames names 'z', but 'plain' has no such argument \(arguments: k, x, y\)"),
    ],
)
def test_arguments_that_a_function_does_not_have_are_named(
    function: Callable[..., object], argnums: Any, argnames: Any, message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        Signature.of(function).owners(argnums, argnames, "donate")


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plain, ("x['a'][0]", "y", "k['b']")),
        (rest, ("x['a'][0]", "xs[0]", "k['b']")),
        (None, ("args[0]['a'][0]", "args[1]", "k['b']")),
    ],
)
def test_leaves_are_called_as_the_user_calls_them(
    function: Callable[..., object] | None, names: tuple[str, ...]
) -> None:
    rows, _ = jax.tree_util.tree_flatten_with_path((({"a": [X]}, X), {"k": {"b": X}}))
    assert Signature.of(function).leaf_names([path for path, _ in rows]) == names


def test_static_arguments_leave_their_places() -> None:
    (positional, keyword), held = Owners(frozenset({0}), frozenset({"k"})).split((1, X), {"k": 2, "y": X})
    assert (positional[0], list(keyword), held) == (None, ["y"], {0: 1, "k": 2})
    assert NO_OWNERS.split((1,), {}) == (((1,), {}), {})


def test_leaves_have_the_arguments_they_are_part_of() -> None:
    tree = jax.tree_util.tree_structure(((None, {"a": 0, "b": (0, 0)}), {"k": [0]}))
    assert owners_of_leaves(tree) == {0: 1, 1: 1, 2: 1, 3: "k"}


def test_keys_tell_types_apart_and_take_what_cannot_be_hashed() -> None:
    one, other = [1], [1]
    assert static_key([(0, 1)]) == static_key([(0, 1)]) != static_key([(0, True)])
    assert static_key([(0, one)]) == static_key([(0, one)]) != static_key([(0, other)])
