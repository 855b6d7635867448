"""Two layers with checkpoints, of which docs/how-xla-undoes-remat.md shows what XLA makes."""

import jax
import jax.numpy as jnp
import numpy as np


def loss(weights, x):
    @jax.checkpoint
    def layer(w, x):
        return x + jnp.sin(jnp.sin(x @ w) @ w)

    for w in weights:
        x = layer(w, x)
    return jnp.mean(x * x)


weights = [np.full((512, 512), 1e-3 * (i + 1), np.float32) for i in range(2)]
x = np.ones((2048, 512), np.float32)
step = jax.jit(jax.value_and_grad(loss))
