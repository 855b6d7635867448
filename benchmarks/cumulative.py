"""Running sums and products beside JAX's: ratios, ours / JAX, of the time of one call.

    python benchmarks/cumulative.py [--rounds N] [--largest N]

Both are compiled by the same XLA and called in turns in the same process. 1.0 takes as long as `jnp.cumsum`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

import rematc

Function = Callable[..., Any]


def cases(largest: int) -> list[tuple[str, Function, Function, Any]]:
    """Name, the function for NumPy and for JAX, and the operand."""
    random = np.random.default_rng(0)
    found: list[tuple[str, Function, Function, Any]] = []
    size = 1000
    while size <= largest:
        line = random.standard_normal(size).astype(np.float32)
        found.append((f"cumsum of {size}", np.cumsum, jnp.cumsum, line))
        size *= 10
    square = random.standard_normal((1000, 1000)).astype(np.float32)
    found += [
        (f"cumsum of 1000 x 1000 over axis {axis}", along(np.cumsum, axis), along(jnp.cumsum, axis), square)
        for axis in (0, 1)
    ]
    line = 1 + random.standard_normal(100_000).astype(np.float32) * 1e-3
    found += [
        ("cumprod of 100000", np.cumprod, jnp.cumprod, line),
        ("gradient of cumprod of 100000", rematc.grad(last_product(np)), jax.grad(last_product(jnp)), line),
        ("maximum.accumulate of 100000", np.maximum.accumulate, jax.lax.cummax, line),
    ]
    return found


def along(function: Function, axis: int) -> Function:
    return lambda x: function(x, axis=axis)


def last_product(numpy: Any) -> Function:
    return lambda x: numpy.cumprod(x)[-1] * 1.0


def seconds_of(function: Function, x: Any) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(function(x))
    return time.perf_counter() - start


@click.command()
@click.option("--rounds", default=30, show_default=True, help="Calls of each.")
@click.option("--largest", default=1_000_000, show_default=True, help="Elements of the longest line.")
def main(rounds: int, largest: int) -> None:
    """Print one line for each function and size: the median ratio, and the quartiles."""
    for name, ours, theirs, operand in cases(largest):
        x = jnp.asarray(operand)
        mine, other = rematc.jit(ours), jax.jit(theirs)
        np.testing.assert_allclose(mine(x), other(x), rtol=2e-3, atol=2e-2)
        found = [seconds_of(mine, x) / seconds_of(other, x) for _ in range(rounds)]
        lower, median, upper = statistics.quantiles(found, n=4)
        click.echo(f"{name:<48} {median:5.3f}   ({lower:.3f} to {upper:.3f})")


if __name__ == "__main__":
    main()
