"""Branches and loops of unknown length through the public interface, against JAX."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.scan.op import Scan

RANDOM = np.random.default_rng(0)
W, X = RANDOM.normal(size=(4, 4)), np.arange(4.0) / 3 + 0.1


def close(found: Any, expected: Any) -> None:
    """Equal trees but for the order of sums, in float64."""
    ours, theirs = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def names(graph: Graph) -> Counter[str]:
    """How often each op stands in a graph and its regions."""
    counts = Counter(eqn.op.name for eqn in graph.equations)
    for eqn in graph.equations:
        for region in eqn.op.regions():
            counts += names(region)
    return counts


# -- cond and switch -----------------------------------------------------------------------------------------------


def branching(cond: Any, lib: Any, is_positive: bool) -> Any:
    def loss(w: Any, x: Any) -> Any:
        holds = (lib.sum(x) > 0) if is_positive else (lib.sum(x) < 0)
        y = cond(holds, lambda x: lib.sin(w @ lib.sin(w @ x)), lambda x: lib.cos(lib.exp(x) * x), x)
        return (y * lib.sin(y)).sum()

    return loss


@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
@pytest.mark.parametrize("is_positive", [True, False])
def test_the_gradient_of_cond_is_that_of_its_branch(is_positive: bool, policy: str | None) -> None:
    found = rematc.value_and_grad(branching(rematc.cond, np, is_positive), (0, 1), policy=policy)(W, X)
    with jax.enable_x64(True):
        close(found, jax.value_and_grad(branching(jax.lax.cond, jnp, is_positive), (0, 1))(W, X))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_takes_the_nearest_branch(index: int) -> None:
    branches = [lambda x: x, lambda x: x * 2, lambda x: x + X]
    close(rematc.switch(index, branches, X), branches[min(max(index, 0), 2)](X))


def test_the_second_derivative_of_a_branch_is_jax_s() -> None:
    def curved(cond: Any, lib: Any, grad: Any) -> Any:
        def inner(x: Any) -> Any:
            return branching(cond, lib, True)(W, x)

        return lambda x: (grad(inner)(x) * X).sum()

    found = rematc.grad(curved(rematc.cond, np, rematc.grad))(X)
    with jax.enable_x64(True):
        close(found, jax.grad(curved(jax.lax.cond, jnp, jax.grad))(X))


def test_python_numbers_yield_to_the_arrays_of_the_other_branch() -> None:
    found = rematc.cond(True, lambda x: 1, lambda x: x, np.float32(2))
    assert np.asarray(found).dtype == np.float32


def layers(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = np.sin(x @ w)
    return x


@pytest.mark.parametrize("is_inside", [True, False])
def test_products_saved_in_a_branch_are_not_repeated(is_inside: bool) -> None:
    """jax's test_remat_checkpoint_dots_inside_cond and _outside_cond: sin 2, cos 3, dot 5 (x is a constant)."""

    def loss(w: Any) -> Any:
        x = np.ones(5)
        inner = rematc.checkpoint(lambda x: layers(w, x), policy="dots") if is_inside else lambda x: layers(w, x)

        def chosen(x: Any) -> Any:
            return rematc.cond(np.sum(x) > 0, inner, lambda x: x, x)

        outer = chosen if is_inside else rematc.checkpoint(chosen, policy="dots")
        return outer(x).sum()

    (record,) = rematc.lower(rematc.value_and_grad(loss), np.ones((5, 5))).records
    assert isinstance(record, Differentiation)
    counts = names(record.vjp.backward)
    assert (counts["sine"], counts["cosine"], counts["dot_general"]) == (2, 3, 5)


@pytest.mark.parametrize(
    ("branch", "text"),
    [
        (lambda x: x.astype(np.float32), r"for their outputs 'first' gives f64\[4\] .*gives f32\[4\]"),
        (lambda x: (x, x), r"different structures: '<lambda>' \(.*\) returns .* 'first' \(.*\) returns"),
    ],
)
def test_branches_that_differ_are_refused_by_name(branch: Any, text: str) -> None:
    def first(x: Any) -> Any:
        return x + 1

    with pytest.raises(CompileError, match=text) as caught:
        rematc.cond(True, first, branch, X) if "different" in text else rematc.cond(True, branch, first, X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_a_predicate_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(CompileError, match=r"cond chooses by a boolean scalar, got f64\[4\]"):
        rematc.cond(X, lambda: 1.0, lambda: 2.0)


# -- while and its kin ---------------------------------------------------------------------------------------------


def test_while_is_the_loop_and_has_tangents() -> None:
    def loop(while_loop: Any, lib: Any) -> Any:
        return lambda x: while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, lib.sin(c[1]) * x), (0, x))[1]

    found = rematc.jvp(loop(rematc.while_loop, np), (X,), (X + 1,))
    with jax.enable_x64(True):
        close(found, jax.jvp(loop(jax.lax.while_loop, jnp), (X,), (X + 1,)))


