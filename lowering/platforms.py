"""What is particular to platforms and to versions of XLA."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rematc.lowering.jax_internals.settings import is_jaxlib_before
from rematc.lowering.program import Program

CompilerOptions = Mapping[str, "str | bool | int"]

_DISABLED_PASSES = "xla_disable_hlo_passes"
#: What removes barriers, and what has small loops compiled by an emitter that knows no barriers and dies of them.
_NO_BARRIERS = ("cse_barrier_expander", "small-while-loop-hoisting")
#: How XLA:CPU orders kernels: jaxlib 0.10.0, 0.10.2 and 0.12.0.1 know this option.
_SCHEDULER, _DEPTH_FIRST = "xla_cpu_scheduler_type", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"


def barriers_hold(platform: str) -> bool:
    """Whether XLA keeps optimization barriers until it has scheduled, without options."""
    return platform != "cpu" or not is_jaxlib_before(0, 12)


def program_options(
    program: Program, platform: str, options: CompilerOptions | None = None
) -> dict[str, str | bool | int]:
    """`options` with those that a program is compiled with on a platform.

    One with optimization barriers needs them kept. One that is expected to hold less when it runs depth first
    (`rematc.lowering.xla_cpu`) is compiled with XLA:CPU's other scheduler: the usual one runs first what is ready
    first. What the user chose, in `options` or in the environment's `XLA_FLAGS`, stays.
    """
    if program.module.barriers:
        return barrier_options(platform, options)
    return depth_first_options(platform, options) if program.is_depth_first else dict(options or {})


def depth_first_options(platform: str, options: CompilerOptions | None = None) -> dict[str, str | bool | int]:
    """`options` with what has XLA:CPU run kernels depth first, unless they or `XLA_FLAGS` choose another order."""
    merged = dict(options or {})
    if platform == "cpu" and _SCHEDULER not in os.environ.get("XLA_FLAGS", ""):
        merged.setdefault(_SCHEDULER, _DEPTH_FIRST)
    return merged


def barrier_options(platform: str, options: CompilerOptions | None = None) -> dict[str, str | bool | int]:
    """`options` with what makes XLA keep optimization barriers until it has scheduled.

    XLA:CPU before jaxlib 0.12 deletes them first (its pass `cse_barrier_expander`), and with them all that
    recomputation saves. Kept, they must not meet its way of compiling loops over few bytes.
    """
    merged = dict(options or {})
    if not barriers_hold(platform):
        disabled = [name for name in str(merged.get(_DISABLED_PASSES, "")).split(",") if name]
        merged[_DISABLED_PASSES] = ",".join(dict.fromkeys([*disabled, *_NO_BARRIERS]))
    return merged
