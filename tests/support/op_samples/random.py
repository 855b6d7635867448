"""Rows for ir/ops/random.py. JAX's own generator, under the same name, is the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp
from jax.extend.random import threefry2x32_p

from rematc.ir.ops.random import Threefry2x32
from rematc.ir.types import U32
from tests.support.samples import Factory, Sample, literal


def words(*shape: int) -> Factory:
    """Any bits at all."""
    return lambda random: random.integers(0, 2**32, shape, np.uint32)


def hashed(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    missing = high.ndim - key.ndim + 1
    first, second = (jnp.expand_dims(key[..., word], tuple(range(-missing, 0))) for word in (0, 1))
    bind: Any = threefry2x32_p.bind
    words: tuple[Any, Any] = bind(first, second, high, low)
    return words


SAMPLES = (
    Sample(Threefry2x32(), (words(2), words(3, 4), words(3, 4)), jax=hashed),
    Sample(Threefry2x32(), (words(2), words(), words()), jax=hashed, label="scalar"),
    Sample(Threefry2x32(), (words(2), words(0), words(0)), jax=hashed, label="empty"),
    Sample(Threefry2x32(), (words(3, 2), words(3, 5), words(3, 5)), jax=hashed, label="keys"),
    Sample(Threefry2x32(), (words(3, 2), words(3), words(3)), jax=hashed, label="a-key-each"),
    Sample(
        Threefry2x32(),
        (literal(U32, [0xFFFFFFFF, 0]), literal(U32, [0, 0xFFFFFFFF]), literal(U32, [0xFFFFFFFF, 0x80000000])),
        jax=hashed,
        label="edges",
    ),
)
