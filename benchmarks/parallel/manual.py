"""Programs that are all in one `jax.shard_map`: each device says what it computes and what it sends."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from benchmarks.architectures.library import Wrap
from benchmarks.parallel import program as p
from benchmarks.parallel.program import Built, Program, Sizes, Spec, Weights, given

Own = Callable[[Wrap, Any, Any], Any]


def _built(mesh: Mesh, own: Own, arguments: tuple[Any, Any]) -> Built:
    """Of what a device computes of its own weights and inputs, which is the loss of all."""

    def loss_of(wrap: Wrap) -> Callable[..., Any]:
        specs = p.specs_of(arguments)
        return p.shard_map(functools.partial(own, wrap), mesh=mesh, in_specs=specs, out_specs=Spec())

    return Built(loss_of, arguments)


def _texts(mesh: Mesh, sizes: Sizes, *spec: Any) -> Any:
    return given(mesh, (sizes.batch, sizes.tokens, sizes.width), *spec)


def fsdp(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """Weights and batch are spread; a layer gathers its weights."""

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        def layer(x: Any, weights: Weights) -> Any:
            whole = {name: lax.all_gather(one, "x", tiled=True) for name, one in weights.items()}
            return p.perceptron(p.attention(x, whole, sizes.heads), whole)

        run = p.scanned if is_scanned else p.unrolled
        return lax.pmean(p.squares(run(wrap(layer), x, layers)), "x")

    layers = p.layers_given(mesh, sizes, lambda _: ("x",), is_scanned)
    return _built(mesh, own, (layers, _texts(mesh, sizes, "x")))


def megatron(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """Heads and hidden units are spread; activations between blocks are whole. Source: Shoeybi et al. 2019."""
    few = sizes.batch // 8

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        def layer(x: Any, weights: Weights) -> Any:
            queries, keys, values = [p.in_heads(p.norm(x) @ weights[name], sizes.heads // 8) for name in "qkv"]
            own = p.mixed(queries, keys, values).reshape(*x.shape[:2], -1)
            x = x + lax.psum(own @ weights["out"], "x")
            return x + lax.psum(jax.nn.gelu(p.norm(x) @ weights["up"]) @ weights["down"], "x")

        return p.squares((p.scanned if is_scanned else p.unrolled)(wrap(layer), x, layers))

    layers = p.layers_given(mesh, sizes, p.halves("x"), is_scanned)
    return _built(mesh, own, (layers, given(mesh, (few, sizes.tokens, sizes.width))))


def sequence(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """As megatron, and tokens are spread between blocks. Source: Korthikanti et al. 2022."""
    few = sizes.batch // 8

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        def gathered(x: Any) -> Any:
            return lax.all_gather(p.norm(x), "x", axis=1, tiled=True)

        def scattered(x: Any) -> Any:
            return lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True)

        def layer(x: Any, weights: Weights) -> Any:
            whole = gathered(x)
            queries, keys, values = [p.in_heads(whole @ weights[name], sizes.heads // 8) for name in "qkv"]
            own = p.mixed(queries, keys, values).reshape(*whole.shape[:2], -1)
            x = x + scattered(own @ weights["out"])
            return x + scattered(jax.nn.gelu(gathered(x) @ weights["up"]) @ weights["down"])

        return lax.pmean(p.squares((p.scanned if is_scanned else p.unrolled)(wrap(layer), x, layers)), "x")

    layers = p.layers_given(mesh, sizes, p.halves("x"), is_scanned)
    return _built(mesh, own, (layers, given(mesh, (few, sizes.tokens, sizes.width), None, "x")))


def _in_parts(attend: Callable[[Any, Any, Any], Any]) -> Callable[[Mesh, Sizes], Built]:
    """Tokens are spread, weights are whole; attention is of [batch, own tokens, heads, size]."""

    def build(mesh: Mesh, sizes: Sizes) -> Built:
        few = sizes.batch // 8

        def own(wrap: Wrap, layers: Any, x: Any) -> Any:
            def layer(x: Any, weights: Weights) -> Any:
                return p.perceptron(p.attention(x, weights, sizes.heads, attend), weights)

            return lax.pmean(p.squares(p.unrolled(wrap(layer), x, layers)), "x")

        layers = p.layers_given(mesh, sizes, lambda _: (), False)
        return _built(mesh, own, (layers, given(mesh, (few, 4 * sizes.tokens, sizes.width), None, "x")))

    return build


def ring(queries: Any, keys: Any, values: Any) -> Any:
    """Keys and values go around, with a softmax that is corrected as they come. Source: Liu et al. 2023."""
    count, here = 8, lax.axis_index("x")
    tokens = queries.shape[1]
    around = [(device, (device + 1) % count) for device in range(count)]
    places = here * tokens + jnp.arange(tokens)

    def step(carry: Any, turn: Any) -> Any:
        keys, values, total, weight, highest = carry
        scores = jnp.einsum("bthd,bshd->bhts", queries, keys) / math.sqrt(queries.shape[-1])
        others = (here - turn) % count * tokens + jnp.arange(tokens)
        scores = jnp.where(places[:, None] >= others, scores, -1e9)
        higher = jnp.maximum(highest, lax.stop_gradient(scores.max(-1)))
        exps, factor = jnp.exp(scores - higher[..., None]), jnp.exp(highest - higher)
        weight = weight * factor + exps.sum(-1)
        total = total * factor[..., None] + jnp.einsum("bhts,bshd->bhtd", exps, values)
        keys, values = lax.ppermute(keys, "x", around), lax.ppermute(values, "x", around)
        return (keys, values, total, weight, higher), None

    shape = (queries.shape[0], queries.shape[2], tokens)
    start = [
        jnp.zeros((*shape, queries.shape[3]), queries.dtype),
        jnp.zeros(shape, queries.dtype),
        jnp.full(shape, -1e9, queries.dtype),
    ]
    varying = [lax.pcast(one, "x", to="varying") for one in start]
    (_, _, total, weight, _), _ = lax.scan(step, (keys, values, *varying), jnp.arange(count))
    return jnp.moveaxis(total / weight[..., None], 1, 2)


def _ulysses(queries: Any, keys: Any, values: Any) -> Any:
    """Tokens for heads, and back. Source: Jacobs et al. 2023."""
    own = [lax.all_to_all(one, "x", 2, 1, tiled=True) for one in (queries, keys, values)]
    return lax.all_to_all(p.mixed(*own), "x", 1, 2, tiled=True)


def gathered(queries: Any, keys: Any, values: Any) -> Any:
    """Each device has all keys and values. Source: Llama 3, section 3.3.2."""
    whole = [lax.all_gather(one, "x", axis=1, tiled=True) for one in (keys, values)]
    return p.mixed(queries, *whole, first=lax.axis_index("x") * queries.shape[1])


def experts_of_tokens(x: Any, weights: Weights) -> Any:
    """An expert on each device, to which tokens go by all-to-all. Source: Lepikhin et al. 2020 (top one)."""
    tokens = x.reshape(-1, x.shape[-1])
    room = tokens.shape[0] // 4
    chances = jax.nn.softmax(p.norm(tokens) @ weights["router"])
    chosen = jax.nn.one_hot(chances.argmax(-1), 8, dtype=x.dtype)
    place = (jnp.cumsum(chosen, 0) * chosen - 1).max(-1).astype(jnp.int32)
    sent = chosen[:, :, None] * jax.nn.one_hot(place, room, dtype=x.dtype)[:, None, :]
    there = lax.all_to_all(jnp.einsum("tec,tw->ecw", sent, tokens), "x", 0, 1, tiled=True)
    hidden = jax.nn.gelu(jnp.einsum("ecw,ewh->ech", there, weights["in"]))
    back = lax.all_to_all(jnp.einsum("ech,ehw->ecw", hidden, weights["back"]), "x", 1, 0, tiled=True)
    return jnp.einsum("tec,ecw->tw", sent * (chances * chosen).sum(-1)[:, None, None], back).reshape(x.shape)


def experts(mesh: Mesh, sizes: Sizes) -> Built:
    """Layers of experts alone."""
    shapes = {"router": (sizes.width, 8), "in": (8, sizes.width, sizes.hidden), "back": (8, sizes.hidden, sizes.width)}

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        layer = wrap(lambda x, weights: x + experts_of_tokens(x, weights))
        return lax.pmean(p.squares(p.unrolled(layer, x, layers)), "x")

    spread: dict[str, tuple[Any, ...]] = {"router": (), "in": ("x",), "back": ("x",)}
    one = {name: given(mesh, shape, *spread[name]) for name, shape in shapes.items()}
    return _built(mesh, own, ([one] * sizes.layers, _texts(mesh, sizes, "x")))


def pipeline(mesh: Mesh, sizes: Sizes) -> Built:
    """A layer on each device, through which eight parts of the batch go. Source: Huang et al. 2019 (GPipe)."""
    parts = 8
    few = sizes.batch // parts

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        here = lax.axis_index("x")
        weights = {name: one[0] for name, one in layers.items()}
        layer = wrap(lambda x: p.perceptron(p.attention(x, weights, sizes.heads), weights))
        onward = [(device, device + 1) for device in range(7)]

        def step(carry: Any, turn: Any) -> Any:
            came, done = carry
            first = lax.dynamic_index_in_dim(x, jnp.minimum(turn, parts - 1), keepdims=False)
            out = layer(jnp.where(here == 0, first, came))
            place = jnp.clip(turn - 7, 0, parts - 1)
            done = lax.dynamic_update_index_in_dim(done, jnp.where(turn >= 7, out, done[place]), place, 0)
            return (lax.ppermute(out, "x", onward), done), None

        start = [lax.pcast(one, "x", to="varying") for one in (jnp.zeros_like(x[0]), jnp.zeros_like(x))]
        (_, done), _ = lax.scan(step, tuple(start), jnp.arange(parts + 7))
        return lax.psum(jnp.where(here == 7, p.squares(done), 0), "x")

    shapes = p.layer_shapes(sizes)
    layers = {name: given(mesh, (8, *shape), "x") for name, shape in shapes.items()}
    return _built(mesh, own, (layers, given(mesh, (parts, few, sizes.tokens, sizes.width))))


def vocabulary(mesh: Mesh, sizes: Sizes) -> Built:
    """As megatron, with a head whose columns are spread, and a cross-entropy that sees them all."""
    few, words = sizes.batch // 8, 16 * sizes.width

    def own(wrap: Wrap, weights: Any, inputs: Any) -> Any:
        x, labels = inputs

        def layer(x: Any, weights: Weights) -> Any:
            return x + lax.psum(jax.nn.gelu(p.norm(x) @ weights["up"]) @ weights["down"], "x")

        x = p.unrolled(wrap(layer), x, weights["layers"])
        logits = p.norm(x) @ weights["head"]
        highest = lax.pmax(lax.stop_gradient(logits).max(-1), "x")
        total = jnp.log(lax.psum(jnp.exp(logits - highest[..., None]).sum(-1), "x")) + highest
        place = labels - lax.axis_index("x") * (words // 8)
        is_here = (place >= 0) & (place < words // 8)
        own = jnp.take_along_axis(logits, jnp.clip(place, 0, words // 8 - 1)[..., None], -1)[..., 0]
        return (total - lax.psum(jnp.where(is_here, own, 0), "x")).mean()

    one = {
        "up": given(mesh, (sizes.width, sizes.hidden), None, "x"),
        "down": given(mesh, (sizes.hidden, sizes.width), "x"),
    }
    weights = {"layers": [one] * sizes.layers, "head": given(mesh, (sizes.width, words), None, "x")}
    inputs = given(mesh, (few, sizes.tokens, sizes.width)), given(mesh, (few, sizes.tokens), dtype=jnp.int32)
    return _built(mesh, own, (weights, inputs))


def halo(mesh: Mesh, sizes: Sizes) -> Built:
    """Convolutions of images whose rows are spread: neighbours send a row before each."""
    channels = sizes.width // 8
    up, down = [(device, device + 1) for device in range(7)], [(device + 1, device) for device in range(7)]

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        def layer(x: Any, weights: Weights) -> Any:
            above = lax.ppermute(x[:, -1:], "x", up)
            below = lax.ppermute(x[:, :1], "x", down)
            padded = jnp.concatenate([above, x, below], 1)
            numbers = ("NHWC", "HWIO", "NHWC")
            out = lax.conv_general_dilated(
                padded, weights["kernel"], (1, 1), ((0, 0), (1, 1)), dimension_numbers=numbers
            )
            centre = lax.pmean(out.mean((0, 1, 2)), "x")
            scale = lax.rsqrt(lax.pmean(((out - centre) ** 2).mean((0, 1, 2)), "x") + 1e-5)
            return x + jax.nn.gelu((out - centre) * scale)

        return lax.pmean(p.squares(p.unrolled(wrap(layer), x, layers)), "x")

    one = {"kernel": given(mesh, (3, 3, channels, channels))}
    images = given(mesh, (sizes.batch // 8, 8 * sizes.heads, 8 * sizes.heads, channels), None, "x")
    return _built(mesh, own, ([one] * sizes.layers, images))


def grid(mesh: Mesh, sizes: Sizes) -> Built:
    """Two axes: batch and rows of weights along x, which are gathered; heads and hidden units along y."""
    few = sizes.batch // 4

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        def layer(x: Any, weights: Weights) -> Any:
            along = {name: int(name in ("out", "down")) for name in weights}
            whole = {name: lax.all_gather(one, "x", axis=along[name], tiled=True) for name, one in weights.items()}
            queries, keys, values = [p.in_heads(p.norm(x) @ whole[name], sizes.heads // 4) for name in "qkv"]
            own = p.mixed(queries, keys, values).reshape(*x.shape[:2], -1)
            x = x + lax.psum(own @ whole["out"], "y")
            return x + lax.psum(jax.nn.gelu(p.norm(x) @ whole["up"]) @ whole["down"], "y")

        return lax.pmean(p.squares(p.unrolled(wrap(layer), x, layers)), "x")

    layers = p.layers_given(mesh, sizes, lambda name: ("y", "x") if name in ("out", "down") else ("x", "y"), False)
    return _built(mesh, own, (layers, given(mesh, (few, sizes.tokens, sizes.width), "x")))


def partial(mesh: Mesh, sizes: Sizes) -> Built:
    """Two axes, of which devices see x alone: along y XLA, or types, spread heads and hidden units."""

    def own(wrap: Wrap, layers: Any, x: Any) -> Any:
        def layer(x: Any, weights: Weights) -> Any:
            return p.across(mesh, "y", x, weights, sizes, None)

        return lax.pmean(p.squares(p.unrolled(wrap(layer), x, layers)), "x")

    layers = p.layers_given(mesh, sizes, p.halves("y"), False)
    arguments = layers, given(mesh, (sizes.batch // 4, sizes.tokens, sizes.width), "x")

    def loss_of(wrap: Wrap) -> Callable[..., Any]:
        specs = jax.tree.map(lambda _: Spec(), layers), Spec("x")
        own_loss = functools.partial(own, wrap)
        return p.shard_map(own_loss, mesh=mesh, in_specs=specs, out_specs=Spec(), axis_names={"x"})

    return Built(loss_of, arguments)


MANUAL = (
    *p.both_ways("fsdp", fsdp),
    *p.both_ways("megatron", megatron),
    *p.both_ways("sequence", sequence),
    Program("ring", _in_parts(ring)),
    Program("ulysses", _in_parts(_ulysses)),
    Program("gathered", _in_parts(gathered)),
    Program("experts", experts),
    Program("pipeline", pipeline),
    Program("vocabulary", vocabulary),
    Program("halo", halo),
    Program("grid", grid, p.GRID),
    Program("partial", partial, p.GRID, p.ALL_KINDS),
)
