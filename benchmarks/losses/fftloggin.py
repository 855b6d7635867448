"""Losses through fftloggin's transforms on logarithmic grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fftloggin
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def correlation() -> Built:
    size, step = 128, 0.05
    wavenumber = jnp.exp(step * (jnp.arange(size) - size / 2))
    params = {"slope": jnp.array(1.1), "scale": jnp.array(0.4), "order": jnp.array(0.5), "bias": jnp.array(-0.2)}
    observed = jnp.exp(-wavenumber)

    def loss(params: Any, wavenumber: Any, observed: Any) -> Any:
        power = wavenumber ** params["slope"] * jnp.exp(-jnp.square(wavenumber * params["scale"]))
        kernel = fftloggin.BesselJKernel(params["order"])
        found = fftloggin.forward(power, kernel, dlog=step, bias=params["bias"])
        return jnp.mean(jnp.square(found - observed))

    return loss, (params, wavenumber, observed)


LOSSES = (Loss("fftloggin-hankel", "Hankel transform by FFT, gamma functions of complex numbers", correlation),)
