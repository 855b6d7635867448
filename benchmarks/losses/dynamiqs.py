"""A pulse that drives a qubit, optimised through dynamiqs' solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dynamiqs as dq
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def _pulse(amplitudes: Any, levels: int) -> Any:
    a = dq.destroy(levels)
    times = jnp.linspace(0.0, 1.0, amplitudes.shape[0] + 1)
    return 0.5 * a.dag() @ a.dag() @ a @ a + dq.pwc(times, amplitudes, a + a.dag())


def lossy() -> Built:
    def loss(amplitudes: Any, rate: Any) -> Any:
        ops = [jnp.sqrt(rate) * dq.destroy(6)]
        result = dq.mesolve(
            _pulse(amplitudes, 6), ops, dq.fock(6, 0), jnp.linspace(0.0, 1.0, 9), exp_ops=[dq.number(6)],
            method=dq.method.Tsit5(), progress_meter=None,
        )  # fmt: skip
        return (result.expects[0, -1].real - 1.0) ** 2

    return loss, (jnp.linspace(0.1, 1.0, 8), jnp.asarray(0.2))


def exact() -> Built:
    def loss(amplitudes: Any) -> Any:
        result = dq.sesolve(
            _pulse(amplitudes, 8), dq.fock(8, 0), jnp.linspace(0.0, 1.0, 5), exp_ops=[dq.number(8)],
            method=dq.method.Expm(), progress_meter=None,
        )  # fmt: skip
        return (result.expects[0, -1].real - 1.0) ** 2

    return loss, (jnp.linspace(0.1, 1.0, 6),)


LOSSES = (
    Loss("dynamiqs-lossy", "master equation, adaptive steps", lossy),
    Loss("dynamiqs-exact", "Schroedinger's equation by exponentials", exact),
)
