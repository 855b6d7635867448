"""Import of calls, copied where they are, and of the choice of a platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from rematc.compiler.frontends.jax.block import NOT_INLINED, Block, imports
from rematc.compiler.frontends.jax.custom_derivatives import differentiated_inputs, inexact_outputs, source_of
from rematc.compiler.frontends.jax.placements import constrained
from rematc.compiler.tracing.derivative_order import derivative_order
from rematc.ir.host_functions import FrontendFunction
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.values import Value
from rematc.lowering import graph_call
from rematc.lowering.jax_export import whole
from rematc.lowering.jax_internals import platform
from rematc.lowering.jax_internals.jaxprs import closed
from rematc.lowering.jax_internals.locations import is_library_function

_PARTITIONED = "JAX has no derivative of a function with custom_partitioning; give it one with jax.custom_vjp"


@imports("jit", "pjit", keys=True)
def jit(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations.

    JAX traces a function of its own once and remembers it, so the lines in it are those of its first caller. What is
    called from the user's code has the line of this call.
    """
    params = eqn.params
    jaxpr = params["jaxpr"]
    if any(layout is not None for layout in (*params["in_layouts"], *params["out_layouts"])):
        block.fail(eqn, "says the layouts of arguments or results, which has no op; leave them to jax.jit around all")
    loc = block.location(eqn) if is_library_function(jaxpr.jaxpr) else None
    operands = constrained(block, params["in_shardings"], block.operands(eqn))
    return constrained(block, params["out_shardings"], block.inline(jaxpr, operands, loc, call=eqn))


@imports("closed_call", "core_call", "call", "core_closed_call", "eval_jaxpr", keys=True)
def call(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations."""
    return block.inline(closed(eqn.params["call_jaxpr"]), block.operands(eqn), call=eqn)


@imports("composite", "xla_metadata_call", keys=True)
def composite(block: Block, eqn: Any) -> Sequence[Value]:
    """The equations of what it is made of."""
    jaxpr = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]  # a composite's, since jax 0.12
    if eqn.primitive.name == "xla_metadata_call":
        told = dict(eqn.params.items())
        del told["jaxpr"]
        # Since jax 0.12 it stands in a parameter, beside what derivatives are told: the same.
        told = dict(told["xla_metadata"]) if told.pop("ad_metadata", None) == "same" else told
        if told != NOT_INLINED:
            block.fail(eqn, f"tells XLA {told}, which has no op; leave it out")
    return block.inline(closed(jaxpr), block.operands(eqn), call=eqn)


@imports("custom_vmap_call", keys=True)
def call_with_rules(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations: its rules for batches say the same in another way."""
    return block.inline(closed(eqn.params["call"]), block.operands(eqn), call=eqn)


@imports("custom_partitioning", keys=True)
def custom_partitioning(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations; where nothing is differentiated, JAX's own equation with them beside it.

    JAX has no derivative of it: it stands in the rules of a function that has one.
    """
    jaxpr = closed(eqn.params["call"])
    if derivative_order() and any(differentiated_inputs(block, eqn)):
        return block.inline(jaxpr, block.operands(eqn), call=eqn)
    body = block.region(jaxpr, eqn.primitive.name)
    operands = (*body.captured, *block.operands(eqn))
    source, flags = source_of(eqn, len(body.captured)), (False,) * len(operands)
    if source is not None:
        source = FrontendFunction(_batched_by_parts(source, jaxpr_as_fun(jaxpr), len(body.captured)))
    op = CustomJvp(body.graph, None, flags, inexact_outputs(eqn), reason=_PARTITIONED, source=source)
    return block.b.emit(op, *operands)


def _batched_by_parts(
    source: Callable[..., Sequence[Any]], function: Callable[..., Sequence[Any]], captured: int
) -> Callable[..., Sequence[Any]]:
    """JAX's equation; in a batch the function alone, since JAX has no rule for batches of it."""
    applied: Any = jax.custom_batching.custom_vmap(lambda *operands: list(source(*operands)))

    def of_batch(size: int, is_batched: Sequence[bool], *operands: Any) -> tuple[list[Any], list[bool]]:
        axes = tuple([0 if is_set else None for is_set in is_batched])
        results = jax.vmap(lambda *one: list(function(*one[captured:])), axes, axis_size=size)(*operands)
        return results, [True] * len(results)

    applied.def_vmap(of_batch)
    found: Callable[..., Sequence[Any]] = applied
    return found


@imports(graph_call.NAME, whole.NAME)
def rematc_graph(block: Block, eqn: Any) -> Sequence[Value]:
    """The equations of our own graph: a part of a function that came out of rematc and comes in again.

    It may have equations that are differentiated, and have no value: the tangents of a `custom_vjp`.
    """
    return block.b.inline(eqn.params["graph"], block.operands(eqn))


@imports(platform.NAME, keys=True)
def on_platform(block: Block, eqn: Any) -> Sequence[Value]:
    """The operands, in a program of which a part was chosen for the platform."""
    choice = eqn.params["choice"]
    choice.check(eqn.params["name"], [block.shared.target.platform])
    block.shared.choice = block.shared.choice or choice
    return block.operands(eqn)


@imports("platform_index")
def platform_index(block: Block, eqn: Any) -> Sequence[Value]:
    """A constant: which entry lists the target's platform, or else has no list."""
    platforms = eqn.params["platforms"]
    own = block.platform(eqn)
    default = None
    for index, listed in enumerate(platforms):
        if listed is not None and own in listed:
            return [block.b.constant(np.asarray(index, np.int32))]
        default = index if listed is None else default
    if default is None:
        block.fail(eqn, f"has no branch for platform '{own}', and no default: it has {platforms}")
    return [block.b.constant(np.asarray(default, np.int32))]
