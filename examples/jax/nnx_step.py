"""A flax.nnx model and its optimizer, trained by a whole step in half of the memory.

    python examples/jax/nnx_step.py [--budget 50%] [--steps 10]

The step is as one writes it for `jax.jit`: the model and the optimizer are merged in it, and split again. In the place
of `jax.jit` stands `rematc.jax.jit` with a budget.
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import rematc.jax

WIDTH = 64
BLOCKS = 3


class Block(nnx.Module):
    """Attention and a hidden layer, each added to what it reads."""

    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.dropout(self.down(nnx.gelu(self.up(x))))


class Model(nnx.Module):
    """Blocks, and a linear layer."""

    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(BLOCKS)])
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def loss(model, x, target):
    """The mean square of the error. x, target: [batch, length, width]."""
    return jnp.mean(jnp.square(model(x) - target))


def build():
    """A step (state, x, target) -> (state, value), its first state, and a batch."""
    model = Model(nnx.Rngs(0))
    definition, state = nnx.split((model, nnx.Optimizer(model, optax.sgd(0.01, momentum=0.9), wrt=nnx.Param)))

    def train_step(state, x, target):
        model, optimizer = nnx.merge(definition, state)
        value, gradients = nnx.value_and_grad(loss)(model, x, target)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), value

    x = jax.random.normal(jax.random.key(1), (8, 64, WIDTH))
    return train_step, state, (x, jnp.roll(x, 1, axis=1))


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
