"""Policies of `jax.checkpoint`, and recomputation that its barrier does not keep."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax._src.ad_checkpoint import _remat_lowering, remat_p
from jax._src.core import trace_ctx
from jax._src.interpreters.ad import LinearizeTrace
from jax._src.interpreters.partial_eval import Offloadable
from jax.experimental.scheduling_groups import xla_metadata_call
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import mlir

from rematc.lowering.jax_internals.jaxprs import closed
from rematc.lowering.jax_internals.settings import is_jaxlib_before


def recompute_apart(primitive: Any, *avals: Any, **params: Any) -> bool:
    """A policy of `jax.checkpoint`'s that saves nothing, for what is linear already.

    Where XLA drops barriers, what is recomputed under it becomes a function that XLA must not inline.
    """
    return False


def _lower_checkpoint(ctx: mlir.LoweringRuleContext, *operands: Any, **params: Any) -> Sequence[Any]:
    """JAX's own lowering of `jax.checkpoint`; behind its barrier a call, under `recompute_apart`."""
    jaxpr = params["jaxpr"]
    is_kept = params["differentiated"] and params["prevent_cse"] is True and not jaxpr.effects
    if params["policy"] is not recompute_apart or not is_kept:
        usual: Sequence[Any] = _remat_lowering(ctx, *operands, **params)
        return usual
    # JAX leaves both functions without annotations.
    barrier: Any = jax.lax.optimization_barrier
    recomputed: Any = xla_metadata_call(jaxpr_as_fun(closed(jaxpr)), inlineable="false")  # type: ignore[no-untyped-call]
    apart = mlir.lower_fun(lambda *given: recomputed(*barrier(given)), multiple_results=True)
    results: Sequence[Any] = apart(ctx, *operands)
    return results


@functools.cache
def policy_of_recomputation() -> Any:
    """`recompute_apart`, known to JAX's lowering of `jax.checkpoint` from the first time that it is asked for.

    Before jaxlib 0.12 that lowering is replaced on the CPU, for this process: of all other policies it stays JAX's.
    """
    if is_jaxlib_before(0, 12):
        mlir.register_lowering(remat_p, _lower_checkpoint, platform="cpu")
    return recompute_apart


def is_first_region() -> bool:
    """Whether JAX is differentiating the function that runs now, backwards, and has met no `jax.checkpoint` in it yet.

    Not while it traces a part of that function, such as a loop's step or what `jax.jit` is on.
    """
    trace = trace_ctx.trace
    if not isinstance(trace, LinearizeTrace):
        return False
    tangents: Any = trace.tangent_trace
    return not any(eqn.primitive is remat_p for eqn in tangents.frame.get_eqns())


def offloadable(src: str, dst: str) -> Any:
    """What a policy of `jax.checkpoint`'s answers for a value that waits in another memory."""
    return Offloadable(src, dst)
