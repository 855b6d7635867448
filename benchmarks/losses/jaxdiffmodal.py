"""Losses through jaxdiffmodal's vibrating plates and strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxdiffmodal import time_integrators

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def plate() -> Built:
    modes = 8
    params = {
        "stiffness": jnp.square(jnp.linspace(200.0, 900.0, modes)),
        "damping": jnp.linspace(1.0, 4.0, modes),
        "coupling": 30.0 * jax.random.normal(KEY, (modes, modes, modes)),
    }
    start = 1e-3 * jnp.ones(modes)

    def loss(params: Any, start: Any) -> Any:
        _, moved = time_integrators.solve_sv_ic(
            params["damping"],
            params["stiffness"],
            start,
            0.0 * start,
            1e-4,
            60,
            time_integrators.make_vk_nl_fn(params["coupling"]),
        )
        return 1e6 * jnp.mean(jnp.square(moved))

    return loss, (params, start)


LOSSES = (Loss("jaxdiffmodal-plate", "vibrating plate, couplings of third order, steps in a scan", plate),)