def test_while_has_no_gradient_and_says_what_has() -> None:
    def loss(x: Any) -> Any:
        return rematc.while_loop(lambda c: c.sum() < 5, lambda c: c * 2, x).sum()

    with pytest.raises(CompileError, match=r"bounded_while_loop\(cond, body, init, max_steps=") as caught:
        rematc.grad(loss)(X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_while_beside_what_is_differentiated_does_not_matter() -> None:
    def loss(x: Any) -> Any:
        steps = rematc.while_loop(lambda n: n < 5, lambda n: n + 2, 0)
        return rematc.checkpoint(lambda x: (x * steps).sum())(x)

    close(rematc.grad(loss)(X), np.full(4, 6.0))


@pytest.mark.parametrize("wrap", [lambda f: f, rematc.checkpoint])
def test_a_bounded_while_has_the_gradient_of_the_steps_it_takes(wrap: Any) -> None:
    def loss(x: Any) -> Any:
        body = wrap(lambda c: np.sin(c) + c * x + 1)
        return rematc.bounded_while_loop(lambda c: c.sum() < 50, body, x, max_steps=30).sum()

    carry, steps = X, 0
    while carry.sum() < 50:
        carry, steps = np.sin(carry) + carry * X + 1, steps + 1

    def unrolled(x: Any) -> Any:
        c = x
        for _ in range(steps):
            c = jnp.sin(c) + c * x + 1
        return c.sum()

    found = rematc.value_and_grad(loss)(X)
    with jax.enable_x64(True):
        close(found, jax.value_and_grad(unrolled)(X))


def test_a_for_loop_of_fixed_bounds_has_gradients() -> None:
    def loss(fori_loop: Any, lib: Any) -> Any:
        return lambda x: fori_loop(2, 7, lambda i, c: lib.sin(c) * i + x, x).sum()

    found = rematc.grad(loss(rematc.fori_loop, np))(X)
    with jax.enable_x64(True):
        close(found, jax.grad(loss(jax.lax.fori_loop, jnp))(X))


def test_a_for_loop_takes_bounds_that_are_computed() -> None:
    found = rematc.jit(lambda n: rematc.fori_loop(0, n, lambda i, c: c + i, np.float32(0)))(np.int64(5))  # type: ignore[operator]  # an index
    assert np.asarray(found) == 10


@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 4, 9])
def test_map_stacks_what_each_element_gives(batch_size: int | None) -> None:
    found = rematc.map(lambda x: {"a": x["u"] * 2, "b": x["v"]}, {"u": X, "v": W}, batch_size=batch_size)
    close(found, {"a": X * 2, "b": W})


def test_map_takes_batches_one_after_another_and_the_rest_at_the_end() -> None:
    """Seven rows by three: a loop of two steps over batches, and one batch of one row."""

    def mapped(rows: Any) -> Any:
        return rematc.map(lambda x: np.sin(W @ x), rows, batch_size=3)

    rows = RANDOM.normal(size=(7, 4))
    graph = rematc.trace(mapped, rows)
    (loop,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan)]
    assert (loop.length, loop.body.param_types[-1].shape) == (2, (3, 4))
    close(rematc.grad(lambda rows: mapped(rows).sum())(rows), np.cos(rows @ W.T) @ W)


def test_map_of_nothing_is_nothing() -> None:
    assert np.asarray(rematc.map(np.sin, np.zeros((0, 4)), batch_size=2)).shape == (0, 4)


@pytest.mark.parametrize(("unroll", "sines"), [(1, 1), (2, 3), (True, 5)])
def test_a_for_loop_unrolls(unroll: int | bool, sines: int) -> None:
    """Two of five steps at a time leave one behind the loop."""

    def loop(x: Any) -> Any:
        return rematc.fori_loop(2, 7, lambda i, c: np.sin(c) * i + x, x, unroll=unroll)

    close(loop(X), rematc.fori_loop(2, 7, lambda i, c: np.sin(c) * i + X, X))
    text = rematc.lower(loop, X).stablehlo()
    assert text.count("stablehlo.sine") == sines


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
def test_prefixes_are_jax_s(length: int, reverse: bool) -> None:
    z = RANDOM.normal(size=(2, length)) + 1

    def affine(x: Any, y: Any) -> Any:
        return x[0] * y[0], x[1] * y[0] + y[1]

    found = rematc.associative_scan(affine, (z, z + 1), reverse=reverse, axis=1)
    with jax.enable_x64(True):
        close(found, jax.lax.associative_scan(affine, (z, z + 1), reverse=reverse, axis=1))


def test_a_condition_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(CompileError, match=r"returns f64\[4\], expected a boolean scalar"):
        rematc.while_loop(lambda c: c, lambda c: c, X)
