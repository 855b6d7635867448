"""How JAX runs: 64-bit types, open traces, platforms, the version of jaxlib."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jaxlib.lapack
import numpy as np
from jax._src import config
from jax._src.core import trace_state_clean
from jax._src.lib import _jax  # type: ignore[attr-defined]  # JAX does not list it

from rematc.lowering.target import installed_jaxlib

# `jax.enable_x64` as a context manager costs 1.5 us a call, these two methods of it 0.1 us. They are what the context
# manager itself calls, and set the flag for this thread only.
swap_x64 = jax.enable_x64.swap_local
restore_x64 = jax.enable_x64.set_local
#: Whether the user runs JAX with 64-bit types, while a program of ours is traced: this thread's flag is set for that.
_users_x64: ContextVar[bool | None] = ContextVar("the_users_x64", default=None)


def is_x64_enabled() -> bool:
    """Whether the user runs JAX with 64-bit types: by JAX's configuration, or in a block of `jax.enable_x64`."""
    found = _users_x64.get()
    settings: Any = jax.config
    return bool(settings.jax_enable_x64) if found is None else found


def is_tracing_with_x64() -> bool:
    """Whether this thread's flag is ours, set while a program is traced."""
    return _users_x64.get() is not None


@contextmanager
def tracing_with_x64(users: bool | None) -> Iterator[None]:
    """Trace with this thread's flag set for us; `users` is what it was, None where JAX's configuration says it."""
    token = _users_x64.set(bool(jax.enable_x64.get_global()) if users is None else users)
    try:
        yield
    finally:
        _users_x64.reset(token)


def is_trace_open() -> bool:
    """Whether JAX is tracing in this thread; there is no public way to ask."""
    return not trace_state_clean()


def trace_context() -> object:
    """All of JAX's settings that change what is traced: 64-bit types, precision, meshes, names of axes."""
    context: object = config.trace_context()
    return context


def without_remat3() -> Any:
    """A context in which `jax.checkpoint` is the one that JAX has by default."""
    return config.remat3(False)


def is_jaxlib_before(*version: int) -> bool:
    """Whether the installed jaxlib is older than this version."""
    return installed_jaxlib()[: len(version)] < version


def platform_of_device(device: Any) -> str:
    """The platform of a device: cpu, cuda, rocm or tpu. `device.platform` calls two of them gpu."""
    platform: str = device.client._raw_platform
    return platform


def is_device_here(device: Any) -> bool:
    """Whether programs can run on a device: there are such that XLA only compiles for."""
    return not isinstance(device.client, _jax.CompileOnlyPyClient)


@functools.cache
def initialize_kernels() -> None:
    """Load the LAPACK that jaxlib's kernels on the CPU call, SciPy's. A program with kernels crashes without."""
    jaxlib.lapack.prepare_lapack_call("getrf_ffi", np.float64)  # type: ignore[no-untyped-call]  # left unannotated
