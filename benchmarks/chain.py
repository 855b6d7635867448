"""Memory of rematerialization on a chain of residual layers, rematc beside JAX on the jax that is installed.

    python benchmarks/chain.py

Twelve layers x + gelu(gelu(x @ w0) @ w1), width 512, batch 2048, float32: one activation is 4 MiB, and the gradients,
which are results, 24 MiB. Each row is one placement of `checkpoint`; the columns are XLA's temporary memory, its FLOPs
beside those without rematerialization, and the largest difference of rematc's gradients from JAX's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc

LAYERS, WIDTH, BATCH, GROUP = 12, 512, 2048, 4

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def gelu(xp: Any, x: Any) -> Any:
    """The form with tanh, as `jax.nn.gelu` has it; cubes as products."""
    return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def chain_loss(xp: Any, per_layer: Wrap, per_group: Wrap) -> Callable[..., Any]:
    """The mean square of the chain's result; each layer and each group of layers wrapped.

    Takes weights [layers, 2, width, width] as nested lists of matrices, and x [batch, width].
    """

    def layer(weights: Any, x: Any) -> Any:
        first, second = weights
        return x + gelu(xp, gelu(xp, x @ first) @ second)

    wrapped = per_layer(layer)

    def group(group_weights: Any, x: Any) -> Any:
        for weights in group_weights:
            x = wrapped(weights, x)
        return x

    wrapped_group = per_group(group)

    def loss(weights: Any, x: Any) -> Any:
        for start in range(0, len(weights), GROUP):
            x = wrapped_group(weights[start : start + GROUP], x)
        return xp.mean(x * x)

    return loss


def chain_arguments() -> tuple[list[list[np.ndarray[Any, Any]]], np.ndarray[Any, Any]]:
    """Weights and input."""
    random = np.random.default_rng(0)
    scale = WIDTH**-0.5
    weights = [[random.normal(0, scale, (WIDTH, WIDTH)).astype(np.float32) for _ in range(2)] for _ in range(LAYERS)]
    return weights, random.normal(0, 1, (BATCH, WIDTH)).astype(np.float32)


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """No checkpoint."""
    return function


PLACEMENTS: dict[str, Callable[[Wrap, Callable[[str], Wrap]], tuple[Wrap, Wrap]]] = {
    "none": lambda checkpoint, policy: (unwrapped, unwrapped),
    "each layer": lambda checkpoint, policy: (checkpoint, unwrapped),
    "each layer, dots": lambda checkpoint, policy: (policy("dots"), unwrapped),
    "layers in groups of 4": lambda checkpoint, policy: (checkpoint, checkpoint),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What XLA says of one program, and the gradients that it computes.

    Attributes:
        mebibytes: temporary memory.
        gigaflops: floating-point operations.
        gradients: of the weights.
    """

    mebibytes: float
    gigaflops: float
    gradients: list[Any]


def run_rematc(placement: str) -> Row:
    """The chain through rematc."""

    def policy(name: str) -> Wrap:
        return lambda function: rematc.checkpoint(function, policy=name)

    loss = chain_loss(np, *PLACEMENTS[placement](rematc.checkpoint, policy))
    arguments = chain_arguments()
    compiled = rematc.compile(rematc.value_and_grad(loss), *arguments)
    step: Any = compiled(*arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(step[1])]
    return Row(compiled.memory().temp_bytes / 2**20, compiled.flops() / 1e9, leaves)


def run_jax(placement: str) -> Row:
    """The chain through JAX, with the options that JAX takes by default."""

    def policy(name: str) -> Wrap:
        saveable = {"dots": jax.checkpoint_policies.dots_saveable}[name]
        return lambda function: jax.checkpoint(function, policy=saveable)

    loss = chain_loss(jnp, *PLACEMENTS[placement](jax.checkpoint, policy))
    arguments = chain_arguments()
    compiled = jax.jit(jax.value_and_grad(loss)).lower(*arguments).compile()
    _, gradients = compiled(*arguments)
    memory: Any = compiled.memory_analysis()
    cost: Any = compiled.cost_analysis()
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(gradients)]
    return Row(memory.temp_size_in_bytes / 2**20, cost["flops"] / 1e9, leaves)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print(f"{LAYERS} layers, width {WIDTH}, batch {BATCH}; jax {jax.__version__} on {jax.default_backend()}")
    print(f"{'':24}{'temporary MiB':>20}{'FLOPs / none':>20}{'gradients':>12}")
    print(f"{'checkpoint':24}{'rematc':>10}{'jax':>10}{'rematc':>10}{'jax':>10}{'differ':>12}")
    baseline: tuple[Row, Row] | None = None
    for placement in PLACEMENTS:
        ours, theirs = run_rematc(placement), run_jax(placement)
        baseline = baseline or (ours, theirs)
        work = ours.gigaflops / baseline[0].gigaflops, theirs.gigaflops / baseline[1].gigaflops
        pairs = zip(ours.gradients, theirs.gradients, strict=True)
        difference = max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)
        print(
            f"{placement:24}{ours.mebibytes:10.0f}{theirs.mebibytes:10.0f}"
            f"{work[0]:10.2f}{work[1]:10.2f}{difference:12.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
