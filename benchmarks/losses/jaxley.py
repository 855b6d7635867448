"""Losses through jaxley's neurons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxley as jx
from jaxley.channels import HH

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def neuron() -> Built:
    compartment = jx.Compartment()
    branch = jx.Branch(compartment, ncomp=2)
    cell = jx.Cell(branch, parents=[-1, 0, 0])
    cell.insert(HH())
    cell.branch(0).comp(0).stimulate(jx.step_current(i_delay=0.2, i_dur=0.6, i_amp=0.1, delta_t=0.025, t_max=1.5))
    cell.branch(1).comp(0).record(verbose=False)
    cell.make_trainable("HH_gNa", verbose=False)
    cell.make_trainable("radius", verbose=False)
    params = cell.get_parameters()

    def loss(params: Any) -> Any:
        voltage = jx.integrate(cell, params=params, delta_t=0.025)
        return jnp.mean(jnp.square(voltage[0] + 60.0)) / 100.0

    return loss, (params,)


LOSSES = (Loss("jaxley-neuron", "branched neuron of Hodgkin and Huxley, tridiagonal solves in a scan", neuron),)
