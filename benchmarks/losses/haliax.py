"""Losses of networks of haliax, whose axes have names."""

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

Batch, Pos, Heads, Size, Embed, Mlp, Vocab, Layers = hax.make_axes(
    batch=2, position=16, heads=4, size=8, embed=32, mlp=64, vocab=96, layers=4
)
KeyPos = Pos.alias("key_position")


class Block(eqx.Module):
    """Attention and a perceptron, each after a norm."""

    queries: hnn.Linear
    keys: hnn.Linear
    values: hnn.Linear
    out: hnn.Linear
    up: hnn.Linear
    down: hnn.Linear
    first: hnn.LayerNorm
    second: hnn.LayerNorm

    @staticmethod
    def init(*, key: Any) -> Block:
        split = jax.random.split(key, 6)
        inward = [hnn.Linear.init(In=Embed, Out=(Heads, Size), key=k) for k in split[:3]]
        out = hnn.Linear.init(In=(Heads, Size), Out=Embed, key=split[3])
        up, down = hnn.Linear.init(In=Embed, Out=Mlp, key=split[4]), hnn.Linear.init(In=Mlp, Out=Embed, key=split[5])
        return Block(*inward, out, up, down, hnn.LayerNorm.init(Embed), hnn.LayerNorm.init(Embed))

    def __call__(self, x: Any, mask: Any) -> Any:
        seen = self.first(x)
        keys, values = (layer(seen).rename({"position": "key_position"}) for layer in (self.keys, self.values))
        mixed = hnn.attention.dot_product_attention(KeyPos, Size, self.queries(seen), keys, values, mask=mask)
        x = x + self.out(mixed)
        return x + self.down(hnn.gelu(self.up(self.second(x))))


def transformer() -> Built:
    blocks = hnn.Stacked.init(Layers, Block, gradient_checkpointing=True)(key=jax.random.split(KEY, Layers.size))
    model = (blocks, hnn.Embedding.init(Vocab, Embed, key=KEY), hnn.LayerNorm.init(Embed))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    tokens = jax.random.randint(KEY, (Batch.size, Pos.size), 0, Vocab.size)

    def loss(params: Any, tokens: Any) -> Any:
        blocks, embedding, norm = eqx.combine(params, static)
        named = hax.named(tokens, (Batch, Pos))
        mask = hax.arange(Pos).broadcast_axis(KeyPos) >= hax.arange(KeyPos)
        logits = embedding.unembed(norm(blocks.fold(embedding(named), mask)))
        target = hax.nn.one_hot(hax.roll(named, -1, Pos), Vocab, dtype=logits.dtype)
        return hnn.cross_entropy_loss(logits, Vocab, target).array

    return loss, (params, tokens)


LOSSES = (Loss("haliax-transformer", "named axes, layers in a scan with JAX's checkpoint", transformer),)
