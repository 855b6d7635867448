"""Stacks of one block each, of kinds that other benchmarks do not have: on graphs, rays, videos, long sequences.

The head of most is a mean over all places and a matrix, the loss a mean of squares; float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.model import Whole, integers, reals

Shapes = dict[str, tuple[int, ...]]


def normalized(x: Any, scale: Any, axes: int | tuple[int, ...] = -1) -> Any:
    """Mean 0 and variance 1 along the axes, then scaled."""
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, axes, keepdims=True) + 1e-5) * scale


def convolved(x: Any, kernel: Any, groups: int = 1) -> Any:
    """Zeros outside. x: [batch, places..., channels], of one to three dimensions of places."""
    space = "DHW"[5 - x.ndim :]
    numbers = f"N{space}C", f"{space}IO", f"N{space}C"
    return lax.conv_general_dilated(
        x, kernel, (1,) * len(space), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def heads(x: Any, weights: Any, names: str, count: int) -> list[Any]:
    """x [batch, length, width] times each of the weights, as [batch, length, count, width / count]."""
    return [(x @ weights[name]).reshape(*x.shape[:2], count, -1) for name in names]


def perceptron(weights: Any, x: Any) -> Any:
    """A residual one, with gelu."""
    return x + jax.nn.gelu(normalized(x, weights["g2"]) @ weights["up"]) @ weights["down"]


def perceptron_shapes(width: int) -> Shapes:
    """Of its parameters, and of the scale of a norm before."""
    return {"g": (width,), "g2": (width,), "up": (width, 4 * width), "down": (4 * width, width)}


def attention_shapes(width: int) -> Shapes:
    """Of queries, keys, values and what is made of them, with a perceptron."""
    return {**perceptron_shapes(width), **dict.fromkeys("qkvo", (width, width))}


def mean_of_squares(head: Any, x: Any) -> Any:
    """Of the mean over places, times a matrix."""
    return jnp.mean((jnp.mean(x, tuple(range(1, x.ndim - 1))) @ head) ** 2)


def stack(
    name: str,
    block: Function,
    weights: Shapes,
    count: int,
    x: tuple[int, ...],
    *,
    others: tuple[Any, ...] = (),
    first: tuple[Function, Shapes] | None = None,
    head: tuple[Function, tuple[int, ...]] | None = None,
) -> Whole:
    """A model of `count` blocks.

    Args:
        name: what tables call it.
        block: of weights, x and the others.
        weights: shapes of a block's.
        count: how many blocks.
        x: its shape.
        others: what all blocks take as well, as shapes.
        first: the block before all others, with the shapes of its weights.
        head: the loss, of its weights and the last x, with their shape.
    """
    loss_of, of_head = head or (mean_of_squares, (x[-1], 10))
    begin = [first] if first else []

    def build(wrap: Wrap) -> Function:
        blocks = [wrap(one) for one, _ in begin] + [wrap(block)] * count

        def loss(params: Any, x: Any, *others: Any) -> Any:
            for one, own in zip(blocks, params["blocks"], strict=True):
                x = one(own, x, *others)
            return wrap(loss_of)(params["head"], x)

        return loss

    def shapes() -> tuple[Any, ...]:
        own = [shaped(of) for _, of in begin] + [shaped(weights)] * count
        return {"blocks": own, "head": reals(*of_head)}, reals(*x), *others

    return Whole(name, build, shapes)


# -- images and videos -------------------------------------------------------------------------------------------------


def convnext_block(weights: Any, x: Any) -> Any:
    """A depthwise convolution, a norm, a perceptron, a scale for each channel."""
    y = normalized(convolved(x, weights["depthwise"], x.shape[-1]), weights["g"])
    return x + jax.nn.gelu(y @ weights["up"] + weights["bias"]) @ weights["down"] * weights["scale"]


def inverted_block(weights: Any, x: Any) -> Any:
    """EfficientNet's: wider, depthwise, squeezed and excited, narrower; norms over the batch."""
    axes, wide = (0, 1, 2), weights["g"].shape[0]
    y = jax.nn.silu(normalized(convolved(x, weights["up"]), weights["g"], axes))
    y = jax.nn.silu(normalized(convolved(y, weights["depthwise"], wide), weights["g2"], axes))
    excited = jax.nn.sigmoid(jax.nn.silu(jnp.mean(y, (1, 2)) @ weights["squeeze"]) @ weights["excite"])
    return x + normalized(convolved(y * excited[:, None, None], weights["down"]), weights["g3"], axes)


def mixer_block(weights: Any, x: Any) -> Any:
    """A perceptron over places, then one over channels."""
    y = jnp.swapaxes(normalized(x, weights["g"]), 1, 2)
    x = x + jnp.swapaxes(jax.nn.gelu(y @ weights["first"]) @ weights["second"], 1, 2)
    return perceptron(weights, x)


