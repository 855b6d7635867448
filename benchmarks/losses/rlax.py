"""Losses of rlax: reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
STEPS, ACTIONS, WIDTH = 32, 5, 32


def _features(params: Any, observed: Any) -> Any:
    return jax.nn.relu(observed @ params["first"])


def _params(outputs: int) -> dict[str, Any]:
    keys = jax.random.split(KEY, 3)
    return {
        "first": 0.3 * jax.random.normal(keys[0], (8, WIDTH)),
        "policy": 0.3 * jax.random.normal(keys[1], (WIDTH, outputs)),
        "value": 0.3 * jax.random.normal(keys[2], (WIDTH,)),
    }


def actor_critic() -> Built:
    observed = jax.random.normal(KEY, (8, STEPS + 1, 8))
    actions = jax.random.randint(KEY, (8, STEPS), 0, ACTIONS)
    rewards = jax.random.normal(jax.random.key(1), (8, STEPS))
    behaviour = jax.random.normal(jax.random.key(2), (8, STEPS, ACTIONS))

    def loss(params: Any, observed: Any, actions: Any, rewards: Any, behaviour: Any) -> Any:
        def of_one(observed: Any, actions: Any, rewards: Any, behaviour: Any) -> Any:
            features = _features(params, observed)
            logits, values = features[:-1] @ params["policy"], features @ params["value"]
            ratios = rlax.categorical_importance_sampling_ratios(logits, behaviour, actions)
            discounts = jnp.full_like(rewards, 0.97)
            returns = rlax.vtrace_td_error_and_advantage(values[:-1], values[1:], rewards, discounts, ratios)
            ones = jnp.ones_like(rewards)
            policy = rlax.policy_gradient_loss(logits, actions, returns.pg_advantage, ones)
            return policy + jnp.mean(returns.errors**2) + 0.01 * rlax.entropy_loss(logits, ones)

        return jnp.mean(jax.vmap(of_one)(observed, actions, rewards, behaviour))

    return loss, (_params(ACTIONS), observed, actions, rewards, behaviour)


def distributional() -> Built:
    atoms = 21
    observed = jax.random.normal(KEY, (64, 2, 8))
    actions = jax.random.randint(KEY, (64,), 0, ACTIONS)
    rewards = jax.random.normal(jax.random.key(1), (64,))

    def loss(params: Any, observed: Any, actions: Any, rewards: Any) -> Any:
        support = jnp.linspace(-3.0, 3.0, atoms, dtype=observed.dtype)

        def of_one(observed: Any, action: Any, reward: Any) -> Any:
            logits = (_features(params, observed) @ params["policy"]).reshape(2, ACTIONS, atoms)
            values = jnp.sum(jax.nn.softmax(logits[1]) * support, axis=-1)
            return rlax.categorical_double_q_learning(
                support, logits[0], action, reward, jnp.asarray(0.9, reward.dtype), support, logits[1], values
            )

        return jnp.mean(jax.vmap(of_one)(observed, actions, rewards))

    return loss, (_params(ACTIONS * atoms), observed, actions, rewards)


LOSSES = (
    Loss("rlax-actor-critic", "policy gradient with corrected returns", actor_critic),
    Loss("rlax-distributional", "categorical values, projection of distributions", distributional),
)
