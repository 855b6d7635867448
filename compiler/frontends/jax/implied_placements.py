"""Placements by types that say nothing that others do not say.

On a mesh with axes of type Explicit each value has a type that says where it lies, and so each is placed. What is made
of others element by element, by sums of them, or by cutting and joining them along dimensions that are not spread, is
spread as they are, and XLA finds it so. A placement between them would hide from it, and from passes, what they are
together: a softmax, the causal mask of one, the product of what is padded.
"""

from __future__ import annotations

from dataclasses import replace

from rematc.compiler.frontends.jax.placements import OF_TYPE
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.mapped import FullToShard, ShardToFull
from rematc.ir.ops.placement import Placement
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.ops.structural import Identity
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Value
from rematc.lowering.writer import braced
from rematc.passes.regions import RegionRewriter

#: What has graphs whose values come from outside by ways of its own: what goes in and out is placed.
_CONTROL_FLOW = (Case, Scan, While)
#: What cuts, joins or turns around along some dimensions; the others are those of the operands (`Op.slicings`).
_RESIZING = (Concatenate, Pad, Reshape, Reverse, Slice)
#: Who places scalars that are to meet arrays: types, and JAX itself, in the broadcast that makes arrays of them.
_OF_SCALARS = (OF_TYPE, "broadcast_in_dim")


def without_implied(graph: Graph) -> Graph:
    """The graph without placements by types that follow from others.

    What stays are those that somebody asked for, those of gathers and the like and of products that sum over devices,
    and those of what control flow takes and gives.
    """
    return _without_implied(graph, holds_results=True)


def _without_implied(graph: Graph, *, holds_results: bool) -> Graph:
    loops = RegionRewriter(lambda inner: _without_implied(inner, holds_results=True))
    # Of a function what it gives is placed by the types of the equation itself.
    functions = RegionRewriter(lambda inner: _without_implied(inner, holds_results=False))
    cut, met = _cut_alike(graph), _met(graph)
    held = set(graph.results) if holds_results else set[Value]()
    held.update(value for eqn in graph.equations if _holds_operands(eqn.op) for value in eqn.operands)
    makers: dict[Value, Equation] = {}
    env: dict[Value, Value] = {}
    equations: list[Equation] = []
    for eqn in graph.equations:
        regions = loops if isinstance(eqn.op, _CONTROL_FLOW) else functions
        own = replace(eqn, op=regions.op(eqn.op), operands=tuple([env.get(value, value) for value in eqn.operands]))
        if isinstance(own.op, Placement):
            maker = makers.get(own.operands[0])
            is_implied = maker is not None and _implies(maker, own.op, is_held=own.results[0] in held)
            is_implied = is_implied or cut.get(own.results[0]) == own.op.dimensions
            is_met = maker is not None and _is_of_scalar(maker) and own.results[0] in met
            if (is_implied and own.op.what == OF_TYPE) or (is_met and own.op.what in _OF_SCALARS):
                env[own.results[0]] = own.operands[0]
                continue
        makers.update(dict.fromkeys(own.results, own))
        equations.append(own)
    return Graph(graph.name, graph.params, tuple(equations), tuple([env.get(value, value) for value in graph.results]))


def _holds_operands(op: Op) -> bool:
    """Whether operands lie where they are placed, whatever else is known: somebody places them anew, or loops do."""
    return isinstance(op, _CONTROL_FLOW) or (isinstance(op, Placement) and op.what not in _OF_SCALARS)


def _cut_alike(graph: Graph) -> dict[Value, tuple[str, ...] | None]:
    """For values that are read where devices take their parts of them, how these spread them; None for others."""
    found: dict[Value, tuple[str, ...] | None] = dict.fromkeys(graph.results)
    for eqn in graph.equations:
        dimensions = tuple(map(braced, eqn.op.spec)) if isinstance(eqn.op, FullToShard) else None
        for value in eqn.operands:
            found[value] = dimensions if found.setdefault(value, dimensions) == dimensions else None
    return found


def _met(graph: Graph) -> set[Value]:
    """The values that every reader takes element by element beside others, which do not follow from constants."""
    alone = set(graph.results)
    found = set[Value]()
    scalars = set[Value]()
    for eqn in graph.equations:
        if _is_of_scalar(eqn) or (isinstance(eqn.op, Placement) and not scalars.isdisjoint(eqn.operands)):
            scalars.update(eqn.results)
        others = any(value.type.shape and value not in scalars for value in eqn.operands)
        (found if eqn.op.is_elementwise and others else alone).update(eqn.operands)
    return found - alone


def _is_of_scalar(eqn: Equation) -> bool:
    return isinstance(eqn.op, BroadcastInDim) and not eqn.operands[0].type.shape


def _implies(maker: Equation, placement: Placement, *, is_held: bool) -> bool:
    """Whether the result of an equation lies by itself where it is placed."""
    op = maker.op
    if isinstance(op, Placement):
        return (op.mesh, op.dimensions) == (placement.mesh, placement.dimensions)
    if isinstance(op, ShardToFull):
        return tuple(map(braced, op.spec)) == placement.dimensions
    if isinstance(op, _CONTROL_FLOW):
        return True  # what its graphs give is placed
    if is_held:
        return False
    if isinstance(op, _RESIZING):
        kept = {slicing.results[0] for slicing in op.slicings(maker.operand_types, maker.result_types)}
        return kept.issuperset(place for place, dimension in enumerate(placement.dimensions) if '"' in dimension)
    return _passes_on(maker)


def _passes_on(eqn: Equation) -> bool:
    """Whether results are spread as operands are, each dimension as the one that it comes from.

    Constants are spread as what reads them.
    """
    op = eqn.op
    if isinstance(op, CustomJvp):
        return all(map(_passes_on, op.body.equations))
    is_alike = op.is_elementwise or isinstance(op, BroadcastInDim | DotGeneral | Identity | Reduction | Transpose)
    return is_alike or not (eqn.operands or op.effect or op.regions())
