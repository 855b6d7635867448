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
from rematc.lowering.jax_internals.settings import platform_of_device
from rematc.lowering.target import Target

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


def target_of(arguments: Any, platform: str | None = None) -> Target:
    """The target of a program.

    Args:
        arguments: arrays, or `jax.ShapeDtypeStruct`s with shardings, in any containers. Those that are committed to
            devices say where it runs; tracers, NumPy's arrays and others do not.
        platform: what the user asks for: cpu, cuda, rocm, gpu or tpu. There need be no such device, as long as only
            text is wanted.
    """
    devices = _committed_devices(jax.tree_util.tree_leaves(arguments))
    count = max(len(devices), 1)
    if platform is None:
        return _of_device(devices[0] if devices else default_device(), count)
    try:
        return _of_device(device_of_platform(platform), count)
    except CompileError:
        return replace(Target.of(platform), devices=count)


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
    """The first device of a platform.

    Raises:
        CompileError: there is none.
    """
    try:
        return jax.devices(platform)[0]
    except RuntimeError:
        found = ", ".join(sorted({device.platform for device in jax.devices()} | {"cpu"}))
        raise CompileError(
            f"no platform '{platform}' here (found: {found}); install jaxlib for it, or pass one of those"
        ) from None


def free_bytes(platform: str) -> int:
    """Bytes of memory that the first device of a platform has free.

    Raises CompileError where there is no such device, or it does not say.
    """
    stats = device_of_platform(platform).memory_stats() or {}
    if "bytes_limit" not in stats:
        raise CompileError(
            f"a device of the platform '{platform}' does not say what memory it has; write bytes: '2GiB'"
        )
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


@functools.lru_cache(maxsize=64)
def _of_device(device: Any, devices: int) -> Target:
    # XLA:CPU names a `pinned_host` memory too, and ignores what is placed there: nothing would be offloaded. A GPU that
    # is described and not there, for programs compiled ahead of time, lists no memory at all, not even its own.
    platform = platform_of_device(device)
    memories = [memory.kind for memory in device.addressable_memories()]
    has_host = platform != "cpu" and (not memories or "pinned_host" in memories)
    return Target(platform, device_kind=device.device_kind, devices=devices, has_host_memory=has_host)
