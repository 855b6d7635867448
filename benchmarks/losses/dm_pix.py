"""Images augmented and compared by PIX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dm_pix as pix
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def augmented() -> Built:
    images = jax.random.uniform(KEY, (4, 48, 48, 3))

    def loss(images: Any, strength: Any, key: Any) -> Any:
        def one(image: Any, key: Any) -> Any:
            first, second, third = jax.random.split(key, 3)
            image = pix.random_flip_left_right(first, image)
            image = pix.adjust_hue(pix.adjust_saturation(image, strength[0]), strength[1])
            image = pix.elastic_deformation(second, image, alpha=8.0, sigma=3.0)
            image = pix.random_crop(third, image, (40, 40, 3))
            return pix.rotate(pix.gaussian_blur(image, 1.5, 5), strength[2])

        changed = jax.vmap(one)(images, jax.random.split(key, 4))
        wanted = images[:, 4:44, 4:44]
        return (1.0 - pix.ssim(changed, wanted)).mean() - 0.01 * pix.psnr(changed, wanted).mean()

    return loss, (images, jnp.asarray([0.8, 0.1, 0.3]), jax.random.key(1))


LOSSES = (Loss("dm_pix", "augmentations and structural similarity", augmented),)
