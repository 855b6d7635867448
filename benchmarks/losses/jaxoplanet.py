"""Losses through jaxoplanet's light curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxoplanet.light_curves import limb_dark_light_curve
from jaxoplanet.orbits.keplerian import Central, System

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def transit() -> Built:
    params = {
        "radius": jnp.array(0.1),
        "eccentricity": jnp.array(0.2),
        "impact": jnp.array(0.3),
        "limb": jnp.array([0.3, 0.2]),
    }
    time = jnp.linspace(-0.12, 0.11, 16)
    observed = 1e-3 * jax.random.normal(KEY, (16,))

    def loss(params: Any, time: Any, observed: Any) -> Any:
        system = System(Central(mass=1.0, radius=1.0)).add_body(
            period=3.0,
            time_transit=0.01,
            radius=params["radius"],
            eccentricity=params["eccentricity"],
            omega_peri=0.4,
            impact_param=params["impact"],
        )
        curve = limb_dark_light_curve(system, params["limb"], order=8)(time)[:, 0]
        return 1e4 * jnp.mean(jnp.square(curve - observed))

    return loss, (params, time, observed)


LOSSES = (Loss("jaxoplanet-transit", "light of a star behind a planet, Kepler's equation (custom_jvp)", transit),)
