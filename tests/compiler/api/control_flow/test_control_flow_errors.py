"""Errors of loops, branches and batches: what was found, what was expected, at the user's file and line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError

X, ROWS = np.ones(4), np.ones((6, 4))


def error_of(failing: Callable[[], object]) -> CompileError:
    """The error of a function, which is at a line inside it."""
    with pytest.raises(CompileError) as caught:
        failing()
    lines, first = inspect.getsourcelines(failing)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert first <= caught.value.loc.line < first + len(lines)
    return caught.value


def line_with(function: Callable[..., object], text: str) -> int:
    """The number of the line of this file, in a function, that has this text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [number for number, line in enumerate(lines, first) if text in line]
    return found


# -- carries -------------------------------------------------------------------------------------------------------


def in_scan() -> object:
    def step(carry: Any, _: Any) -> Any:
        changed = carry["p"]["w"].astype(np.float32)  # the culprit
        return {"kept": carry["kept"] + 1, "p": {"w": changed}}, None

    return rematc.scan(step, {"kept": X, "p": {"w": X}}, ROWS)  # the loop


def in_while() -> object:
    def step(carry: Any) -> Any:
        changed = carry["p"]["w"].astype(np.float32)  # the culprit
        return {"kept": carry["kept"] + 1, "p": {"w": changed}}

    first: Any = {"kept": X, "p": {"w": X}}
    return rematc.while_loop(lambda c: c["kept"].sum() < 9, step, first)  # the loop


def in_bounded() -> object:
    def step(carry: Any) -> Any:
        changed = carry["p"]["w"].astype(np.float32)  # the culprit
        return {"kept": carry["kept"] + 1, "p": {"w": changed}}

    first: Any = {"kept": X, "p": {"w": X}}
    return rematc.bounded_while_loop(lambda c: c["kept"].sum() < 9, step, first, max_steps=3)  # the loop


def in_fori() -> object:
    def step(_: Any, carry: Any) -> Any:
        changed = carry["p"]["w"].astype(np.float32)  # the culprit
        return {"kept": carry["kept"] + 1, "p": {"w": changed}}

    return rematc.fori_loop(0, 3, step, {"kept": X, "p": {"w": X}})  # the loop


@pytest.mark.parametrize("failing", [in_scan, in_while, in_bounded, in_fori])
def test_a_carry_of_another_type_names_the_leaf_both_types_and_both_lines(failing: Callable[[], object]) -> None:
    error = error_of(failing)
    assert error.message.startswith("carry['p']['w'] of 'step' is f64[4] before a step (the loop starts at ")
    assert error.message.endswith("but f32[4] after it; convert it with astype('float64'), or start with f32[4]")
    assert error.loc is not None
    assert error.loc.line == line_with(failing, "the culprit")
    assert f"test_control_flow_errors.py:{line_with(failing, 'the loop')}" in error.message


def test_a_carry_of_another_shape_is_refused_where_it_is_made() -> None:
    def failing() -> object:
        return rematc.while_loop(
            lambda c: c.sum() < 9,
            lambda c: np.concatenate([c, c]),  # the culprit
            X,
        )

    error = error_of(failing)
    assert error.loc is not None
    assert error.loc.line == line_with(failing, "the culprit")
    assert "is f64[4] before a step" in error.message
    assert error.message.endswith("but f64[8] after it; keep its shape")


def test_a_carry_of_another_structure_is_shown_beside_the_first() -> None:
    error = error_of(lambda: rematc.scan(lambda c, x: ((c, x), None), X, ROWS))
    assert re.search(
        r"'<lambda>' \(.*:\d+\) takes a carry of the structure \* and returns one of \(\*, \*\)", str(error)
    )


# -- branches ------------------------------------------------------------------------------------------------------


def one(x: Any) -> Any:
    return {"a": x}


def two(x: Any) -> Any:
    return {"a": x, "b": x}


@pytest.mark.parametrize(
    "failing",
    [lambda: rematc.cond(True, two, one, X), lambda: rematc.switch(1, [one, one, two], X)],
    ids=["cond", "switch"],
)
def test_branches_of_different_trees_are_named_with_their_lines(failing: Callable[[], object]) -> None:
    message = error_of(failing).message
    first, second = (function.__code__.co_firstlineno for function in (one, two))
    assert f"'one' ({__file__}:{first}) returns {{'a': *}}" in message
    assert f"'two' ({__file__}:{second}) returns {{'a': *, 'b': *}}" in message


def test_branches_of_different_types_are_named_with_the_line_of_each_result() -> None:
    def failing() -> object:
        return rematc.cond(
            True,
            lambda x: {"a": x * 2},  # the first
            lambda x: {"a": x.astype(np.float32)},  # the second
            X,
        )

    message = error_of(failing).message
    for kind, text in (("f64[4]", "the first"), ("f32[4]", "the second")):
        assert f"gives {kind} ({__file__}:{line_with(failing, text)}" in message
    assert "for their output['a']" in message


