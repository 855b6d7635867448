"""JAX's plugins for GPUs and TPUs: whether they are installed, have a device here, and compile without one."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
from typing import Any

import jax
from jax._src import hardware_utils
from jax._src.cloud_tpu_init import get_tpu_library_path
from jax._src.xla_bridge import backends_are_initialized
from jax.experimental import topologies

#: NVIDIA's plugins, by the modules that JAX finds them as.
_CUDA = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
#: With it the plugin does not ask for libraries that only running takes.
_NO_LIBRARIES = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"


def leave_out_absent() -> None:
    """Have JAX start no plugin whose device this machine lacks: one that fails to start prints why, at length.

    Nothing is changed where the user says which platforms JAX is to start (`JAX_PLATFORMS`), where it has started them,
    where there is a GPU or a TPU, and where there are plugins besides NVIDIA's and libtpu, of which nothing is known.
    """
    settings: Any = jax.config  # which does not say what it has
    if settings.jax_platforms or backends_are_initialized():
        return
    plugins = _plugins()
    if not plugins and get_tpu_library_path() is None:
        return
    if plugins.issubset(_CUDA) and not _has_device():
        settings.update("jax_platforms", "cpu")


def _has_device() -> bool:
    """Whether there is an NVIDIA GPU or a TPU: JAX's own test before it warns that it has no plugin for one."""
    chips, _ = hardware_utils.num_available_tpu_chips_and_device_id()  # type: ignore[no-untyped-call]  # left unannotated
    return bool(chips) or hardware_utils.has_visible_nvidia_gpu()


def _plugins() -> set[str]:
    """The modules that JAX would start as plugins; libtpu is none of them."""
    found = {point.value for point in importlib.metadata.entry_points(group="jax_plugins")}
    try:
        package = importlib.import_module("jax_plugins")
    except ImportError:
        return found
    return found | {module.name for module in pkgutil.iter_modules(package.__path__, "jax_plugins.")}


def tpu_devices(topology: str, **options: str) -> list[Any]:
    """Chips to compile for, as libtpu describes them.

    Raises NotImplementedError where libtpu is not installed, and RuntimeError for what it does not know.
    """
    if get_tpu_library_path() is None:
        raise NotImplementedError
    return list(topologies.get_topology_desc(topology, "tpu", **options).devices)


def gpu_devices(name: str, **options: str) -> list[Any]:
    """GPUs of NVIDIA's to compile for.

    Raises NotImplementedError where JAX's plugin for them is not installed, and RuntimeError for what it does not know.
    """
    try:
        return list(topologies.get_topology_desc(name, "cuda", **options).devices)
    except NotImplementedError:
        # Where JAX has looked for a device already, and found none, the plugin has not said what it can do.
        if not _announce_cuda():
            raise
    return list(topologies.get_topology_desc(name, "cuda", **options).devices)


def _announce_cuda() -> bool:
    """Have NVIDIA's plugin tell JAX that it is there, whatever it lacks; False where it is not installed."""
    installed = next((name for name in _CUDA if name in _plugins()), None)
    if installed is None:
        return False
    previous = os.environ.get(_NO_LIBRARIES)
    os.environ[_NO_LIBRARIES] = "1"
    try:
        importlib.import_module(installed).initialize()
    finally:
        if previous is None:
            del os.environ[_NO_LIBRARIES]
        else:
            os.environ[_NO_LIBRARIES] = previous
    return True
