"""Who compiles: a JAX function of ours by itself, or a program of the user's that it is a part of.

Barriers hold on every platform but the CPU before jaxlib 0.12, where XLA must be told by an option, which JAX takes
from the outermost `jax.jit` alone. Inside of others' programs a function that XLA must not inline holds there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from rematc.lowering.jax_internals.settings import is_trace_open
from rematc.lowering.target import Target
from rematc.lowering.targeting import targeting

_config: Any = jax.config  # which does not say what it has


def is_outermost() -> bool:
    """Whether nothing is being traced, so that a call compiles a program of its own."""
    return not is_trace_open() and not _config.jax_disable_jit


def compiled(
    function: Callable[..., Any], target: Target, *, is_depth_first: bool = False, **options: Any
) -> Callable[..., Any]:
    """`jax.jit` of a function for a target, with the options that make barriers hold.

    Args:
        function: a JAX function.
        target: for what.
        is_depth_first: whether XLA on the CPU is to run its kernels depth first.
        options: further arguments of `jax.jit`.
    """
    given = options.pop("compiler_options", None)
    own = replace(target, has_options=True)

    @functools.wraps(function, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        with targeting(own):
            return function(*args, **kwargs)

    chosen = own.compile_options(given, has_barriers=True, is_depth_first=is_depth_first)
    jitted: Callable[..., Any] = jax.jit(traced, compiler_options=chosen or None, **options)
    return jitted
