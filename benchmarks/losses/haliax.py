"""Losses of haliax: arrays with named axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import haliax as hax
import haliax.nn as hnn
import jax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
Batch, Position, Embed, Hidden, Vocabulary, Layers = hax.make_axes(
    batch=4, position=24, embed=48, hidden=96, vocabulary=80, layers=4
)


class Layer(eqx.Module):
    """A gated perceptron along the features, mixing of earlier positions along the sequence."""

    norm: hnn.LayerNorm
    mix: hax.NamedArray
    mlp: hnn.MLP

    @staticmethod
    def init(key: Any) -> Layer:
        one, other = jax.random.split(key)
        mix = 0.1 * hax.random.normal(one, (Position, Position.alias("earlier")))
        mlp = hnn.MLP.init(Embed, Embed, Hidden, 2, activation=hnn.silu, key=other)
        return Layer(hnn.LayerNorm.init(Embed), mix, mlp)

    def __call__(self, x: hax.NamedArray) -> hax.NamedArray:
        y = self.norm(x)
        Earlier = Position.alias("earlier")  # noqa: N806  # haliax names axes like this
        causal = hax.where(hax.nn.attention.causal_mask(Position, Earlier), self.mix, 0.0)
        x = x + hax.dot(causal, y.rename({"position": "earlier"}), axis=Earlier)
        return x + self.mlp(self.norm(x))


def stacked() -> Built:
    embed = hax.random.normal(KEY, (Vocabulary, Embed)) * 0.1
    layers = hnn.Stacked.init(Layers, Layer, gradient_checkpointing=True)(key=jax.random.split(KEY, Layers.size))
    params, static = eqx.partition((embed, layers), eqx.is_inexact_array)
    tokens = hax.random.randint(KEY, (Batch, Position), 0, Vocabulary.size)

    def loss(params: Any, tokens: Any) -> Any:
        embed, layers = eqx.combine(params, static)
        x = layers.fold(embed.take(Vocabulary, tokens))
        logits = hax.dot(x, embed, axis=Embed)
        targets = hnn.one_hot(hax.roll(tokens, -1, Position), Vocabulary, dtype=logits.dtype)
        return hnn.cross_entropy_loss(logits, Vocabulary, targets, reduction=hax.mean).array

    return loss, (params, tokens)


LOSSES = (Loss("haliax-stacked", "checkpointed layers in a loop, named axes", stacked),)
