"""Tree search by mctx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mctx

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def searched() -> Built:
    actions, width, batch = 4, 16, 8
    keys = jax.random.split(jax.random.key(0), 5)
    parameters = {
        name: 0.5 * jax.random.normal(key, shape)
        for name, key, shape in (
            ("embed", keys[0], (6, width)),
            ("policy", keys[1], (width, actions)),
            ("value", keys[2], (width,)),
            ("move", keys[3], (width + actions, width)),
        )
    }
    seen = jax.random.normal(keys[4], (batch, 6))

    def step(parameters: Any, key: Any, action: Any, embedding: Any) -> Any:
        moved = jnp.concatenate([embedding, jax.nn.one_hot(action, actions)], axis=-1) @ parameters["move"]
        embedding = jnp.tanh(moved)
        value = embedding @ parameters["value"]
        output = mctx.RecurrentFnOutput(
            reward=0.1 * value,
            discount=jnp.full_like(value, 0.95),
            prior_logits=embedding @ parameters["policy"],
            value=value,
        )
        return output, embedding

    def loss(parameters: Any, seen: Any) -> Any:
        embedding = jnp.tanh(seen @ parameters["embed"])
        logits, value = embedding @ parameters["policy"], embedding @ parameters["value"]
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=embedding)
        fixed = jax.lax.stop_gradient(parameters)
        found = mctx.gumbel_muzero_policy(
            fixed,
            jax.random.key(7),
            jax.lax.stop_gradient(root),
            step,
            num_simulations=12,
            max_num_considered_actions=4,
        )
        target, returned = found.action_weights, found.search_tree.summary().value
        policy = -jnp.mean(jnp.sum(jax.lax.stop_gradient(target) * jax.nn.log_softmax(logits), axis=-1))
        return policy + 0.5 * jnp.mean((value - jax.lax.stop_gradient(returned)) ** 2)

    return loss, (parameters, seen)


LOSSES = (Loss("mctx-gumbel", "policy and value that a Gumbel MuZero search improves", searched),)
