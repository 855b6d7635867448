"""Devices that are not there: what XLA's own compilers for an H100 and a v5e make of a program, asked on the CPU.

The compilers come in wheels that need no device: libtpu, and jax-cuda12-plugin and jax-cuda12-pjrt of jaxlib's version.
"""

from __future__ import annotations

import os
from typing import Any

import jax
from jax.experimental import topologies

TARGETS = ("cpu", "h100", "v5e")
#: XLA's GpuTargetConfigProto of an H100 SXM.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84978434048
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 } device_description_str: "NVIDIA H100 80GB HBM3"
"""
#: Without these libtpu looks for a machine around it, and for itself in other processes.
_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def device_of(target: str) -> Any:
    """The device of one of `TARGETS`, to compile for and never to run on. The process's own backend is the CPU."""
    jax.config.update("jax_platforms", "cpu")
    if target == "cpu":
        return jax.devices()[0]
    if target == "h100":
        described = topologies.get_topology_desc("h100", "cuda", topology="1x1x1", target_config=H100)
    else:
        os.environ.update(_TPU)
        described = topologies.get_topology_desc("v5e:2x2x1", "tpu")
    return described.devices[0]
