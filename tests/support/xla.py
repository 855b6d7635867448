"""Run StableHLO text on this machine's CPU, with nothing of rematc between the text and XLA."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jaxlib import _jax, xla_client

from rematc.ir.values import Array
from rematc.lowering.jax_internals.settings import initialize_kernels


def run_stablehlo(text: str, arguments: Sequence[Array]) -> list[Array]:
    """The results of the module's function `main`."""
    if "@lapack_" in text:
        initialize_kernels()
    (device, *_) = jax.local_devices(backend="cpu")
    executable = device.client.compile_and_load(text, _jax.DeviceList((device,)), xla_client.CompileOptions())
    with jax.enable_x64(True):
        placed = [jax.device_put(array, device) for array in arguments]
    shards = executable.execute_sharded(placed).disassemble_into_single_device_arrays()
    return [np.asarray(per_device[0]) for per_device in shards]