# -- lengths, sizes, indices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failing", "text"),
    [
        (lambda: rematc.scan(lambda c, x: (c, None), X, None, -1), "0 or more, that is known while tracing; got -1"),
        (lambda: rematc.jit(lambda n: rematc.scan(lambda c, x: (c, None), X, None, n))(3), "length of a scan"),
        (lambda: rematc.scan(lambda c, x: (c, None), X, ROWS, unroll=0), "at least 1, or True for all; got 0"),
        (lambda: rematc.map(lambda x: x, (ROWS, X)), "a map goes over as many steps as each of xs has, found 6"),
        (lambda: rematc.map(lambda x: x, ()), "map goes over the elements of arrays, but xs has none"),
        (lambda: rematc.map(lambda x: x, ROWS, batch_size=0), "how many elements it takes at once, got 0"),
        (lambda: rematc.fori_loop(0, 2.5, lambda i, c: c, X), "upper of fori_loop is an integer scalar, got f64[]"),
        (lambda: rematc.fori_loop(X, 2, lambda i, c: c, X), "lower of fori_loop is an integer scalar, got f64[4]"),
        (lambda: rematc.bounded_while_loop(lambda c: True, lambda c: c, X, max_steps=-1), "0 or more"),
        (
            lambda: rematc.bounded_while_loop(lambda c: c.sum(), lambda c: c, X, max_steps=1),
            "expected a boolean scalar",
        ),
        (lambda: rematc.while_loop(lambda c: (c.sum() < 3,), lambda c: c, X), r"returns (*,) of (bool[]), expected"),
        (
            lambda: rematc.associative_scan(np.add, (ROWS, X)),
            "arrays that have one length there, found elems[0]: f64[6",
        ),
        (lambda: rematc.associative_scan(np.add, ROWS, axis=2), "goes along axis 2 of arrays"),
        (lambda: rematc.associative_scan(lambda x, y: (x, y), ROWS), "returns one of (*, *); return what has"),
        (
            lambda: rematc.associative_scan(lambda x, y: np.sum(x, 0), ROWS),
            "elems of f64[3,4] and gives f64[4]",
        ),
        (lambda: rematc.vmap(lambda a, b: a + b)(ROWS, X), "a has size 6 along axis 0, b has size 4 along axis 0"),
        (
            lambda: rematc.vmap(lambda d: d["a"])({"a": ROWS, "b": X}),
            "d['a'] has size 6 along axis 0, d['b'] has size 4",
        ),
        (lambda: rematc.vmap(lambda a: a, axis_size=3)(ROWS), "a has size 6 along axis 0, axis_size is 3"),
    ],
)
def test_what_does_not_fit_is_said_in_the_user_s_terms(failing: Callable[[], object], text: str) -> None:
    assert text in error_of(failing).message


# -- loops whose length is not known, static arguments -------------------------------------------------------------


@pytest.mark.parametrize("transform", [rematc.grad, rematc.jacrev, rematc.hessian])
def test_backwards_through_a_while_loop_names_what_can_be_differentiated(transform: Any) -> None:
    def loss(x: Any) -> Any:
        return rematc.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x).sum()

    with pytest.raises(CompileError, match=r"rematc\.bounded_while_loop\(cond, body, init, max_steps=") as caught:
        transform(loss)(X)
    assert caught.value.loc is not None
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, line_with(loss, "while_loop"))


def test_backwards_through_a_loop_of_computed_bounds_says_what_to_give_it() -> None:
    def loss(x: Any, n: Any) -> Any:
        return rematc.fori_loop(0, n, lambda i, c: c * x, x).sum()

    with pytest.raises(CompileError, match="Python integers as the bounds of a fori_loop") as caught:
        rematc.grad(loss)(X, 3)
    assert caught.value.loc is not None
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, line_with(loss, "fori_loop"))


class Mutable:
    """Compared by its elements, and so without a hash."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    __hash__ = None  # type: ignore[assignment]  # what the test is about

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mutable) and self.factor == other.factor


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([2.0], "the static argument options of 'scaled' is a list, which cannot be hashed"),
        ({"a": 2.0}, "pass a tuple of pairs, or a frozen dataclass"),
        ({2.0}, "pass a frozenset"),
        (np.ones(2), "pass it as an argument that is not static, or a tuple of its elements"),
        (Mutable(2.0), "pass an object with __hash__ and __eq__"),
    ],
    ids=["list", "dict", "set", "array", "object"],
)
@pytest.mark.parametrize("by", ["position", "name"])
def test_a_static_argument_that_cannot_be_hashed_is_named(value: object, text: str, by: str) -> None:
    def scaled(x: Any, options: Any) -> Any:
        return x * 2

    if by == "position":
        message = error_of(lambda: rematc.jit(scaled, static_argnums=1)(X, value)).message
    else:
        message = error_of(lambda: rematc.jit(scaled, static_argnames="options")(X, options=value)).message
    assert text in message
    assert "the static argument options of 'scaled'" in message
