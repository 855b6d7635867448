"""Losses through jaxnu's neutrinos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jaxnu

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def matter() -> Built:
    params = jaxnu.nufit_no()
    energies = jnp.linspace(0.5, 4.0, 8)

    def loss(params: Any, energies: Any) -> Any:
        found = jaxnu.probability_constant(params, energies, 1300.0, density=2.8)
        return jnp.sum(jnp.square(found[..., 0] - 0.3))

    return loss, (params, energies)


LOSSES = (Loss("jaxnu-matter", "oscillations of neutrinos through rock, complex 3 x 3 matrices", matter),)