def window_block(weights: Any, x: Any) -> Any:
    """Swin's: attention in shifted windows of 8 x 8, six heads, with a bias for each pair of places."""
    batch, height, width, channels = x.shape
    y = jnp.roll(normalized(x, weights["g"]), (-4, -4), (1, 2)).reshape(batch, height // 8, 8, width // 8, 8, channels)
    y = y.transpose(0, 1, 3, 2, 4, 5).reshape(-1, 64, channels)
    q, k, v = heads(y, weights, "qkv", 6)
    scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) * q.shape[-1] ** -0.5 + weights["places"]
    y = jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores, -1), v).reshape(-1, channels) @ weights["o"]
    y = y.reshape(batch, height // 8, width // 8, 8, 8, channels).transpose(0, 1, 3, 2, 4, 5).reshape(x.shape)
    return perceptron(weights, x + jnp.roll(y, (4, 4), (1, 2)))


def video_block(weights: Any, x: Any) -> Any:
    """Two convolutions in three dimensions, norms over the batch."""
    axes = (0, 1, 2, 3)
    y = jax.nn.relu(normalized(convolved(x, weights["kernel"]), weights["g"], axes))
    return jax.nn.relu(x + normalized(convolved(y, weights["kernel2"]), weights["g2"], axes))


# -- graphs and rays ---------------------------------------------------------------------------------------------------


def graph_block(weights: Any, x: Any, sources: Any, sinks: Any) -> Any:
    """Gated messages along edges, summed at their sinks. x: [nodes, width]."""
    gate = jax.nn.sigmoid((x @ weights["source"])[sources] + (x @ weights["sink"])[sinks])
    messages = jax.nn.relu(x @ weights["message"])[sources] * gate
    return x + jax.nn.relu(normalized(jax.ops.segment_sum(messages, sinks, x.shape[0]), weights["g"]))


def ray_block(weights: Any, x: Any) -> Any:
    """A layer of a perceptron for each point of each ray."""
    return jax.nn.relu(x @ weights["w"] + weights["b"])


def ray_encoding(weights: Any, points: Any) -> Any:
    """The first one, of sines and cosines of ten frequencies."""
    angles = points[..., None] * 2.0 ** jnp.arange(10)
    return ray_block(weights, jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).reshape(*points.shape[:-1], -1))


def ray_head(head: Any, x: Any) -> Any:
    """Colours, composed along each ray by density."""
    out = x @ head
    opaque = 1 - jnp.exp(-0.01 * jax.nn.softplus(out[..., 0]))
    passing = jnp.cumprod(1 - opaque + 1e-10, -1)
    seen = opaque * jnp.concatenate([jnp.ones_like(passing[:, :1]), passing[:, :-1]], -1)
    return jnp.mean(jnp.sum(seen[..., None] * jax.nn.sigmoid(out[..., 1:]), 1) ** 2)


# -- sequences ---------------------------------------------------------------------------------------------------------


def linear_attention_block(weights: Any, x: Any) -> Any:
    """Eight heads, whose queries and keys are elu + 1: sums over keys first."""
    q, k, v = heads(normalized(x, weights["g"]), weights, "qkv", 8)
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    scale = 1 / jnp.einsum("bnhd,bhd->bnh", q, jnp.sum(k, 1))
    y = jnp.einsum("bnhd,bhde,bnh->bnhe", q, jnp.einsum("bnhd,bnhe->bhde", k, v), scale)
    return perceptron(weights, x + y.reshape(x.shape) @ weights["o"])


def chunked_attention_block(weights: Any, x: Any) -> Any:
    """Eight heads, 512 keys at a time, with the maximum and the sum so far."""
    q, k, v = (jnp.swapaxes(one, 1, 2) for one in heads(normalized(x, weights["g"]), weights, "qkv", 8))
    chunks = [one.reshape(*one.shape[:2], -1, 512, one.shape[3]).transpose(2, 0, 1, 3, 4) for one in (k, v)]

    def step(carry: Any, chunk: Any) -> Any:
        most, total, out = carry
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, chunk[0]) * q.shape[-1] ** -0.5
        new = jnp.maximum(most, lax.stop_gradient(jnp.max(scores, -1)))
        weight, less = jnp.exp(scores - new[..., None]), jnp.exp(most - new)
        out = out * less[..., None] + jnp.einsum("bhqk,bhkd->bhqd", weight, chunk[1])
        return (new, total * less + jnp.sum(weight, -1), out), None

    start = jnp.full(q.shape[:3], -1e30), jnp.zeros(q.shape[:3]), jnp.zeros(q.shape)
    (_, total, out), _ = lax.scan(step, start, tuple(chunks))
    y = jnp.swapaxes(out / total[..., None], 1, 2).reshape(x.shape)
    return perceptron(weights, x + y @ weights["o"])


def cross_attention_block(weights: Any, x: Any, text: Any) -> Any:
    """Eight heads, which look at a text; then a gated perceptron."""
    (q,), (k, v) = heads(normalized(x, weights["g"]), weights, "q", 8), heads(text, weights, "kv", 8)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(x.shape) @ weights["o"]
    out, gate = jnp.split(normalized(x, weights["g2"]) @ weights["up"], 2, -1)
    return x + (out * jax.nn.gelu(gate)) @ weights["down"]


