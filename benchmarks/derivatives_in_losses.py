"""Memory of losses with derivatives in them, whose layers are checkpoints: JAX's and rematc's, in one process.

    python benchmarks/derivatives_in_losses.py

Three losses: energies and forces of molecules by a network over pairs of atoms (a gradient, under `jax.vmap`); a mean
flow (`jax.jvp` of a network); and a gradient penalty. Of each, the gradient, with layers as they are, in
`jax.checkpoint` and in `rematc.jax.checkpoint`: temporary memory, and FLOPs beside those with layers as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc.jax

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Loss = Callable[..., Any]

LAYERS, ATOMS, MOLECULES, WIDTH, BATCH = 6, 24, 16, 64, 512
RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=shape) / np.sqrt(shape[-2]), jnp.float32)


def forces(wrap: Wrap) -> tuple[Loss, tuple[Any, ...]]:
    """Energies of molecules, and forces: their gradients."""

    def layer(x: Any, positions: Any, one: Any) -> Any:
        pairs = jnp.sum((positions[:, None] - positions) ** 2, -1, keepdims=True)
        both = (ATOMS, ATOMS, WIDTH)
        inputs = [jnp.broadcast_to(x[:, None], both), jnp.broadcast_to(x, both), pairs]
        messages = jax.nn.silu(jax.nn.silu(jnp.concatenate(inputs, -1) @ one["first"]) @ one["second"])
        return x + jnp.sum(messages * jnp.exp(-pairs), 1) @ one["out"]

    wrapped = wrap(layer)

    def energy(params: Any, positions: Any) -> Any:
        x = jnp.ones((ATOMS, WIDTH))
        for one in params:
            x = wrapped(x, positions, one)
        return jnp.sum(x)

    def loss(params: Any, positions: Any, wanted: Any) -> Any:
        found = jax.vmap(jax.value_and_grad(energy, 1), (None, 0))(params, positions)
        return jnp.mean(found[0] ** 2) + jnp.mean((found[1] - wanted) ** 2)

    shapes = {"first": (2 * WIDTH + 1, WIDTH), "second": (WIDTH, WIDTH), "out": (WIDTH, WIDTH)}
    params = [{name: weights(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
    positions = weights(MOLECULES, ATOMS, 3)
    return loss, (params, positions, positions)


def _network(wrap: Wrap) -> tuple[Callable[..., Any], Any]:
    wrapped = wrap(lambda x, one: x + jax.nn.gelu(x @ one["up"]) @ one["down"])

    def run(params: Any, x: Any) -> Any:
        for one in params:
            x = wrapped(x, one)
        return x

    params = [{"up": weights(WIDTH, 4 * WIDTH), "down": weights(4 * WIDTH, WIDTH)} for _ in range(LAYERS)]
    return run, params


def mean_flow(wrap: Wrap) -> tuple[Loss, tuple[Any, ...]]:
    """A network, and how it changes along its input."""
    run, params = _network(wrap)

    def loss(params: Any, x: Any, direction: Any) -> Any:
        found, change = jax.jvp(lambda x: run(params, x), (x,), (direction,))
        return jnp.mean((found + change - direction) ** 2)

    return loss, (params, weights(BATCH, WIDTH), weights(BATCH, WIDTH))


def penalty(wrap: Wrap) -> tuple[Loss, tuple[Any, ...]]:
    """A critic whose gradient is to be of length one."""
    run, params = _network(wrap)

    def loss(params: Any, x: Any) -> Any:
        slope = jax.grad(lambda x: jnp.sum(run(params, x)))(x)
        return jnp.mean((jnp.linalg.norm(slope, axis=-1) - 1) ** 2)

    return loss, (params, weights(BATCH, WIDTH))


def figures(make: Callable[[Wrap], tuple[Loss, tuple[Any, ...]]]) -> Iterator[tuple[float, float]]:
    """MiB of temporary memory and FLOPs: layers as they are, then in each of the checkpoints."""
    for wrap in (lambda layer: layer, jax.checkpoint, rematc.jax.checkpoint):
        loss, operands = make(wrap)
        compiled = jax.jit(jax.grad(loss)).lower(*operands).compile()
        memory: Any = compiled.memory_analysis()
        costs: Any = compiled.cost_analysis()
        yield memory.temp_size_in_bytes / 2**20, costs["flops"]


def main() -> None:
    print(f"{'MiB (FLOPs)':14}{'as they are':>14}{'jax.checkpoint':>20}{'rematc.jax.checkpoint':>25}")
    for make in (forces, mean_flow, penalty):
        (base, flops), *others = figures(make)
        row = [f"{mebibytes:.1f} ({found / flops:.2f}x)" for mebibytes, found in others]
        print(f"{make.__name__:14}{base:>14.1f}{row[0]:>20}{row[1]:>25}")


if __name__ == "__main__":
    main()
