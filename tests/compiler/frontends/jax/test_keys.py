"""Typed random keys: bits, moves of keys, and keys as arguments and results are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.ir.errors import CompileError
from tests.support.jax_programs import assert_like_jax, assert_same_values

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
random: Any = jax.random

GENERATORS = ("threefry2x32", "rbg")
X = jnp.asarray([0.5, -1.2, 2.0], jnp.float32)

MADE: dict[str, Callable[[Any], Any]] = {
    "split": lambda k: (random.split(k, 3), random.split(k, (2, 1))),
    "fold": lambda k: (random.fold_in(k, 5), jax.vmap(random.fold_in, (None, 0))(k, jnp.arange(3))),
    "bits": lambda k: (random.bits(k, (3, 5)), random.bits(k, (4,), jnp.uint8), random.bits(k, (), jnp.uint16)),
    "floats": lambda k: (random.normal(k, (3,)), random.uniform(k, (2, 2), minval=-1.0)),
    "words": lambda k: (random.key_data(k), random.clone(k), random.key_data(random.split(k, 2))),
    "in a scan": lambda k: lax.scan(lambda c, _: (random.split(c)[0], random.bits(c, ())), k, None, length=3),
    "slices of a scan": lambda k: lax.scan(lambda c, k: (c + random.uniform(k), k), 0.0, random.split(k, 3)),
    "in branches": lambda k: lax.cond(random.bits(k, ()) > 7, lambda k: random.split(k)[0], lambda k: k, k),
}
MOVED: dict[str, Callable[[Any], Any]] = {
    "slices": lambda k: (k[1], k[1:3], k[::-1], lax.dynamic_index_in_dim(k, 2)),
    "shapes": lambda k: (k.reshape(2, 2), k[None], k.reshape(2, 2).T, jnp.broadcast_to(k, (2, 4))),
    "joins": lambda k: (jnp.concatenate([k, k[:1]]), jnp.stack([k, k]), jnp.roll(k, 1)),
    "choices": lambda k: (jnp.where(jnp.arange(4) > 2, k, k[::-1]), k[jnp.array([2, 0])]),
    "comparisons": lambda k: (k == k[::-1], k != k[0]),
}


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_keys_is_bit_for_bit_that_of_jax(name: str, generator: str) -> None:
    assert_same_values(MADE[name], random.key(3, impl=generator))


@pytest.mark.parametrize("name", ["split", "fold", "bits"])
def test_the_unsafe_generator_has_its_own_way_to_split(name: str) -> None:
    assert_same_values(MADE[name], random.key(3, impl="unsafe_rbg"))


@pytest.mark.parametrize("name", MOVED)
def test_keys_move_like_other_arrays(name: str) -> None:
    assert_same_values(MOVED[name], random.split(random.key(3), 4))


def test_keys_are_made_of_seeds() -> None:
    assert_same_values(lambda seed: (random.key(seed), random.PRNGKey(seed), random.key(seed, impl="rbg")), 7)


def test_a_batch_of_keys_has_the_bits_of_each() -> None:
    keys = random.split(random.key(0), 3)
    found = rematc.vmap(from_jax(lambda k: random.normal(k, (2,))))(keys)
    np.testing.assert_array_equal(found, jax.vmap(lambda k: random.normal(k, (2,)))(keys))


def test_a_dropout_mask_is_recomputed_bit_for_bit() -> None:
    @jax.checkpoint
    def dropped(x: Any, key: Any) -> Any:
        return jnp.where(random.bernoulli(key, 0.5, x.shape), jnp.sin(x), 0)

    assert_like_jax(dropped, X, random.key(2), batched=False)


def test_samples_have_the_derivatives_of_jax() -> None:
    """That of a gamma sample is JAX's own rule of a primitive that has no import rule."""
    assert_like_jax(lambda a: random.gamma(random.key(1), a), jnp.float32(0.7), policies=["none"], batched=False)


@pytest.mark.parametrize("generator", GENERATORS)
def test_typed_keys_go_in_and_come_out(generator: str) -> None:
    key = random.key(4, impl=generator)
    function: Any = from_jax(lambda k: {"next": random.split(k)[0], "bits": random.bits(k, (2,))})
    found: Any
    for found in (function(key), rematc.jit(function)(key), rematc.compile(function, key)(key)):
        assert found["next"].dtype == key.dtype
        assert bool((found["next"] == random.split(key)[0]).all())
        np.testing.assert_array_equal(found["bits"], random.bits(key, (2,)))


def test_a_traced_key_is_one_for_our_own_random_numbers() -> None:
    found = rematc.jit(lambda k: rematc.random.normal(k, (3,)))(random.key(5))
    np.testing.assert_allclose(found, random.normal(random.key(5), (3,)), rtol=1e-6)
    with pytest.raises(CompileError, match="generator threefry2x32, got a key of 'rbg'"):
        rematc.trace(lambda k: rematc.random.normal(k, (3,)), random.key(5, impl="rbg"))


@pytest.mark.parametrize("count", [1, 3000])
@pytest.mark.parametrize("policy", [None, "nothing"])
def test_keys_from_outside_are_constants(count: int, policy: str | None) -> None:
    keys = random.split(random.key(7), count)

    def noisy(x: Any) -> Any:
        inner = lax.scan(lambda c, k: (jnp.sin(c + random.normal(k, (3,))), None), x, keys)[0]
        return jnp.sum(inner * jax.vmap(lambda k: random.uniform(k, (3,)))(keys).mean(0))

    expected = jax.value_and_grad(noisy)(X)
    step: Any = rematc.value_and_grad(from_jax(noisy), policy=policy)
    for found in (step(X), rematc.compile(step, X)(X)):
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), found, expected)