def selective_block(weights: Any, x: Any) -> Any:
    """Mamba's: a recurrence of 16 states a channel, whose rates follow from the input, as an associative scan."""
    y = normalized(x, weights["g"])
    gate, u = jax.nn.silu(y @ weights["gate"]), jax.nn.silu(convolved(y @ weights["in"], weights["kernel"], 1024))
    step = jax.nn.softplus(u @ weights["step"])[..., None]
    decay = jnp.exp(step * -jnp.exp(weights["rates"]))
    added = step * u[..., None] * (u @ weights["into"])[:, :, None]

    def joined(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    states = lax.associative_scan(joined, (decay, added), axis=1)[1]
    out = jnp.sum(states * (u @ weights["out_of"])[:, :, None], -1) + u * weights["skip"]
    return x + (out * gate) @ weights["out"]


def long_convolution_block(weights: Any, x: Any) -> Any:
    """Hyena's: a filter as long as the sequence, by Fourier transforms, between two gates."""
    q, k, v = (normalized(x, weights["g"]) @ weights[name] for name in "qkv")
    length = x.shape[1]
    spectrum = jnp.fft.rfft(k * v, 2 * length, axis=1) * jnp.fft.rfft(weights["filter"], 2 * length, axis=0)
    return perceptron(weights, x + (q * jnp.fft.irfft(spectrum, 2 * length, axis=1)[:, :length]) @ weights["o"])


def recurrent_block(weights: Any, x: Any) -> Any:
    """A GRU. x: [time, batch, width]."""

    def step(state: Any, given: Any) -> Any:
        reset, update, new = jnp.split(given, 3, -1)
        reset2, update2, new2 = jnp.split(state @ weights["u"], 3, -1)
        update = jax.nn.sigmoid(update + update2)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + reset2) * new2)
        state = (1 - update) * new + update * state
        return state, state

    return lax.scan(step, jnp.zeros_like(x[0]), x @ weights["w"] + weights["b"])[1]


def _of(build: Callable[[int], Shapes], width: int, **more: tuple[int, ...]) -> Shapes:
    return {**build(width), **more}


INVERTED: Shapes = {
    "up": (1, 1, 96, 576),
    "depthwise": (3, 3, 1, 576),
    "down": (1, 1, 576, 96),
    "squeeze": (576, 24),
    "excite": (24, 576),
    "g": (576,),
    "g2": (576,),
    "g3": (96,),
}
SELECTIVE: Shapes = {
    "g": (512,),
    "gate": (512, 1024),
    "in": (512, 1024),
    "kernel": (4, 1, 1024),
    "step": (1024, 1024),
    "into": (1024, 16),
    "out_of": (1024, 16),
    "rates": (1024, 16),
    "skip": (1024,),
    "out": (1024, 512),
}
CONVNEXT = _of(perceptron_shapes, 192, depthwise=(7, 7, 1, 192), bias=(768,), scale=(192,))
MIXER = _of(perceptron_shapes, 512, first=(1024, 512), second=(512, 1024))
VIDEO: Shapes = {"kernel": (3, 3, 3, 64, 64), "kernel2": (3, 3, 3, 64, 64), "g": (64,), "g2": (64,)}
GRAPH: Shapes = {"message": (256, 256), "source": (256, 256), "sink": (256, 256), "g": (256,)}
CROSS = {**attention_shapes(512), "k": (768, 512), "v": (768, 512), "up": (512, 4096), "down": (2048, 512)}
EDGES, TEXT = (integers(160_000), integers(160_000)), (reals(8, 77, 768),)
RAYS: Shapes = {"w": (256, 256), "b": (256,)}

BLOCKS = (
    stack("convnext", convnext_block, CONVNEXT, 5, (16, 56, 56, 192)),
    stack("efficientnet", inverted_block, INVERTED, 5, (32, 28, 28, 96)),
    stack("mixer", mixer_block, MIXER, 6, (16, 1024, 512)),
    stack("swin", window_block, _of(attention_shapes, 192, places=(6, 64, 64)), 4, (16, 56, 56, 192)),
    stack("video", video_block, VIDEO, 4, (4, 16, 56, 56, 64)),
    stack("graph", graph_block, GRAPH, 4, (20_000, 256), others=EDGES),
    stack(
        "rays",
        ray_block,
        RAYS,
        7,
        (2048, 128, 3),
        first=(ray_encoding, {"w": (60, 256), "b": (256,)}),
        head=(ray_head, (256, 4)),
    ),
    stack("linear-attention", linear_attention_block, attention_shapes(512), 5, (4, 4096, 512)),
    stack("chunked-attention", chunked_attention_block, attention_shapes(512), 3, (2, 2048, 512)),
    stack("cross-attention", cross_attention_block, CROSS, 4, (8, 1024, 512), others=TEXT),
    stack("mamba", selective_block, SELECTIVE, 2, (2, 512, 512)),
    stack("hyena", long_convolution_block, _of(attention_shapes, 256, filter=(4096, 256)), 4, (4, 4096, 256)),
    stack("gru", recurrent_block, {"w": (512, 1536), "u": (512, 1536), "b": (1536,)}, 3, (256, 64, 512)),
)
