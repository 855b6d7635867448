"""A small language model trained in plain JAX and optax, its memory lowered by one line.

    python examples/jax/training.py [--policy dots] [--steps 20]

With `--policy none` it is trained by `jax.value_and_grad`, otherwise by `rematc.jax.value_and_grad`. It prints the
temporary memory of the step, as XLA says, and the loss as it falls. The model is told nothing of this.
"""

import argparse

import jax
import jax.numpy as jnp
import optax

import rematc.jax

LAYERS = 6
WIDTH = 128
HEADS = 4
LENGTH = 128
BATCH = 8
PERIOD = 17  # of the text that is learned


def layer_norm(scale, x):
    """x: [..., width], with mean 0 and variance 1 along its last dimension."""
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    return scale * centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + 1e-6)


def attention(weights, x):
    """Causal attention. x: [batch, length, width]."""
    heads = [(x @ weights[name]).reshape(*x.shape[:2], HEADS, -1) for name in ("query", "key", "value")]
    mixed = jax.nn.dot_product_attention(*heads, is_causal=True)
    return mixed.reshape(x.shape) @ weights["output"]


def layer(weights, x):
    """Attention and a perceptron, each added to what it reads."""
    x = x + attention(weights, layer_norm(weights["attention_scale"], x))
    return x + jax.nn.gelu(layer_norm(weights["hidden_scale"], x) @ weights["up"]) @ weights["down"]


def loss(params, tokens):
    """Cross-entropy of each token given those before it. tokens: [batch, length + 1]."""
    x = params["tokens"][tokens[:, :-1]] + params["positions"]
    for weights in params["layers"]:
        x = layer(weights, x)
    logits = x @ params["tokens"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def initial_params(key):
    """Independent normals of a size that keeps variances; scales are 1."""

    def normal(key, *shape):
        return jax.random.normal(key, shape) * shape[0] ** -0.5

    def layer_params(key):
        keys, names = jax.random.split(key, 6), ("query", "key", "value", "output")
        square = {name: normal(one, WIDTH, WIDTH) for name, one in zip(names, keys[:4], strict=True)}
        hidden = {"up": normal(keys[4], WIDTH, 4 * WIDTH), "down": 0.1 * normal(keys[5], 4 * WIDTH, WIDTH)}
        return {**square, **hidden, "attention_scale": jnp.ones(WIDTH), "hidden_scale": jnp.ones(WIDTH)}

    first, second, *keys = jax.random.split(key, LAYERS + 2)
    return {
        "tokens": 0.1 * jax.random.normal(first, (64, WIDTH)),
        "positions": 0.1 * jax.random.normal(second, (LENGTH, WIDTH)),
        "layers": [layer_params(key) for key in keys],
    }


def batch(key):
    """Texts that repeat a random pattern: [batch, length + 1]."""
    patterns = jax.random.randint(key, (BATCH, PERIOD), 0, 64)
    return jnp.tile(patterns, LENGTH // PERIOD + 1)[:, : LENGTH + 1]


def training_step(policy, optimizer):
    """A function (params, state, tokens) -> (params, state, value) that takes its first two arguments' memory."""
    gradients_of = jax.value_and_grad(loss)
    if policy != "none":
        gradients_of = rematc.jax.value_and_grad(loss, policy=policy)  # the line that is different

    def step(params, state, tokens):
        value, grads = gradients_of(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return rematc.jax.jit(step, donate_argnums=(0, 1))


def main():
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="dots", help="none, or a policy of rematc's: dots, auto, nothing, ...")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    optimizer = optax.adamw(1e-3)
    params = initial_params(jax.random.key(0))
    state = optimizer.init(params)
    tokens = batch(jax.random.key(1))
    step = training_step(options.policy, optimizer).lower(params, state, tokens).compile()
    print(f"temporary memory: {step.memory_analysis().temp_size_in_bytes / 2**20:.1f} MiB")
    for number in range(options.steps):
        params, state, value = step(params, state, tokens)
        if number % 5 == 0 or number == options.steps - 1:
            print(f"step {number}: loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
