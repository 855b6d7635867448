"""Log densities of numpyro's models, as its samplers differentiate them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import initialize_model

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _potential(model: Callable[..., Any], *data: Any) -> Built:
    """The potential energy in unconstrained coordinates."""
    info = initialize_model(KEY, model, model_args=data, dynamic_args=True, validate_grad=False)

    def loss(position: Any, *data: Any) -> Any:
        return info.potential_fn(*data)(position)

    return loss, (info.param_info.z, *data)


def hierarchical() -> Built:
    def model(groups: Any, y: Any) -> None:
        center = numpyro.sample("center", dist.StudentT(4.0, 0.0, 5.0))
        scale = numpyro.sample("scale", dist.HalfCauchy(5.0))
        noise = numpyro.sample("noise", dist.InverseGamma(3.0, 2.0))
        with numpyro.plate("groups", 64):
            effect = numpyro.sample("effect", dist.Normal(center, scale))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(effect[groups], noise), obs=y)

    return _potential(model, jnp.arange(2048) % 64, jax.random.normal(KEY, (2048,)))


def correlated() -> Built:
    def model(y: Any) -> None:
        scales = numpyro.sample("scales", dist.LogNormal(jnp.zeros(8), 1.0).to_event(1))
        factor = numpyro.sample("factor", dist.LKJCholesky(8, 2.0))
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("parts", 3):
            means = numpyro.sample("means", dist.MultivariateNormal(jnp.zeros(8), scale_tril=scales[:, None] * factor))
        parts = dist.MultivariateNormal(means, scale_tril=jnp.eye(8))
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts).expand([y.shape[0]]), obs=y)

    return _potential(model, jax.random.normal(KEY, (256, 8)))


def counts() -> Built:
    def model(x: Any, y: Any) -> None:
        weights = numpyro.sample("weights", dist.Laplace(jnp.zeros(x.shape[1]), 1.0).to_event(1))
        shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
        gate = numpyro.sample("gate", dist.Beta(1.0, 5.0))
        rate = jnp.exp(x @ weights)
        numpyro.sample("y", dist.ZeroInflatedDistribution(dist.GammaPoisson(shape, shape / rate), gate=gate), obs=y)

    return _potential(model, 0.3 * jax.random.normal(KEY, (512, 16)), jnp.arange(512) % 5)


def elbo() -> Built:
    def model(x: Any, y: Any) -> None:
        first = numpyro.sample("first", dist.Normal(jnp.zeros((8, 32)), 1.0).to_event(2))
        second = numpyro.sample("second", dist.Normal(jnp.zeros(32), 1.0).to_event(1))
        logits = jnp.tanh(x @ first) @ second
        numpyro.sample("y", dist.BernoulliLogits(logits).to_event(1), obs=y)

    x = jax.random.normal(KEY, (256, 8))
    y = (x[:, 0] > 0).astype(jnp.int32)
    guide = AutoNormal(model)
    objective = Trace_ELBO(num_particles=4)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), objective)
    state = svi.init(jax.random.PRNGKey(0), x, y)

    def loss(params: Any, key: Any, x: Any, y: Any) -> Any:
        return objective.loss(key, svi.constrain_fn(params), model, guide, x, y)

    return loss, (svi.optim.get_params(state.optim_state), jax.random.PRNGKey(1), x, y)


LOSSES = (
    Loss("numpyro-hierarchical", "effects of groups, heavy tails", hierarchical),
    Loss("numpyro-mixture", "mixture of normals, correlated prior, stick breaking", correlated),
    Loss("numpyro-counts", "zero-inflated negative binomial regression", counts),
    Loss("numpyro-elbo", "evidence bound of a Bayesian network", elbo),
)
