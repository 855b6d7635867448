"""Losses of networks of synax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import synax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def recurrent() -> Built:
    cell, attention = synax.GRU(16, 6), synax.Attention(16, hidden_dim=8, heads=2, normalize_qk=True)
    head = synax.MLP([16, 24, 1])
    keys = jax.random.split(KEY, 5)
    params = (cell.init(keys[0]), cell.init_state(keys[1]), attention.init(keys[2]), head.init(keys[3]))
    x = jax.random.normal(keys[4], (20, 6))

    def loss(params: Any, x: Any) -> Any:
        of_cell, start, of_attention, of_head = params

        def step(state: Any, at: Any) -> Any:
            state = cell.apply(of_cell, state, at)
            return state, state

        _, states = jax.lax.scan(step, start, x)
        mixed = states + attention.apply(of_attention, states)
        return jnp.mean(jnp.square(jax.vmap(lambda at: head.apply(of_head, at))(mixed)[:, 0] - x.sum(1)))

    return loss, (params, x)


LOSSES = (Loss("synax-recurrent", "gated recurrence, attention over its states", recurrent),)
