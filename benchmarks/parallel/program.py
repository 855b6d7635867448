"""What a program on many devices is, and the pieces that those of this package have in common."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding

from benchmarks.architectures.library import Wrap

#: JAX leaves these without annotations.
Spec: Any = jax.sharding.PartitionSpec
_reshard: Any = jax.reshard
_constrain: Any = lax.with_sharding_constraint
_struct: Any = jax.ShapeDtypeStruct
shard_map: Any = jax.shard_map
Weights = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a program is: `batch` and `tokens` are of all devices together."""

    layers: int
    width: int
    heads: int
    hidden: int
    tokens: int
    batch: int


#: Where activations take most of the memory; and what is run in double precision.
REAL = Sizes(layers=4, width=256, heads=8, hidden=1024, tokens=256, batch=64)
SMALL = Sizes(layers=2, width=16, heads=8, hidden=32, tokens=16, batch=16)


@dataclass(frozen=True, slots=True)
class Built:
    """A program on a mesh.

    Attributes:
        loss_of: the wrap of a layer to a loss of (weights, inputs).
        given: shapes of both, with shardings.
    """

    loss_of: Callable[[Wrap], Callable[..., Any]]
    given: tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """How to make one.

    Attributes:
        name: what tables call it.
        build: it, on such a mesh.
        axes: of the mesh, with how many devices are along each.
        kinds: the types that the axes may have: all Explicit, all Auto, or `Mixed`.
    """

    name: str
    build: Callable[[Mesh, Sizes], Built]
    axes: tuple[tuple[str, int], ...] = (("x", 8),)
    kinds: tuple[str, ...] = ("Explicit", "Auto")

    def mesh(self, devices: Any, kind: str) -> Mesh:
        """Of such devices; `Mixed` has its first axis Explicit and the others Auto."""
        names, sizes = zip(*self.axes, strict=True)
        row = [kind] * len(names) if kind != "Mixed" else ["Explicit", *["Auto"] * (len(names) - 1)]
        types = tuple([getattr(AxisType, each) for each in row])
        return Mesh(devices.reshape(sizes), names, axis_types=types)


#: Axes of two kinds of parallelism; and all types that two axes may have.
GRID = (("x", 2), ("y", 4))
ALL_KINDS = ("Explicit", "Auto", "Mixed")


def both_ways(name: str, build: Callable[..., Built], *more: Any, **named: Any) -> tuple[Program, Program]:
    """The programs of unrolled and of scanned layers."""
    made = [functools.partial(build, is_scanned=is_scanned, **named) for is_scanned in (False, True)]
    return Program(name, made[0], *more), Program(f"{name}, scan", made[1], *more)


def given(mesh: Mesh, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    """An argument, spread so."""
    return _struct(shape, dtype, sharding=NamedSharding(mesh, Spec(*spec)))


def specs_of(arguments: Any) -> Any:
    """How arguments are spread."""
    return jax.tree.map(lambda one: one.sharding.spec, arguments)


def placed(mesh: Mesh, x: Any, *spec: Any) -> Any:
    """Spread so: by its type along axes of type Explicit, by a constraint along those of type Auto."""
    here = jax.sharding.get_abstract_mesh()
    own: Any = mesh.abstract_mesh if here.empty else here
    typed, free = [[entry if entry in axes else None for entry in spec] for axes in (own.explicit_axes, own.auto_axes)]
    if own.explicit_axes:
        x = _reshard(x, Spec(*typed))
    if not own.auto_axes:
        return x
    rows = [Spec.UNCONSTRAINED if kept is not None else entry for kept, entry in zip(typed, free, strict=True)]
    return _constrain(x, NamedSharding(mesh if here.empty else here, Spec(*rows)))


def scanned(layer: Callable[[Any, Weights], Any], x: Any, layers: Weights) -> Any:
    """All layers, whose weights are stacked, as steps of a scan."""
    return lax.scan(lambda x, weights: (layer(x, weights), None), x, layers)[0]


def unrolled(layer: Callable[[Any, Weights], Any], x: Any, layers: list[Weights]) -> Any:
    """All layers, one after another."""
    for weights in layers:
        x = layer(x, weights)
    return x


def norm(x: Any) -> Any:
    """Mean 0 and variance 1 along the last dimension."""
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def in_heads(x: Any, count: int) -> Any:
    """[batch, tokens, width] as [batch, tokens, count, width / count]."""
    return x.reshape(*x.shape[:2], count, -1)


def mixed(queries: Any, keys: Any, values: Any, first: Any = 0) -> Any:
    """Causal attention of [batch, tokens, heads, size]; the first query is at this place of the keys."""
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys) / math.sqrt(queries.shape[-1])
    places = first + jnp.arange(queries.shape[1])[:, None]
    scores = jnp.where(places >= jnp.arange(keys.shape[1]), scores, -1e9)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), values)


