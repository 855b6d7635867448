"""Jaxprs to graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.sharding import NamedSharding

from rematc.compiler.frontends.jax import (
    branches,
    calls,
    checkpoints,
    collectives,
    custom_derivatives,
    device_maps,
    effects,
    elementwise,
    fallback,
    indexing,
    keys,
    linear_algebra,
    loops,
    placements,
    products,
    reductions,
    shaping,
    solving,
)
from rematc.compiler.frontends.jax.block import Block, Shared
from rematc.compiler.frontends.jax.implied_placements import without_implied
from rematc.compiler.frontends.jax.policies import asked_around
from rematc.compiler.frontends.jax.values import type_of
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.builder import Builder
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.locations import Location
from rematc.lowering.jax_internals.shardings import explicit_sharding
from rematc.lowering.jax_internals.types import is_weak
from rematc.lowering.program import PlatformChoice

#: Importing a family enters its rules in `rematc.compiler.frontends.jax.block.RULES`.
FAMILIES = (
    branches,
    calls,
    checkpoints,
    collectives,
    custom_derivatives,
    device_maps,
    effects,
    elementwise,
    fallback,
    indexing,
    keys,
    linear_algebra,
    loops,
    placements,
    products,
    reductions,
    shaping,
    solving,
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A jaxpr as a graph.

    Attributes:
        graph: parameters are the jaxpr's inputs, then one for each large constant.
        constants: the arrays to pass for the last parameters, as JAX holds them.
        weak: one per result: whether JAX gives it a weak type.
        shardings: one per result: the one that its type says (axes of type Explicit), else None.
        fallbacks: the primitives that have no import rule, and the line where each was met first.
        counts: of each of these, how many equations there are.
        choice: what of it was taken for the current target's platform, and differs elsewhere.
    """

    graph: Graph
    constants: tuple[Any, ...]
    weak: tuple[bool, ...]
    shardings: tuple[NamedSharding | None, ...]
    fallbacks: dict[str, Location | None]
    counts: dict[str, int]
    choice: PlatformChoice | None


@collection_paused()
def graph_of_jaxpr(
    jaxpr: Any, name: str = "main", names: Sequence[str | None] | None = None, *, places_inputs: bool = False
) -> Imported:
    """Import a closed jaxpr.

    Args:
        jaxpr: JAX's `ClosedJaxpr`, as `jax.make_jaxpr` returns it.
        name: name of the graph.
        names: of its parameters, one per input.
        places_inputs: whether inputs, and so their gradients, are placed where their types say (axes of type Explicit);
            not where somebody does so with what goes in and comes out.

    Raises:
        CompileError: at the user's line, for what cannot be imported.
    """
    shared = Shared(policies=list(asked_around()), typed_placement=placements.typed_placement(jaxpr.jaxpr))
    builder = Builder(name)
    builder.loc = user_location()  # of equations that no line of the user's stands behind
    block = Block(builder, shared)
    inputs = jaxpr.jaxpr.invars
    operands = [
        block.b.parameter(type_of(variable.aval), label)
        for variable, label in zip(inputs, names or [None] * len(inputs), strict=True)
    ]
    given = placements.inputs_by_types(block, inputs, operands) if places_inputs else operands
    results = block.run(jaxpr, given)
    large = block.large_constants()
    graph = Graph(name, (*operands, *large.values()), tuple(block.b.equations), tuple(results))
    if shared.typed_placement is not None:
        graph = without_implied(graph)
    weak = tuple([is_weak(aval) for aval in jaxpr.out_avals])
    constants = tuple([shared.constants[key] for key in large])
    shardings = tuple(map(explicit_sharding, jaxpr.out_avals))
    return Imported(graph, constants, weak, shardings, shared.fallbacks, shared.counts, shared.choice)
