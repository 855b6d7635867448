"""Marginal likelihoods of dynamax's state space models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from dynamax.hidden_markov_model import hmm_filter
from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_filter
from dynamax.parameters import from_unconstrained, to_unconstrained

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def kalman() -> Built:
    model = LinearGaussianSSM(state_dim=4, emission_dim=3)
    params, properties = model.initialize(KEY)
    emissions = jax.random.normal(KEY, (40, 3))

    def loss(params: Any, emissions: Any) -> Any:
        return -lgssm_filter(from_unconstrained(params, properties), emissions).marginal_loglik

    return loss, (to_unconstrained(params, properties), emissions)


def markov() -> Built:
    states = 6
    params = {"moves": jax.random.normal(KEY, (states, states)), "means": jnp.linspace(-2.0, 2.0, states)}
    emissions = jax.random.normal(KEY, (80,))

    def loss(params: Any, emissions: Any) -> Any:
        chances = jax.scipy.stats.norm.logpdf(emissions[:, None], params["means"])
        start = jnp.full(states, 1 / states, emissions.dtype)
        return -hmm_filter(start, jax.nn.softmax(params["moves"]), chances).marginal_loglik

    return loss, (params, emissions)


LOSSES = (
    Loss("dynamax-kalman", "linear state space model, Kalman filter", kalman),
    Loss("dynamax-hmm", "hidden Markov model, filter", markov),
)
