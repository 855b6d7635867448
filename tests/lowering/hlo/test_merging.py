"""Value numbering finds what barriers keep apart, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rematc.lowering.hlo.merging import Repetition, repeated_products
from rematc.lowering.hlo.parser import parse_hlo

X = np.ones((8, 16), np.float32)
LAYERS = [np.full((16, 16), index, np.float32) for index in range(5)]


def repetition(function: Callable[..., Any], *args: Any) -> Repetition:
    text = jax.jit(function).lower(*args).as_text(dialect="hlo", debug_info=True)
    return repeated_products(parse_hlo(text))


def chain(wrap: Callable[..., Any]) -> Callable[..., Any]:
    layer = wrap(lambda w, x: jnp.sin(jnp.sin(x @ w) @ w))

    def loss(layers: Any, x: Any) -> Any:
        for w in layers:
            x = layer(w, x)
        return x.sum()

    return jax.value_and_grad(loss)


def test_without_checkpoints_nothing_is_repeated() -> None:
    found = repetition(chain(lambda f: f), LAYERS, X)
    assert found.repeated.total() == 0
    # Two forwards and four backwards a layer, but for the cotangent of x in the first.
    assert found.all.total() == 6 * 5 - 1


@pytest.mark.parametrize(("policy", "repeated"), [("nothing_saveable", 10), ("dots_saveable", 0)])
def test_checkpoints_repeat_what_they_recompute(policy: str, repeated: int) -> None:
    def wrap(function: Any) -> Any:
        return jax.checkpoint(function, policy=getattr(jax.checkpoint_policies, policy))

    found = repetition(chain(wrap), LAYERS, X)
    assert found.repeated.total() == repeated
    assert found.all.total() - found.repeated.total() == 6 * 5 - 1


def test_different_weights_are_different_products() -> None:
    found = repetition(lambda v, w, x: (x @ v).sum() + (x @ w).sum(), LAYERS[0], LAYERS[1], X)
    assert found.repeated.total() == 0


def test_the_same_product_twice_is_a_repetition_through_calls() -> None:
    @jax.jit
    def layer(w: Any, x: Any) -> Any:
        return jnp.sin(x @ w)

    found = repetition(lambda w, x: layer(w, x).sum() + (x @ w).sum() + layer(2 * w, x).sum(), LAYERS[0], X)
    assert (found.all.total(), found.repeated.total()) == (3, 1)


def rolled(policy: Any, length: int = 6, xs: Any = None) -> Callable[..., Any]:
    def loss(w: Any, x: Any) -> Any:
        step = jax.checkpoint(lambda c, _: (jnp.sin(c @ w), None), policy=policy)
        return jax.lax.scan(step, x, xs, length)[0].sum()

    return jax.value_and_grad(loss)


def test_a_step_that_repeats_the_forward_loops_is_a_repetition() -> None:
    found = repetition(rolled(None), LAYERS[0], X)
    assert found.all.total() == 6 * 4  # forward, recompute, two cotangents
    assert found.repeated.total() == found.looped == 6


def test_what_a_loop_saved_is_not_repeated() -> None:
    found = repetition(rolled(jax.checkpoint_policies.dots_saveable), LAYERS[0], X)
    assert found.all.total() == 6 * 3
    assert found.repeated.total() == 0


def test_loops_over_other_values_repeat_nothing() -> None:
    def last(w: Any, x: Any, rows: Any) -> Any:
        return jax.lax.scan(lambda c, row: (jnp.sin(c @ w + row), None), x, rows)[0].sum()

    rows = np.ones((6, 8, 16), np.float32)
    twice = repetition(lambda w, x, a, b: last(w, x, a) + last(w, x, b), LAYERS[0], X, rows, rows)
    assert (twice.all.total(), twice.repeated.total()) == (12, 0)
    same = repetition(lambda w, x, a: last(w, x, a) + last(w, x, a).sum(), LAYERS[0], X, rows)
    assert (same.all.total(), same.repeated.total()) == (12, 6)
    shifted = repetition(lambda w, x, a: last(w, x, a[:-1]) + last(w, x, a[1:]), LAYERS[0], X, rows)
    assert (shifted.all.total(), shifted.repeated.total()) == (10, 0)


def test_a_product_of_another_row_is_another_product() -> None:
    """A step that multiplies this row and the next one multiplies no row twice."""

    def loss(w: Any, rows: Any) -> Any:
        def step(i: Any, total: Any) -> Any:
            return total + (rows[i] @ w).sum() + (rows[i + 1] @ w).sum()

        return jax.lax.fori_loop(0, 5, step, 0.0)

    found = repetition(loss, LAYERS[0], np.ones((6, 8, 16), np.float32))
    assert (found.all.total(), found.repeated.total()) == (10, 0)


@pytest.mark.parametrize("outer", [2, 3])
def test_loops_of_loops(outer: int) -> None:
    """The backward pass takes the inner steps of an outer one again, and in each of these the product once more."""

    def loss(w: Any, x: Any) -> Any:
        inner = jax.checkpoint(lambda c, _: (jnp.sin(c @ w), None))
        whole = jax.checkpoint(lambda c, _: (jax.lax.scan(inner, c, None, 12 // outer)[0], None))
        return jax.lax.scan(whole, x, None, outer)[0].sum()

    found = repetition(jax.value_and_grad(loss), LAYERS[0], X)
    assert found.repeated.total() == found.looped == 12 + 12
    assert found.all.total() == 12 * 5


def test_what_only_a_conditional_keeps_apart_is_a_repetition() -> None:
    def function(w: Any, x: Any, switch: Any) -> Any:
        again = jax.lax.cond(switch, lambda y: jnp.cos(y @ w), jnp.sin, x)
        return (x @ w).sum() + again.sum()

    assert repetition(function, LAYERS[0], X, True).repeated.total() == 1


def test_of_branches_the_dearest_counts_and_none_is_there_for_another() -> None:
    def function(w: Any, x: Any, switch: Any) -> Any:
        return jax.lax.cond(switch, lambda y: jnp.cos(y @ w) @ w, lambda y: y @ w, x).sum()

    found = repetition(function, LAYERS[0], X, True)
    assert (found.all.total(), found.repeated.total()) == (2, 0)


LOOPS = """HloModule m
%body (s: f32[8,8]) -> f32[8,8] {
  %s = f32[8,8]{1,0} parameter(0)
  ROOT %d = f32[8,8]{1,0} dot(%s, %s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%condition (t: f32[8,8]) -> pred[] {
  %t = f32[8,8]{1,0} parameter(0)
  ROOT %true = pred[] constant(true)
}
ENTRY %e {
  %x = f32[8,8]{1,0} parameter(0)
  %first = f32[8,8]{1,0} while(%x), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %y = f32[8,8]{1,0} while(%first), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""


def test_a_loop_whose_state_is_no_tuple_counts_and_repeats_nothing() -> None:
    found = repeated_products(parse_hlo(LOOPS))
    assert (found.all.total(), found.repeated.total()) == (10, 0)


def test_dead_products_do_not_count() -> None:
    text = """HloModule m
ENTRY %e {
  %x = f32[8,8]{1,0} parameter(0)
  %dead = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %y = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""
    assert repeated_products(parse_hlo(text)).all.total() == 1
