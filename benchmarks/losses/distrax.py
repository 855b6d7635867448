"""Losses of distrax's bijectors and distributions.

Releases of tensorflow-probability may be behind jax; then distrax needs `tfp-nightly` in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distrax
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
SIZE = 8


def _perceptron(params: Any, x: Any) -> Any:
    *hidden, (last, bias) = params
    for weights, shift in hidden:
        x = jax.nn.tanh(x @ weights + shift)
    return x @ last + bias


def _weights(key: Any, *sizes: int) -> list[tuple[Any, Any]]:
    keys = jax.random.split(key, len(sizes))
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=False)
    return [(0.3 * jax.random.normal(key, (n, m)), jnp.zeros(m)) for key, n, m in pairs]


def real_nvp() -> Built:
    params = [_weights(key, SIZE, 32, 2 * SIZE) for key in jax.random.split(KEY, 4)]
    x = jax.random.normal(KEY, (128, SIZE))

    def loss(params: Any, x: Any) -> Any:
        layers = []
        for index, layer in enumerate(params):

            def conditioner(x: Any, layer: Any = layer) -> Any:
                return _perceptron(layer, x)

            def bijector(both: Any) -> Any:
                shift, log_scale = jnp.split(both, 2, axis=-1)
                return distrax.ScalarAffine(shift, log_scale=jnp.tanh(log_scale))

            mask = jnp.arange(SIZE) % 2 == index % 2
            layers.append(distrax.MaskedCoupling(mask, conditioner=conditioner, bijector=bijector))
        base = distrax.MultivariateNormalDiag(jnp.zeros(SIZE, x.dtype), jnp.ones(SIZE, x.dtype))
        return -distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers))).log_prob(x).mean()

    return loss, (params, x)


def spline() -> Built:
    bins = 6
    params = _weights(KEY, SIZE // 2, 32, SIZE // 2 * (3 * bins + 1))
    x = jax.random.uniform(KEY, (128, SIZE))

    def loss(params: Any, x: Any) -> Any:
        def conditioner(x: Any) -> Any:
            return _perceptron(params, x).reshape(*x.shape[:-1], SIZE // 2, 3 * bins + 1)

        coupling = distrax.SplitCoupling(
            split_index=SIZE // 2,
            event_ndims=1,
            conditioner=conditioner,
            bijector=lambda spline: distrax.RationalQuadraticSpline(spline, range_min=0.0, range_max=1.0),
        )
        y, log_determinant = coupling.inverse_and_log_det(x)
        return jnp.mean(jnp.square(y).sum(-1) - log_determinant)

    return loss, (params, x)


def hidden_markov() -> Built:
    states = 5
    params = {
        "start": jnp.zeros(states),
        "moves": jax.random.normal(KEY, (states, states)),
        "means": jnp.linspace(-2.0, 2.0, states),
        "log_scales": jnp.zeros(states),
    }
    observed = jax.random.normal(KEY, (60,))

    def loss(params: Any, observed: Any) -> Any:
        model = distrax.HMM(
            init_dist=distrax.Categorical(params["start"]),
            trans_dist=distrax.Categorical(params["moves"]),
            obs_dist=distrax.Normal(params["means"], jnp.exp(params["log_scales"])),
        )
        return -model.forward(observed)[0]

    return loss, (params, observed)


LOSSES = (
    Loss("distrax-real-nvp", "normalizing flow, masked couplings", real_nvp),
    Loss("distrax-spline", "normalizing flow, rational quadratic splines", spline),
    Loss("distrax-hmm", "hidden Markov model, forward algorithm", hidden_markov),
)
