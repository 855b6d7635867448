"""Slices of a batch that goes through the loops, branches and regions of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc.jax
from rematc.ir.errors import CompileError
from tests.compiler.test_slices import assert_near, cross_entropy, taken

BATCH, TOKENS, WIDTH, LAYERS, VOCABULARY = 8, 32, 32, 4, 256
Model = Callable[[Any, Any], Any]


def drawn(*shape: int) -> Any:
    random = np.random.default_rng(len(shape))
    return jnp.asarray(random.normal(size=shape).astype(np.float32) / np.sqrt(shape[-2]))


def params() -> Any:
    layers = {
        "qkv": drawn(LAYERS, WIDTH, 3 * WIDTH),
        "up": drawn(LAYERS, WIDTH, 128),
        "down": drawn(LAYERS, 128, WIDTH),
    }
    return {"embedding": drawn(VOCABULARY, WIDTH), "layers": layers}


def tokens() -> Any:
    return jnp.asarray(np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, TOKENS + 1)).astype(np.int32))


def attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.split(x @ w["qkv"], 3, -1)
    scores = jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), q @ k.swapaxes(1, 2) / WIDTH**0.5, -1e9)
    return x + jax.nn.softmax(scores) @ v


def layer(x: Any, w: Any) -> Any:
    x = attention(x, w)
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def scanned(p: Any, given: Any, step: Callable[..., Any]) -> Any:
    """Layers in a loop; `step` gives what the next one reads."""
    x = lax.scan(lambda x, w: (step(x, w), None), p["embedding"][given[:, :-1]], p["layers"])[0]
    return cross_entropy(x @ p["embedding"].T, given[:, 1:]).mean()


def plain(p: Any, given: Any) -> Any:
    return scanned(p, given, layer)


def checkpointed(p: Any, given: Any) -> Any:
    return scanned(p, given, jax.checkpoint(layer))


def with_branches(p: Any, given: Any) -> Any:
    """Each second layer is an identity of its attention, as of local and global layers."""

    def step(carry: Any, w: Any) -> Any:
        n, x = carry
        x = lax.cond(n % 2 == 0, attention, lambda x, w: x * 0.5, x, w)
        return (n + 1, x + jax.nn.gelu(x @ w["up"]) @ w["down"]), None

    (_, x), _ = lax.scan(step, (0, p["embedding"][given[:, :-1]]), p["layers"])
    return cross_entropy(x @ p["embedding"].T, given[:, 1:]).mean()


def with_dropout(p: Any, given: Any) -> Any:
    def step(carry: Any, w: Any) -> Any:
        key, x = carry
        key, own = jax.random.split(key)
        x = layer(x, w)
        return (key, jnp.where(jax.random.bernoulli(own, 0.9, x.shape), x / 0.9, 0)), None

    (_, x), _ = lax.scan(step, (jax.random.key(0), p["embedding"][given[:, :-1]]), p["layers"])
    return cross_entropy(x @ p["embedding"].T, given[:, 1:]).mean()


def recurrent(p: Any, given: Any) -> Any:
    """A loop over tokens in each layer of a loop."""

    def over_layers(x: Any, w: Any) -> Any:
        def over_tokens(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w["qkv"][:, :WIDTH] + x @ w["qkv"][:, WIDTH : 2 * WIDTH])
            return h, h

        return x + lax.scan(over_tokens, x[0] * 0, x)[1], None

    x = lax.scan(over_layers, p["embedding"][given[:, :-1]].swapaxes(0, 1), p["layers"])[0]
    return cross_entropy(x.swapaxes(0, 1) @ p["embedding"].T, given[:, 1:]).mean()


MODELS: dict[str, tuple[Model, float]] = {
    "plain": (plain, 0.25),
    "checkpointed": (checkpointed, 0.6),
    "branches": (with_branches, 0.4),
    "dropout": (with_dropout, 0.25),
    "recurrent": (recurrent, 0.7),
}
QUICK = (("plain", None), ("recurrent", None))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(name, policy, marks=() if (name, policy) in QUICK else pytest.mark.slow)
        for name in MODELS
        for policy in (None, "nothing", "dots")
    ],
)
def test_a_batch_goes_through_loops_in_slices(name: str, policy: str | None) -> None:
    """What the steps stack is that of one slice, and gradients are what they were."""
    model, share = MODELS[name]
    p, given = params(), tokens()
    expected = jax.jit(jax.value_and_grad(model))(p, given)
    whole = jax.jit(rematc.jax.value_and_grad(model, policy=policy)).lower(p, given).compile()
    sliced = jax.jit(rematc.jax.value_and_grad(model, policy=policy, slices=8)).lower(p, given).compile()
    assert_near(sliced(p, given), expected)
    if policy is None:
        assert taken(sliced) < share * taken(whole)
    else:
        assert taken(sliced) < taken(whole)


def test_steps_of_an_optimizer_run_in_slices_within_a_budget() -> None:
    def step(p: Any, momentum: Any, given: Any) -> Any:
        value, gradient = jax.value_and_grad(plain)(p, given)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return jax.tree.map(lambda p, m: p - 0.1 * m, p, momentum), momentum, value

    p, given = params(), tokens()
    arguments = p, jax.tree.map(jnp.zeros_like, p), given
    whole = jax.jit(step, donate_argnums=(0, 1)).lower(*arguments).compile()
    budget = taken(whole) // 6
    made: Any = rematc.jax.jit(step, budget=budget, donate_argnums=(0, 1))
    compiled = made.lower(*arguments).compile()
    assert taken(compiled) <= budget
    copies = jax.tree.map(jnp.array, arguments)
    assert_near(compiled(*copies), whole(*jax.tree.map(jnp.array, arguments)))
    again: Any = rematc.jax.jit(step, plan=made.report(*arguments).budget.plan, donate_argnums=(0, 1))
    assert taken(again.lower(*arguments).compile()) == taken(compiled)


def test_second_derivatives_are_of_all_slices() -> None:
    p, given = params(), tokens()
    gradient = rematc.jax.grad(plain, slices=4)

    def along(f: Callable[..., Any]) -> Any:
        return jax.jit(jax.grad(lambda p: sum(jnp.vdot(g, g) for g in jax.tree.leaves(f(p, given)))))(p)

    assert_near(along(gradient), along(jax.grad(plain)), 1e-4)


def test_samples_that_wait_for_their_median_are_computed_again() -> None:
    """As weights by rank: no gradient is there before all samples are."""

    def model(w: Any, x: Any) -> Any:
        h = x
        for _ in range(6):
            h = jnp.sin(h @ w)
        scores = h.sum(-1)
        return jnp.mean(scores * lax.stop_gradient(jnp.tanh(scores - jnp.median(scores))))

    w, x = drawn(64, 64), drawn(512, 64)
    expected = jax.jit(jax.value_and_grad(model))(w, x)
    whole = jax.jit(rematc.jax.value_and_grad(model)).lower(w, x).compile()
    sliced = jax.jit(rematc.jax.value_and_grad(model, slices=8)).lower(w, x).compile()
    assert_near(sliced(w, x), expected)
    assert taken(sliced) < 0.4 * taken(whole)


def test_what_prints_in_a_loop_is_not_cut() -> None:
    def model(w: Any, x: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            jax.debug.print("a step")
            return jnp.sin(x @ w), None

        return lax.scan(step, x, w)[0].sum()

    with pytest.raises(CompileError, match=r"'scan' at .*test_slices_through\.py.* needs it whole"):
        jax.jit(rematc.jax.value_and_grad(model, slices=4))(drawn(3, 16, 16), drawn(64, 16))
