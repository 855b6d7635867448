"""equimo's models of images, sound, tables and time series: one classification or regression loss each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equimo.audio.models as sound
import equimo.tabular.models as tabular
import equimo.timeseries.models as series
import equimo.vision.models as vision
import equinox as eqx
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
IMAGES, SIZE, CLASSES = 4, 64, 10
SMALL = {"img_size": SIZE, "in_channels": 3, "dim": 32}


def _classified(model: Any, shape: tuple[int, ...]) -> Built:
    """Cross-entropy of a batch, with dropout and stochastic depth as in training."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    images = jax.random.normal(KEY, (IMAGES, *shape))
    labels = jax.random.randint(KEY, (IMAGES,), 0, CLASSES)

    def loss(params: Any, images: Any, labels: Any, key: Any) -> Any:
        classify = eqx.combine(params, static)
        logits = jax.vmap(lambda image, key: classify(image, key=key, inference=False))(
            images, jax.random.split(key, IMAGES)
        )
        taken = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -taken.mean()

    return loss, (params, images, labels, jax.random.key(1))


def _pictures(build: Callable[..., Any], **options: Any) -> Callable[[], Built]:
    return lambda: _classified(build(num_classes=CLASSES, key=KEY, **options), (3, SIZE, SIZE))


def spectrogram() -> Built:
    model = sound.ast_tiny_patch16_224(num_classes=CLASSES, key=KEY, input_fdim=32, input_tdim=64, depths=[2])
    return _classified(model, (64, 32))


def forecast() -> Built:
    model = series.T0(embed_dim=64, num_layers=3, num_heads=4, mlp_hidden_dim=128, key=KEY)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    values = jnp.cumsum(jax.random.normal(KEY, (4, 256)), axis=1)

    def loss(params: Any, values: Any, key: Any) -> Any:
        given = eqx.combine(params, static)
        ones = jnp.ones(values.shape, jnp.int32)
        result = given(values, ones, jnp.zeros_like(ones), jnp.zeros_like(ones), key=key, inference=False)
        return sum((leaf.astype(jnp.float32) ** 2).mean() for leaf in jax.tree_util.tree_leaves(result))

    return loss, (params, values, jax.random.key(1))


def in_context() -> Built:
    model = tabular.TabPFN(num_classes=CLASSES, dim=32, depths=(1, 1, 2), num_heads=(4, 4, 4), key=KEY)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    rows = jax.random.normal(KEY, (48, 9))
    labels = jax.random.randint(KEY, (48,), 0, CLASSES)

    def loss(params: Any, rows: Any, labels: Any, key: Any) -> Any:
        logits = eqx.combine(params, static)(rows, labels, 32, key=key, inference=False)
        held_out = labels[32:]
        taken = jnp.take_along_axis(jax.nn.log_softmax(logits[-16:]), held_out[:, None], axis=1)
        return -taken.mean()

    return loss, (params, rows, labels, jax.random.key(1))


LOSSES = (
    Loss("equimo-vit", "vision transformer", _pictures(vision.vit_tiny_patch16_224, img_size=SIZE, depths=[4])),
    Loss("equimo-convnext", "ConvNeXt", _pictures(vision.convnext_atto)),
    Loss("equimo-mobilenet", "MobileNet v3", _pictures(vision.mobilenetv3_small)),
    Loss("equimo-iformer", "iFormer", _pictures(vision.iformer_t)),
    Loss(
        "equimo-mlla",
        "linear attention as Mamba",
        _pictures(vision.Mlla, img_size=SIZE, in_channels=3, dim=32, num_heads=[2, 4, 8, 16]),
    ),
    Loss("equimo-vssd", "state-space duality", _pictures(vision.Vssd, **SMALL)),
    Loss("equimo-reduceformer", "ReduceFormer", _pictures(vision.reduceformer_backbone_b1)),
    Loss("equimo-parcae", "looped transformer", _pictures(vision.vision_parcae_tiny_patch16_224, img_size=SIZE)),
    Loss("equimo-lowformer", "LowFormer", _pictures(vision.lowformer_backbone_b0, attention_type="softmax")),
    Loss("equimo-spectrogram", "audio spectrogram transformer", spectrogram),
    Loss("equimo-t0", "time series forecast", forecast),
    Loss("equimo-tabpfn", "classification of tables in context", in_context),
)
