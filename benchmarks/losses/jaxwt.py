"""Wavelet transforms by jaxwt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxwt

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def images() -> Built:
    def loss(images: Any, gains: Any) -> Any:
        approximation, *details = jaxwt.wavedec2(images, "db3", level=3, mode="reflect")
        scaled = [
            tuple(jax.nn.soft_sign(gain * part) for part in level) for gain, level in zip(gains, details, strict=True)
        ]
        return (jaxwt.waverec2([approximation, *scaled], "db3") ** 2).mean()

    return loss, (jax.random.normal(KEY, (4, 64, 64)), jnp.asarray([1.0, 0.5, 0.25]))


def packets() -> Built:
    def loss(signal: Any) -> Any:
        packet = jaxwt.WaveletPacket(signal, "haar", "symmetric", max_level=4)
        return sum(jnp.log1p(packet[name] ** 2).sum() for name in packet.get_level(4))

    return loss, (jax.random.normal(KEY, (2, 256)),)


LOSSES = (
    Loss("jaxwt-images", "wavelets of images, shrunk and inverted", images),
    Loss("jaxwt-packets", "wavelet packets", packets),
)
