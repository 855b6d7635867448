"""Which target a program is for: the user's word, then where its arguments lie, then where JAX would run it.

Entries of the API choose it once, and what they call asks `current_target`. Nothing else asks JAX for its default.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax
import jax.extend.backend

from rematc.ir.errors import CompileError
from rematc.lowering.described import MODELS, described_devices, is_described
from rematc.lowering.jax_internals.settings import is_device_here, platform_of_device
from rematc.lowering.target import Target
from rematc.passes.planning.device import device_of

_target: ContextVar[Target | None] = ContextVar("the_target", default=None)


@contextmanager
def targeting(target: Target) -> Iterator[None]:
    """Trace, import and lower for this target."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def current_target(arguments: Any = ()) -> Target:
    """The target of the program that is being made; outside of all, that of a call with these arguments.

    They are looked at only where it depends on them. In a program of somebody else's, which JAX traces, nobody knows
    where it will run: it is where JAX would run it.
    """
    found = _target.get() or _only_target()
    return target_of(arguments) if found is None else found


def is_target_open() -> bool:
    """Whether functions may be needed for several targets: there are several platforms, or text is made for another."""
    only, chosen = _only_target(), _target.get()
    return only is None or (chosen is not None and chosen.platform != only.platform)


@functools.cache
def _only_target() -> Target | None:
    """One device, where all are of one platform; None where there are several."""
    platforms: Any = jax.extend.backend.backends()
    return None if len(platforms) > 1 else _of_device(jax.devices()[0], 1)


def target_of(arguments: Any, name: str | None = None) -> Target:
    """The target of a program.

    Args:
        arguments: arrays, or `jax.ShapeDtypeStruct`s with shardings, in any containers. Those that are committed to
            devices say where it runs; tracers, NumPy's arrays and others do not.
        name: what the user asks for: a platform (cpu, cuda, rocm, gpu or tpu), of which there need be no device as long
            as only text is wanted, or devices that need not be here (`rematc.lowering.described`).

    Raises:
        CompileError: for a name that there is not, where XLA's compiler for it is not installed, and for arguments on
            other devices that are not here.
    """
    devices = _committed_devices(jax.tree_util.tree_leaves(arguments))
    count = max(len(devices), 1)
    if name is None:
        return _of_device(devices[0] if devices else default_device(), count)
    if is_described(name):
        return _of_described(name, devices)
    try:
        return _of_device(device_of_platform(name), count)
    except CompileError:
        return replace(Target.of(name), devices=count)


def _of_described(name: str, devices: list[Any]) -> Target:
    """Devices that are not here, for arguments that lie on some of them, or on devices that are here."""
    own = described_devices(name)
    others = [device for device in devices if not (is_device_here(device) or device in own)]
    if others:
        raise CompileError(
            f"arguments lie on devices of kind '{others[0].device_kind}' that are not of the target '{name}'; make "
            f"their shardings of rematc.targets.devices('{name}'), or leave out the target"
        )
    count = max(sum(device in own for device in devices), 1)
    return replace(_of_device(own[0], count), described=name)


def _committed_devices(leaves: Iterable[Any]) -> list[Any]:
    """The devices that arguments are committed to, in order: those of the one that is spread over the most."""
    found: set[Any] = set()
    for leaf in leaves:
        sharding = getattr(leaf, "sharding", None)
        if isinstance(leaf, jax.core.Tracer) or not isinstance(sharding, jax.sharding.Sharding):
            continue
        is_abstract = isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh)
        if is_abstract or not getattr(leaf, "committed", True):
            continue
        if len(sharding.device_set) > len(found):
            found = sharding.device_set
    return sorted(found, key=lambda device: int(device.id))


def default_device() -> Any:
    """Where JAX puts arrays that are committed to no device: `jax.default_device`, else its first device."""
    settings: Any = jax.config  # which does not say what it has
    chosen = settings.jax_default_device
    return chosen if isinstance(chosen, jax.Device) else jax.devices(chosen)[0]


def device_of_platform(platform: str) -> Any:
    """The first device of a platform. Raises CompileError where there is none."""
    return devices_of_platform(platform)[0]


def devices_of_platform(platform: str) -> tuple[Any, ...]:
    """The devices of a platform that are here. Raises CompileError where there is none."""
    try:
        return tuple(jax.devices(platform))
    except RuntimeError:
        found = ", ".join(sorted({device.platform for device in jax.devices()} | {"cpu"}))
        raise CompileError(
            f"no platform '{platform}' here (found: {found}); install jaxlib for it, or pass one of those, or a target "
            f"that need not be here: {', '.join(MODELS)}"
        ) from None


def free_bytes(target: Target) -> int:
    """Bytes of memory that the first device of a target has free; all that it has where it is not here.

    Raises CompileError where there is no such device, or it does not say.
    """
    if not target.is_here:
        memory = device_of(target.platform, target.device_kind).memory
        if memory is None:
            raise CompileError(f"what memory '{target.device_kind}' has is not known; write bytes: '2GiB'")
        return memory
    stats = device_of_platform(target.platform).memory_stats() or {}
    if "bytes_limit" not in stats:
        raise CompileError(
            f"a device of the platform '{target.platform}' does not say what memory it has; write bytes: '2GiB', or "
            "name a target"
        )
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


@functools.lru_cache(maxsize=64)
def _of_device(device: Any, devices: int) -> Target:
    # XLA:CPU names a `pinned_host` memory too, and ignores what is placed there: nothing would be offloaded. A GPU that
    # is described and not there, for programs compiled ahead of time, lists no memory at all, not even its own.
    platform = platform_of_device(device)
    memories = [memory.kind for memory in device.addressable_memories()]
    has_host = platform != "cpu" and (not memories or "pinned_host" in memories)
    kind, is_here = device.device_kind, is_device_here(device)
    return Target(platform, device_kind=kind, devices=devices, has_host_memory=has_host, is_here=is_here)
