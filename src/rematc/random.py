"""Random numbers for traced functions, under the names of `jax.random` and with its numbers.

There is no state: a key is an ordinary array, u32[2], and the same key gives the same numbers, traced or not, in the
forward pass and when a checkpoint computes them again. `split` and `fold_in` make new keys from a key.

    import rematc.random as random

    mask_key, noise_key = random.split(random.key(0))
    y = random.dropout(mask_key, x, rate=0.1) + random.normal(noise_key, x.shape)
"""

from rematc.compiler.api.random.continuous import exponential, gumbel, laplace, normal, truncated_normal, uniform
from rematc.compiler.api.random.discrete import (
    bernoulli,
    bits,
    categorical,
    choice,
    dropout,
    permutation,
    randint,
)
from rematc.compiler.api.random.keys import fold_in, key, split

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "dropout",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
