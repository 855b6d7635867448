"""Losses of optax, and a loss through its optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def many() -> Built:
    logits = {name: jax.random.normal(jax.random.key(i), (32, 12)) for i, name in enumerate(("one", "other"))}
    targets = jax.random.uniform(KEY, (32, 12))
    labels = jnp.arange(32) % 12

    def loss(logits: Any, targets: Any, labels: Any) -> Any:
        one, other = logits["one"], logits["other"]
        one_hot = jax.nn.one_hot(labels, 12, dtype=one.dtype)
        terms = (
            optax.losses.l2_loss(one, targets),
            optax.losses.log_cosh(one, targets),
            optax.losses.huber_loss(one, targets, delta=0.3),
            optax.losses.sigmoid_focal_loss(one, one_hot),
            optax.losses.hinge_loss(one, 2 * one_hot - 1),
            optax.losses.poly_loss_cross_entropy(one, one_hot),
            optax.losses.kl_divergence(jax.nn.log_softmax(one), jax.nn.softmax(targets)),
            optax.losses.convex_kl_divergence(jax.nn.log_softmax(one), jax.nn.softmax(other)),
            optax.losses.cosine_similarity(one, other, epsilon=1e-6),
            optax.losses.multiclass_perceptron_loss(one, labels),
            optax.losses.multiclass_hinge_loss(other, labels),
            optax.losses.ranking_softmax_loss(one, targets),
            optax.losses.ntxent(one[:16], labels[:16] % 5),
            optax.losses.make_fenchel_young_loss(jax.nn.logsumexp)(one, targets),
            optax.losses.squared_error(optax.projections.projection_simplex(one[0]), targets[0]),
        )
        return sum(jnp.mean(term) for term in terms)

    return loss, (logits, targets, labels)


def meta() -> Built:
    x = jax.random.normal(KEY, (64, 16))
    y = jnp.tanh(x @ jax.random.normal(jax.random.key(1), (16, 4)))
    start = {"w": 0.1 * jax.random.normal(KEY, (16, 32)), "v": 0.1 * jax.random.normal(KEY, (32, 4))}
    hyper = {"start": start, "log_rate": jnp.full((), -3.0)}

    def error(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean(optax.losses.squared_error(jnp.tanh(x @ params["w"]) @ params["v"], y))

    def loss(hyper: Any, x: Any, y: Any) -> Any:
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(jnp.exp(hyper["log_rate"])))

        def step(carry: Any, _: Any) -> Any:
            params, state = carry
            updates, state = optimizer.update(jax.grad(error)(params, x[:32], y[:32]), state, params)
            return (optax.apply_updates(params, updates), state), None

        carry = hyper["start"], optimizer.init(hyper["start"])
        (params, _), _ = jax.lax.scan(step, carry, None, 8)
        return error(params, x[32:], y[32:])

    return loss, (hyper, x, y)


LOSSES = (
    Loss("optax-losses", "fifteen losses", many),
    Loss("optax-meta", "second derivatives through eight steps of Adam", meta),
)
