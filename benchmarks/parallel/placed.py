"""Programs that say where arrays lie, and leave it to XLA, or to JAX's types, what devices compute and send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh

from benchmarks.architectures.library import Wrap
from benchmarks.parallel import program as p
from benchmarks.parallel.manual import experts_of_tokens, gathered, ring
from benchmarks.parallel.program import Built, Program, Sizes, Weights, given, placed

Layer = Callable[[Any, Weights], Any]


def _built(mesh: Mesh, sizes: Sizes, layer: Layer, layers: Any, *spec: Any, is_scanned: bool, batch: int) -> Built:
    """Layers on sequences that are spread so, then a mean over all."""

    def loss_of(wrap: Wrap) -> Callable[..., Any]:
        def loss(layers: Any, x: Any) -> Any:
            x = (p.scanned if is_scanned else p.unrolled)(wrap(layer), x, layers)
            return p.squares(x)

        return loss

    return Built(loss_of, (layers, given(mesh, (batch, sizes.tokens, sizes.width), *spec)))


def data(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """The batch is spread; weights are whole."""

    def layer(x: Any, weights: Weights) -> Any:
        return p.perceptron(p.attention(x, weights, sizes.heads), weights)

    layers = p.layers_given(mesh, sizes, lambda _: (), is_scanned)
    return _built(mesh, sizes, layer, layers, "x", is_scanned=is_scanned, batch=sizes.batch)


def zero(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """The batch and the weights are spread; layers ask for whole weights. Source: Rajbhandari et al. 2019 (stage 3)."""

    def layer(x: Any, weights: Weights) -> Any:
        whole = {name: placed(mesh, one, None, None) for name, one in weights.items()}
        return p.perceptron(p.attention(x, whole, sizes.heads), whole)

    layers = p.layers_given(mesh, sizes, lambda _: ("x",), is_scanned)
    return _built(mesh, sizes, layer, layers, "x", is_scanned=is_scanned, batch=sizes.batch)


def tensor(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """Heads and hidden units are spread; activations between blocks are whole."""

    def layer(x: Any, weights: Weights) -> Any:
        return p.across(mesh, "x", x, weights, sizes, None)

    layers = p.layers_given(mesh, sizes, p.halves("x"), is_scanned)
    return _built(mesh, sizes, layer, layers, is_scanned=is_scanned, batch=sizes.batch // 8)


def both(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """Two axes: the batch along x, heads and hidden units along y."""

    def layer(x: Any, weights: Weights) -> Any:
        return p.across(mesh, "y", x, weights, sizes, "x")

    layers = p.layers_given(mesh, sizes, p.halves("y"), is_scanned)
    return _built(mesh, sizes, layer, layers, "x", is_scanned=is_scanned, batch=sizes.batch // 4)


def inside(mesh: Mesh, sizes: Sizes, *, is_scanned: bool, attend: Any) -> Built:
    """Tokens are spread; attention of each layer is in a `jax.shard_map` of its own."""
    spec = p.Spec(None, "x")
    mapped = p.shard_map(attend, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)

    def layer(x: Any, weights: Weights) -> Any:
        return p.perceptron(p.attention(x, weights, sizes.heads, mapped), weights)

    layers = p.layers_given(mesh, sizes, lambda _: (), is_scanned)
    return _built(mesh, sizes, layer, layers, None, "x", is_scanned=is_scanned, batch=sizes.batch // 2)


def each(mesh: Mesh, sizes: Sizes, *, is_scanned: bool) -> Built:
    """The batch and the weights are spread; each layer is a `jax.shard_map`, which gathers its weights."""

    def own(x: Any, weights: Weights) -> Any:
        whole = {name: lax.all_gather(one, "x", tiled=True) for name, one in weights.items()}
        return p.perceptron(p.attention(x, whole, sizes.heads), whole)

    layer = p.shard_map(own, mesh=mesh, in_specs=(p.Spec("x"), p.Spec("x")), out_specs=p.Spec("x"))
    layers = p.layers_given(mesh, sizes, lambda _: ("x",), is_scanned)
    return _built(mesh, sizes, layer, layers, "x", is_scanned=is_scanned, batch=sizes.batch)


def routed(mesh: Mesh, sizes: Sizes) -> Built:
    """As data, with experts of each layer in a `jax.shard_map` along the same axis, to which tokens go."""
    spec = p.Spec("x")
    mapped = p.shard_map(
        experts_of_tokens, mesh=mesh, in_specs=(spec, {"router": p.Spec(), "in": spec, "back": spec}), out_specs=spec
    )

    def layer(x: Any, weights: Weights) -> Any:
        x = p.attention(x, weights, sizes.heads)
        return x + mapped(p.norm(x), {name: weights[name] for name in ("router", "in", "back")})

    one = {name: given(mesh, (sizes.width, sizes.width)) for name in ("q", "k", "v", "out")}
    one["router"] = given(mesh, (sizes.width, 8))
    one["in"] = given(mesh, (8, sizes.width, sizes.hidden), "x")
    one["back"] = given(mesh, (8, sizes.hidden, sizes.width), "x")
    return _built(mesh, sizes, layer, [one] * sizes.layers, "x", is_scanned=False, batch=sizes.batch)


def part(mesh: Mesh, sizes: Sizes) -> Built:
    """Two axes: the batch along x; perceptrons of each layer in a `jax.shard_map` along y alone."""

    def own(x: Any, up: Any, down: Any) -> Any:
        return lax.psum(jax.nn.gelu(x @ up) @ down, "y")

    specs = (p.Spec(), p.Spec(None, "y"), p.Spec("y"))
    mapped = p.shard_map(own, mesh=mesh, in_specs=specs, out_specs=p.Spec(), axis_names={"y"})

    def layer(x: Any, weights: Weights) -> Any:
        x = p.attention(x, weights, sizes.heads)
        return x + mapped(p.norm(x), weights["up"], weights["down"])

    spread: dict[str, tuple[Any, ...]] = {"up": (None, "y"), "down": ("y",)}
    layers = p.layers_given(mesh, sizes, lambda name: spread.get(name, ()), False)
    return _built(mesh, sizes, layer, layers, "x", is_scanned=False, batch=sizes.batch // 4)


PLACED = (
    *p.both_ways("data", data),
    *p.both_ways("zero", zero),
    *p.both_ways("tensor", tensor),
    *p.both_ways("both", both, p.GRID, p.ALL_KINDS),
    *p.both_ways("inside", inside, attend=gathered),
    *p.both_ways("ring-inside", inside, attend=ring),
    *p.both_ways("each", each),
    Program("routed", routed),
    Program("part", part, p.GRID, p.ALL_KINDS),
)
