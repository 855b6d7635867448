"""An equinox model and an optimizer of optax, trained by a whole step in half of the memory.

    python examples/jax/equinox_step.py [--budget 50%] [--steps 10]

The arrays of the model are the state of the step, all else of it is closed over. In the place of `jax.jit` stands
`rematc.jax.jit` with a budget.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import rematc.jax

WIDTH = 64
DEPTH = 6


class Block(eqx.Module):
    """A hidden layer that is added to what it reads."""

    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=first)
        self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=second)

    def __call__(self, x):
        return x + self.down(jax.nn.gelu(self.up(self.norm(x))))


class Model(eqx.Module):
    """Blocks. It takes one example: [width]."""

    blocks: list

    def __init__(self, key):
        self.blocks = [Block(one) for one in jax.random.split(key, DEPTH)]

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def build():
    """A step (state, x, target) -> (state, value), its first state, and a batch."""
    arrays, static = eqx.partition(Model(jax.random.key(0)), eqx.is_inexact_array)
    optimizer = optax.sgd(0.1, momentum=0.9)

    def loss(arrays, x, target):
        model = eqx.combine(arrays, static)
        return jnp.mean(jnp.square(jax.vmap(model)(x) - target))

    def train_step(state, x, target):
        arrays, moments = state
        value, gradients = jax.value_and_grad(loss)(arrays, x, target)
        updates, moments = optimizer.update(gradients, moments, arrays)
        return (eqx.apply_updates(arrays, updates), moments), value

    x = jax.random.normal(jax.random.key(1), (512, WIDTH))
    return train_step, (arrays, optimizer.init(arrays)), (x, jnp.roll(x, 1, axis=1))


def main():
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="50%", help="temporary memory: bytes, 2GiB, 50%% of what jax.jit takes")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    train_step, state, batch = build()
    step = rematc.jax.jit(train_step, budget=options.budget, donate_argnums=0)  # in the place of jax.jit
    for name, jitted in (("jax.jit", jax.jit(train_step, donate_argnums=0)), ("rematc.jax.jit", step)):
        memory = jitted.lower(state, *batch).compile().memory_analysis()
        print(f"temporary memory, {name}: {memory.temp_size_in_bytes / 2**20:.1f} MiB")
    for number in range(options.steps):
        state, value = step(state, *batch)
        print(f"step {number}: loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
