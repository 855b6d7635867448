"""Rigid bodies by Brax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import brax.generalized.pipeline
import brax.positional.pipeline
import brax.spring.pipeline
import jax
import jax.numpy as jnp
from brax.io import mjcf

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]

PENDULUM = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body pos="0 0 1">
      <joint name="a" type="hinge" axis="0 1 0"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5" contype="0" conaffinity="0"/>
      <body pos="0 0 -0.5">
        <joint name="b" type="hinge" axis="0 1 0"/>
        <geom type="capsule" size="0.04" fromto="0 0 0 0 0 -0.5" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="a" gear="3"/></actuator>
</mujoco>
"""


def _swing(pipeline: Any, steps: int) -> Built:
    system = mjcf.loads(PENDULUM)

    def loss(actions: Any, q: Any) -> Any:
        state = pipeline.init(system, q, jnp.zeros(2))

        def step(state: Any, action: Any) -> tuple[Any, Any]:
            state = pipeline.step(system, state, action)
            return state, state.q

        _, trajectory = jax.lax.scan(step, state, actions)
        return jnp.mean((trajectory[-10:] - jnp.asarray([jnp.pi, 0.0])) ** 2) + 0.01 * jnp.mean(actions**2)

    return loss, (0.3 * jax.random.normal(jax.random.key(0), (steps, 1)), jnp.asarray([0.3, 0.2]))


def generalized() -> Built:
    return _swing(brax.generalized.pipeline, 40)


def positional() -> Built:
    return _swing(brax.positional.pipeline, 40)


def spring() -> Built:
    return _swing(brax.spring.pipeline, 40)


LOSSES = (
    Loss("brax-generalized", "swing-up in generalized coordinates", generalized),
    Loss("brax-positional", "the same by positions", positional),
    Loss("brax-spring", "the same by springs", spring),
)
