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


def test_loops_are_apart() -> None:
    def loss(w: Any, x: Any) -> Any:
        step = jax.checkpoint(lambda c, _: (jnp.sin(c @ w), None))
        return jax.lax.scan(step, x, None, 6)[0].sum()

    found = repetition(jax.value_and_grad(loss), LAYERS[0], X)
    assert found.repeated.total() == 0
    assert found.all.total() == 6 * 4  # forward, recompute, two cotangents


def test_what_only_a_conditional_keeps_apart_is_a_repetition() -> None:
    def function(w: Any, x: Any, switch: Any) -> Any:
        again = jax.lax.cond(switch, lambda y: jnp.cos(y @ w), jnp.sin, x)
        return (x @ w).sum() + again.sum()

    assert repetition(function, LAYERS[0], X, True).repeated.total() == 1


def test_dead_products_do_not_count() -> None:
    text = """HloModule m
ENTRY %e {
  %x = f32[8,8]{1,0} parameter(0)
  %dead = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %y = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""
    assert repeated_products(parse_hlo(text)).all.total() == 1
