"""Losses through dLux's telescopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dLux
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def telescope() -> Built:
    coordinates = dLux.utils.pixel_coords(32, 1.0)
    basis = dLux.utils.zernike_basis([4, 5, 6, 7], coordinates, 1.0)
    aperture = dLux.utils.circle(coordinates, 0.5)
    wavelengths = jnp.array([0.9e-6, 1.0e-6])
    params = {"aberrations": 2e-8 * jnp.array([1.0, -2.0, 0.5, 1.5]), "offset": jnp.array([1e-7, -2e-7])}
    observed = jax.random.uniform(KEY, (16, 16)) / 256.0

    def loss(params: Any, wavelengths: Any, observed: Any) -> Any:
        pupil = dLux.layers.BasisOptic(basis, aperture, params["aberrations"], normalise=True)
        optics = dLux.AngularOpticalSystem(32, 1.0, [("pupil", pupil)], 16, 0.1)
        image = optics.propagate(wavelengths, params["offset"])
        return 1e3 * jnp.sum(jnp.square(image - observed))

    return loss, (params, wavelengths, observed)


LOSSES = (Loss("dlux-telescope", "point spread function by matrix Fourier transforms, complex", telescope),)
