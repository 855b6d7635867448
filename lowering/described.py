"""Devices by name: those that are here, and those that XLA compiles for though they are not.

A name is a platform's, whose first device here it is (`cpu`, `cuda`, `tpu`), or that of a device which need not be here
(`h100`, `v5e`), or of many of these: `h100:8` is eight in a host, `h100:2x8` two hosts of eight, `v5e:4x4` sixteen
chips in a torus. What XLA's compilers want to know of these, and where the compilers come from, stands here alone.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rematc.ir.errors import CompileError
from rematc.ir.spelling import suggestion
from rematc.lowering.jax_internals.plugins import gpu_devices, leave_out_absent, tpu_devices
from rematc.passes.planning.device import A100, B200, H100, H200, V4, V5E, V5P, V6E, Device

#: Names of platforms, whose devices are here or nowhere.
PLATFORMS = ("cpu", "cuda", "gpu", "rocm", "tpu")
_NAME = re.compile(r"(?P<model>[a-z]\w*)(?::(?P<shape>\d+(?:x\d+){0,2}))?", re.ASCII)


class Model(Protocol):
    """A kind of device that XLA compiles for without one."""

    @property
    def device(self) -> Device:
        """Its rates and memory."""

    @property
    def extra(self) -> str:
        """The extra of this package that brings the compiler."""

    @property
    def example(self) -> str:
        """How many of them are written."""

    def devices(self, shape: tuple[int, ...]) -> list[Any]:
        """JAX's devices to compile for, in this shape; () is one.

        Raises NotImplementedError where the compiler is not installed, CompileError and RuntimeError for a shape that
        they have not.
        """


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of NVIDIA's, as XLA describes it (xla/backends/gpu/target_config/specs).

    Attributes:
        device: its rates and memory.
        description: what JAX calls such a device.
        capability: the major version of what it computes.
        cores: streaming multiprocessors.
        units: for f32, of each core.
        gigahertz: of the clock.
        cache: bytes of the L2 cache.
        shared: bytes of memory that the threads of a core share.
    """

    device: Device
    description: str
    capability: int
    cores: int
    units: int
    gigahertz: float
    cache: int
    shared: int

    extra = "cuda"

    @property
    def example(self) -> str:
        return f"{self.device.name}:8"

    def devices(self, shape: tuple[int, ...]) -> list[Any]:
        if len(shape) > 2:
            raise CompileError("GPUs are so many in a host, or hosts x GPUs of each")
        hosts, each = (1, *shape, *[1] * (1 - len(shape)))[-2:]
        name, topology = self.device.name, f"{hosts}x1x{each}"
        return gpu_devices(name, topology=topology, target_config=self._config())

    def _config(self) -> str:
        """XLA's GpuTargetConfigProto, as text."""
        # From Hopper on XLA compiles for the architecture itself (sm_90a), whose code runs on no later one.
        accelerated = "feature_extension: ACCELERATED_FEATURES" if self.capability >= 9 else ""
        return f"""
            gpu_device_info {{
              threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
              core_count: {self.cores} fpus_per_core: {self.units} clock_rate_ghz: {self.gigahertz}
              block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
              registers_per_core_limit: 65536 registers_per_block_limit: 65536
              shared_memory_per_block: 49152 shared_memory_per_block_optin: {self.shared - 1024}
              shared_memory_per_core: {self.shared} l2_cache_size: {self.cache}
              memory_bandwidth: {round(self.device.bandwidth * 1e9)} device_memory_size: {self.device.memory}
              cuda_compute_capability {{ major: {self.capability} {accelerated} }}
            }}
            platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }}
            device_description_str: "{self.description}"
        """


@dataclass(frozen=True, slots=True)
class Tpu:
    """A TPU.

    Attributes:
        device: its rates and memory.
        dimensions: of the torus that its chips form.
        options: of libtpu's for a description.
    """

    device: Device
    dimensions: int
    options: Mapping[str, str] = field(default_factory=dict)

    extra = "tpu"

    @property
    def example(self) -> str:
        return f"{self.device.name}:{'x'.join(['4', '4', '4'][: self.dimensions])}"

    def devices(self, shape: tuple[int, ...]) -> list[Any]:
        if shape and len(shape) != self.dimensions:
            raise CompileError(f"chips of {self.device.name} form a torus of {self.dimensions} dimensions")
        # One chip is the first of a host's: libtpu before 0.0.50 describes whole hosts alone.
        sides = "x".join(map(str, shape or (2, 2, 1)[: self.dimensions]))
        for name, value in _LIBTPU.items():
            os.environ.setdefault(name, value)
        found = tpu_devices(f"{self.device.name}:{sides}", **self.options)
        return found if shape else found[:1]


#: Without these libtpu looks for a machine around it, and for itself in other processes.
_LIBTPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_MIB = 2**20
#: What NVIDIA has published, as the driver reports it.
_GPUS = (
    Gpu(A100, "NVIDIA A100-SXM4-80GB", 8, 108, 64, 1.41, 40 * _MIB, 167_936),
    Gpu(H100, "NVIDIA H100 80GB HBM3", 9, 132, 128, 1.98, 50 * _MIB, 233_472),
    Gpu(H200, "NVIDIA H200", 9, 132, 128, 1.98, 50 * _MIB, 233_472),
    Gpu(B200, "NVIDIA B200", 10, 148, 128, 1.965, 132_644_864, 233_472),
)
#: A chip of v4 is one device of two cores, as JAX has it where there are some.
_TPUS = (Tpu(V4, 3, {"chip_config_name": "megacore"}), Tpu(V5E, 2), Tpu(V5P, 3), Tpu(V6E, 2))
MODELS: Mapping[str, Model] = {model.device.name: model for model in (*_GPUS, *_TPUS)}


def is_described(name: str) -> bool:
    """Whether a name is that of devices that need not be here. Raises CompileError for what names no device."""
    return _parsed(name) is not None


def _parsed(name: str) -> tuple[Model, tuple[int, ...]] | None:
    """The model and the shape; None for a platform."""
    match = _NAME.fullmatch(name)
    if match is not None and match["model"] in MODELS:
        shape = tuple([int(side) for side in (match["shape"] or "").split("x") if side])
        if all(shape):
            return MODELS[match["model"]], shape
    if name in PLATFORMS:
        return None
    hint = suggestion(name.partition(":")[0], [*MODELS, *PLATFORMS]) if match is None or not match["shape"] else ""
    raise CompileError(
        f"'{name}' is no target; devices that need not be here are {', '.join(MODELS)}, and many of one, as h100:8 and "
        f"v5e:4x4; those that are here go by their platform: {', '.join(PLATFORMS)}{hint}"
    )


@functools.cache
def described_devices(name: str) -> tuple[Any, ...]:
    """JAX's devices for a name that `is_described`: always the same ones. Programs are compiled for them, and not run.

    Raises:
        CompileError: for what is no such name, where the compiler is not installed, and for devices that cannot be put
            together so.
    """
    parsed = _parsed(name)
    if parsed is None:
        raise CompileError(
            f"'{name}' is a platform, whose devices are here or nowhere; name one of {', '.join(MODELS)}"
        )
    model, shape = parsed
    leave_out_absent()
    try:
        found = model.devices(shape)
    except NotImplementedError:
        raise CompileError(
            f"XLA's compiler for '{name}' is not installed; it needs no device: pip install 'rematc[{model.extra}]'"
        ) from None
    except (CompileError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise CompileError(f"there is no '{name}': {reason}; write {model.example} or such") from error
    assert len(found) == math.prod(shape), "as many as were asked for"
    return tuple(found)
