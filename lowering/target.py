"""What a program is compiled for, and what is particular to it: platforms, and versions of XLA on them.

A target is chosen once, where a user's call comes in (`rematc.lowering.targeting`); import, passes, writer and compile
options are handed it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from rematc.passes.planning.device import device_of

CompilerOptions = Mapping[str, "str | bool | int"]

_DISABLED_PASSES = "xla_disable_hlo_passes"
#: What removes barriers, and what has small loops compiled by an emitter that knows no barriers and dies of them.
_NO_BARRIERS = ("cse_barrier_expander", "small-while-loop-hoisting")
#: How XLA:CPU orders kernels: jaxlib 0.10.0, 0.10.2 and 0.12.0.1 know this option.
_SCHEDULER, _DEPTH_FIRST = "xla_cpu_scheduler_type", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"

#: How the names of jaxlib's kernels for a platform begin: LAPACK's, cuSOLVER's and jaxlib's own, hipSOLVER's.
_KERNELS = {"cpu": "lapack", "cuda": "cu", "rocm": "hip"}
#: The platform by what stands before the first underscore of a kernel's name.
_PLATFORMS = {f"{prefix}{library}": name for name, prefix in _KERNELS.items() for library in ("", "solver")}


@functools.cache
def installed_jaxlib() -> tuple[int, ...]:
    """The version of the jaxlib that compiles."""
    from jaxlib.version import __version__  # noqa: PLC0415  # jaxlib is imported where it is used

    return tuple([int(part) for part in __version__.split(".") if part.isdigit()])


def platform_of_kernel(name: str) -> str | None:
    """The platform that a function of jaxlib's is for, by its name; None for functions of others."""
    return _PLATFORMS.get(name.partition("_")[0])


@dataclass(frozen=True, slots=True)
class Target:
    """What a program is compiled for.

    Attributes:
        platform: cpu, cuda, rocm or tpu.
        jaxlib: the version of the jaxlib that compiles.
        device_kind: what the devices are, in their maker's words; "" where there are none and only text is wanted.
        devices: over how many of them the arguments are spread, as far as that is known.
        has_host_memory: whether values can wait in a memory of the host's that is not the device's own.
        has_options: whether what JAX traces is compiled with our options; in somebody else's program there are none.
        is_here: whether it can be run on: XLA compiles for devices, too, that are only described.
        described: by which name the user asked for devices that are not here; "" where the arguments say which.
    """

    platform: str
    jaxlib: tuple[int, ...] = field(default_factory=installed_jaxlib)
    device_kind: str = ""
    devices: int = 1
    has_host_memory: bool = False
    has_options: bool = False
    is_here: bool = True
    described: str = ""

    @staticmethod
    def of(platform: str) -> Target:
        """A platform by its name, whether there is a device or not; gpu is cuda."""
        name = "cuda" if platform == "gpu" else platform
        return Target(name, has_host_memory=name != "cpu")

    @property
    def name(self) -> str:
        """What users call it: its platform, or what is described."""
        return self.platform if self.is_here else self.described or device_of(self.platform, self.device_kind).name

    @property
    def barriers_hold(self) -> bool:
        """Whether XLA keeps optimization barriers until it has scheduled, with the options that we give it."""
        return self.has_options or not self._drops_barriers

    @property
    def _drops_barriers(self) -> bool:
        """Whether XLA deletes barriers before it schedules, unless it is told not to."""
        return self.platform == "cpu" and self.jaxlib < (0, 12)

    @property
    def waits_for_offloads(self) -> bool:
        """Whether barriers hold what is in the host's memory: XLA for TPUs copies that back in front of them."""
        return self.has_host_memory and self.platform != "tpu"

    @property
    def shares_behind_barriers(self) -> bool:
        """Whether XLA:CPU writes results over what barriers give on: it has none any more when it assigns buffers."""
        return self.jaxlib >= (0, 12)

    @property
    def moves_invariants(self) -> bool:
        """Whether XLA computes what is the same in all steps of a loop before it (`rematc.passes.hoist`)."""
        return self.platform in ("cpu", "tpu")

    @property
    def copies_rows(self) -> bool:
        """Whether XLA:CPU concatenates rows of 64 bytes or more by copying them, not only those of 128 elements."""
        return self.jaxlib >= (0, 12)

    @property
    def library_has_trigonometry(self) -> bool:
        """Whether the library that XLA:CPU leaves reductions to computes sines, cosines and tangents with them."""
        return self.jaxlib >= (0, 12)

    @property
    def library_repeats(self) -> bool:
        """Whether the library that XLA:CPU leaves reductions to gives back what is repeated of a result, in full."""
        return self.jaxlib < (0, 12)

    @property
    def repeats_heavy_work(self) -> bool:
        """Whether XLA computes what takes long, as a tanh, again in each kernel that reads it, rather than write it.

        On GPUs it weighs time, and bytes take longer there; its modules for TPUs have it so, too. On CPUs it does not.
        """
        return self.platform != "cpu"

    @property
    def keeps_bfloat16(self) -> bool:
        """Whether XLA:CPU moves bfloat16 numbers as they are, and multiplies most matrices so: not in 32 bits."""
        return self.jaxlib >= (0, 12)

    @property
    def barrier_strategy(self) -> str:
        """How to keep recomputation where it is: see `rematc.passes.barriers`."""
        return "optimization_barrier" if self.barriers_hold else "call"

    @property
    def kernels(self) -> str:
        """How the names of jaxlib's kernels begin here: lapack, cu or hip; "" where there are none."""
        return _KERNELS.get(self.platform, "")

    def compile_options(
        self, options: CompilerOptions | None = None, *, has_barriers: bool = False, is_depth_first: bool = False
    ) -> dict[str, str | bool | int]:
        """`options` with those that a program is compiled with; what the user chose, in them or in `XLA_FLAGS`, stays.

        Args:
            options: the user's.
            has_barriers: whether it has optimization barriers. XLA:CPU before jaxlib 0.12 deletes them before it
                schedules (its pass `cse_barrier_expander`), and with them all that recomputation saves. Kept, they must
                not meet its way of compiling loops over few bytes.
            is_depth_first: whether XLA:CPU is to run kernels depth first, by its other scheduler: the usual one runs
                first what is ready first.
        """
        merged = dict(options or {})
        if has_barriers and self._drops_barriers:
            disabled = [name for name in str(merged.get(_DISABLED_PASSES, "")).split(",") if name]
            merged[_DISABLED_PASSES] = ",".join(dict.fromkeys([*disabled, *_NO_BARRIERS]))
        if is_depth_first and self.platform == "cpu" and _SCHEDULER not in os.environ.get("XLA_FLAGS", ""):
            merged.setdefault(_SCHEDULER, _DEPTH_FIRST)
        return merged
