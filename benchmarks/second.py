"""Second derivatives of a loss by rematc beside JAX's: Hessian-vector products, in the ways that users come by them.

`benchmarks/models.py --second` measures them. A way that JAX itself refuses, as forward differentiation of what has a
`custom_vjp`, is not compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc.jax

Gradient = Callable[..., Any]
Product = Callable[[Gradient, Any, Any], Any]


def forward(gradient: Gradient, params: Any, direction: Any) -> Any:
    """Forward over reverse."""
    return jax.jvp(gradient, (params,), (direction,))[1]


def reverse(gradient: Gradient, params: Any, direction: Any) -> Any:
    """Reverse over reverse."""
    return jax.grad(along(gradient, direction))(params)


def reverse_by_rematc(gradient: Gradient, params: Any, direction: Any) -> Any:
    """Reverse over reverse, the outer one by rematc."""
    return rematc.jax.grad(along(gradient, direction))(params)


def along(gradient: Gradient, direction: Any) -> Callable[[Any], Any]:
    """The gradient's component in a direction, as a function of what is differentiated."""

    def slope(params: Any) -> Any:
        pairs = zip(*map(jax.tree_util.tree_leaves, (gradient(params), direction)), strict=True)
        # A product of arrays of which parts of the same dimension lie on each device asks in JAX where its result lies.
        return sum(jnp.sum(one * jnp.conj(other)).real for one, other in pairs)

    return slope


@dataclass(frozen=True, slots=True)
class Way:
    """A name, rematc's gradient of a loss, what is differentiated in it, and what JAX does in its place."""

    name: str
    gradient: Callable[[Callable[..., Any]], Gradient]
    product: Product
    in_jax: Product


def _checkpointed(policy: str) -> Callable[[Callable[..., Any]], Gradient]:
    return lambda loss: jax.grad(rematc.jax.checkpoint(loss, policy=policy))


WAYS = (
    Way("jvp of rematc.jax.grad", rematc.jax.grad, forward, forward),
    Way("grad of rematc.jax.grad", lambda loss: rematc.jax.grad(loss, policy="nothing"), reverse, reverse),
    Way("jvp of grad of checkpoint", _checkpointed("nothing"), forward, forward),
    Way("grad of grad of checkpoint", _checkpointed("dots"), reverse, reverse),
    Way("rematc.jax.grad twice", lambda loss: rematc.jax.grad(loss, policy="dots"), reverse_by_rematc, reverse),
)


def directions(params: Any) -> Any:
    """A direction for each leaf, the same each time."""
    rng = np.random.default_rng(0)
    return jax.tree_util.tree_map(
        lambda leaf: jnp.asarray(rng.standard_normal(np.shape(leaf)), jnp.result_type(leaf)), params
    )


def products(
    loss: Callable[..., Any], arguments: tuple[Any, ...], ways: Sequence[Way]
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """For each of the ways that JAX takes: its name, rematc's product to compute, and JAX's, both as leaves."""
    params, *rest = arguments
    direction = directions(params)

    def leaves(of: Product, gradient: Gradient) -> list[Any]:
        def compute(params: Any, *rest: Any) -> Any:
            return of(lambda at: gradient(at, *rest), params, direction)

        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(compute)(params, *rest))]

    def of_way(way: Way) -> list[Any]:
        return leaves(way.product, way.gradient(loss))

    known: dict[Product, Any] = {}
    for way in ways:
        if way.in_jax not in known:
            try:
                known[way.in_jax] = leaves(way.in_jax, jax.grad(loss))
            except Exception:  # whatever others' code raises under JAX's own differentiation
                known[way.in_jax] = None
        if known[way.in_jax] is not None:
            yield way.name, functools.partial(of_way, way), known[way.in_jax]
