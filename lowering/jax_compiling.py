"""Who compiles: a JAX function of ours by itself, or a program of the user's that it is a part of.

Barriers hold on every platform but the CPU before jaxlib 0.12, where XLA must be told by an option, which JAX takes
from the outermost `jax.jit` alone. Inside of others' programs a function that XLA must not inline holds there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

from rematc.lowering.jax_internals.settings import default_platform, is_trace_open
from rematc.lowering.platforms import barrier_options, barriers_hold, depth_first_options

_config: Any = jax.config  # which does not say what it has
_has_options: ContextVar[bool] = ContextVar("the_program_is_compiled_with_our_options", default=False)


def is_outermost() -> bool:
    """Whether nothing is being traced, so that a call compiles a program of its own."""
    return not is_trace_open() and not _config.jax_disable_jit


def barrier_strategy() -> str:
    """How to keep recomputation where it is, in what is being traced: see `rematc.passes.barriers`."""
    if _has_options.get() or barriers_hold(default_platform()):
        return "optimization_barrier"
    return "call"


@contextmanager
def with_options() -> Iterator[None]:
    """Trace a program that is compiled with the options that make barriers hold."""
    token = _has_options.set(True)
    try:
        yield
    finally:
        _has_options.reset(token)


def compiled(function: Callable[..., Any], *, is_depth_first: bool = False, **options: Any) -> Callable[..., Any]:
    """`jax.jit` of a function, with the options that make barriers hold.

    Args:
        function: a JAX function.
        is_depth_first: whether XLA on the CPU is to run its kernels depth first.
        options: further arguments of `jax.jit`.
    """
    given = options.pop("compiler_options", None)

    @functools.wraps(function, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        with with_options():
            return function(*args, **kwargs)

    platform = default_platform()
    chosen = barrier_options(platform, given)
    if is_depth_first:
        chosen = depth_first_options(platform, chosen)
    jitted: Callable[..., Any] = jax.jit(traced, compiler_options=chosen or None, **options)
    return jitted