def attention(x: Any, weights: Weights, count: int, attend: Callable[[Any, Any, Any], Any] = mixed) -> Any:
    """With the residual stream around it; `count` heads of those that are here."""
    queries, keys, values = [in_heads(norm(x) @ weights[name], count) for name in "qkv"]
    return x + attend(queries, keys, values).reshape(*x.shape[:2], -1) @ weights["out"]


def perceptron(x: Any, weights: Weights) -> Any:
    """With the residual stream around it."""
    return x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]


def squares(x: Any) -> Any:
    """A loss of activations."""
    return (norm(x) ** 3).mean() + (x * x).mean()


def across(mesh: Mesh, axis: str, x: Any, weights: Weights, sizes: Sizes, batch: Any) -> Any:
    """A layer whose heads and hidden units are spread along one axis, and its batch along another or none."""

    def headed(name: str) -> Any:
        split = weights[name].reshape(sizes.width, sizes.heads, -1)
        return placed(
            mesh, _einsum("btw,whd->bthd", norm(x), split, (batch, None, axis, None)), batch, None, axis, None
        )

    own = mixed(*map(headed, "qkv"))
    joined = weights["out"].reshape(sizes.heads, -1, sizes.width)
    x = x + placed(mesh, _einsum("bthd,hdw->btw", own, joined, (batch, None, None)), batch, None, None)
    hidden = jax.nn.gelu(_einsum("btw,wh->bth", norm(x), weights["up"], (batch, None, axis)))
    return x + placed(mesh, _einsum("bth,hw->btw", hidden, weights["down"], (batch, None, None)), batch, None, None)


def _einsum(text: str, one: Any, other: Any, spec: tuple[Any, ...]) -> Any:
    """An einsum that says where its result lies, as types ask where it sums along what is spread."""
    mesh = jax.sharding.get_abstract_mesh()
    explicit = getattr(mesh, "explicit_axes", ())
    if not explicit:
        return jnp.einsum(text, one, other)
    typed = Spec(*[entry if entry in explicit else None for entry in spec])
    return jnp.einsum(text, one, other, out_sharding=typed)


def layer_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Of attention's and a perceptron's weights."""
    square = (sizes.width, sizes.width)
    return {
        **dict.fromkeys(("q", "k", "v", "out"), square),
        "up": (sizes.width, sizes.hidden),
        "down": (sizes.hidden, sizes.width),
    }


def halves(axis: str) -> Callable[[str], tuple[Any, ...]]:
    """How weights are spread along an axis by heads and hidden units: by columns, or rows of what reads those."""
    return lambda name: (axis, None) if name in ("out", "down") else (None, axis)


def layers_given(mesh: Mesh, sizes: Sizes, spec: Callable[[str], tuple[Any, ...]], is_scanned: bool) -> Any:
    """Weights of all layers, those of a name spread so."""
    shapes = layer_shapes(sizes)
    if is_scanned:
        return {name: given(mesh, (sizes.layers, *shape), None, *spec(name)) for name, shape in shapes.items()}
    one = {name: given(mesh, shape, *spec(name)) for name, shape in shapes.items()}
    return [one] * sizes.layers
