"""Devices by name, here or not: what `rematc.targets` shows of them."""

from __future__ import annotations

from typing import Any

import jax

from rematc.lowering.described import MODELS, described_devices, is_described
from rematc.lowering.targeting import devices_of_platform, free_bytes, target_of


def names() -> tuple[str, ...]:
    """The devices that programs are compiled for though they are not here; `h100:8`, `v5e:4x4` are many of one."""
    return tuple(MODELS)


def devices(name: str) -> list[jax.Device]:
    """JAX's devices of a target, for a `Mesh` or a `SingleDeviceSharding`.

    Args:
        name: one of `names()`, which need not be here; many of one: `h100:8` in one host, `h100:2x8` in two, `v5e:4x4`
            in a torus; or a platform (`cpu`, `cuda`, `tpu`), whose devices are those that are here.

    Raises:
        CompileError: for what is no target, where its compiler is not installed, and for a platform without devices.
    """
    found: tuple[Any, ...] = described_devices(name) if is_described(name) else devices_of_platform(name)
    return list(found)


def memory(name: str) -> int:
    """The bytes that a program may have on one device: what `budget="device"` begins with.

    Of devices that are not here all that they have, of one that is what it has free. Raises CompileError as `devices`
    does, and where a device does not say.
    """
    return free_bytes(target_of((), name))
