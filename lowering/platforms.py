"""What is particular to platforms and to versions of XLA."""

from __future__ import annotations

from collections.abc import Mapping

from rematc.lowering import jax_adapter

CompilerOptions = Mapping[str, "str | bool | int"]

_DISABLED_PASSES = "xla_disable_hlo_passes"
#: What removes barriers, and what has small loops compiled by an emitter that knows no barriers and dies of them.
_NO_BARRIERS = ("cse_barrier_expander", "small-while-loop-hoisting")


def barriers_hold(platform: str) -> bool:
    """Whether XLA keeps optimization barriers until it has scheduled, without options."""
    return platform != "cpu" or not jax_adapter.is_jaxlib_before(0, 12)


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
