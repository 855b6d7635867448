"""Branches: `case` applies one of several graphs, chosen by an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import (
    Array,
    Derivatives,
    Effect,
    Emitter,
    Graph,
    LinearOperand,
    Operands,
    Primals,
    Tangents,
    Types,
    Value,
    register,
)
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import Equations, chosen, live_equations, spread, types_text
from rematc.ir.ops.case.split import split_case
from rematc.ir.ops.loop_batching import vmap_case
from rematc.ir.ops.regions import (
    OF_REGION,
    JvpOfGraph,
    Origin,
    PartialEvalOfGraph,
    Region,
    SplitRegion,
    TransposeOfGraph,
    VmapOfGraph,
)
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.policy import Policy
from rematc.ir.types import I32, TensorType

INDEX = TensorType(I32, ())


@register
@dataclass(frozen=True, slots=True)
class Case(Region):
    """Branch number `index`, applied to the rest of the operands; an index outside takes the last branch.

    The first operand is the index, an i32 scalar.

    Attributes:
        branches: at least one; all take and give the same types.
    """

    name = "case"
    branches: tuple[Graph, ...]
    no_jvp = OF_REGION
    no_transpose = OF_REGION

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not self.branches:
            raise TypeMismatchError(f"'{self.name}' has no branches")
        first = self.branches[0]
        for branch in self.branches[1:]:
            if branch.param_types != first.param_types or branch.result_types != first.result_types:
                raise TypeMismatchError(
                    f"'{self.name}' has a branch '{first.name}' {_signature(first)} and a branch '{branch.name}' "
                    f"{_signature(branch)}"
                )
        expected = (INDEX, *first.param_types)
        if tuple(operands) != expected:
            raise TypeMismatchError(f"'{self.name}' takes {types_text(expected)}, got {types_text(operands)}")
        return first.result_types

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        index, last = int(operands[0]), len(self.branches) - 1
        return tuple(evaluate(self.branches[index if 0 <= index <= last else last], operands[1:]))

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        flags = [tangent is not None for tangent in tangents[1:]]
        parts = [jvp(branch, flags) for branch in self.branches]
        has_tangent = tuple([any(column) for column in zip(*[flags for _, flags in parts], strict=True)])
        count = len(has_tangent)
        branches = []
        for graph, present in parts:
            inside = Equations(graph.equations)
            given = spread(graph.results[count:], present)
            tangents_of = _filled(inside, given, graph.results[:count], has_tangent)
            branches.append(Graph(graph.name, graph.params, tuple(inside.all), (*graph.results[:count], *tangents_of)))
        operands = [*primals, *[tangent for tangent in tangents if tangent is not None]]
        results = b.emit(Case(tuple(branches)), *operands)
        return results[:count], spread(results[count:], has_tangent)

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        is_linear = [isinstance(operand, LinearOperand) for operand in operands[1:]]
        has_ct = [ct is not None for ct in cts]
        parts = [transpose(branch, is_linear, has_ct) for branch in self.branches]
        gets_ct = tuple([any(column) for column in zip(*[flags for _, flags in parts], strict=True)])
        branches = []
        for branch, (graph, present) in zip(self.branches, parts, strict=True):
            inside = Equations(graph.equations)
            given = spread(graph.results, present)
            results = _filled(inside, given, chosen(branch.params, is_linear), gets_ct)
            branches.append(Graph(graph.name, graph.params, tuple(inside.all), results))
        known = [operand for operand in operands if isinstance(operand, Value)]
        given_cts = [ct for ct in cts if ct is not None]
        outgoing = iter(spread(b.emit(Case(tuple(branches)), *known, *given_cts), gets_ct))
        return (None, *[next(outgoing) if is_set else None for is_set in is_linear])

    def takes_turns(self, is_batched: Sequence[bool]) -> bool:
        """Where branches have effects: they are not computed for elements that do not choose them."""
        return is_batched[0] and self.effect is not Effect.NONE

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        return vmap_case(self, b, vmap, size, operands, is_batched)

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        return split_case(self, (INDEX, *self.branches[0].param_types), partial_eval, is_unknown, policy)

    def without_unused(self, used: Sequence[bool]) -> tuple[Case, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the operands that some branch needs for them."""
        kept, live = [], []
        for branch in self.branches:
            found = set(chosen(branch.results, used))
            kept.append(live_equations(branch, found))
            live.append([value in found for value in branch.params])
        needed = [any(column) for column in zip(*live, strict=True)]
        branches = tuple(
            [
                Graph(branch.name, chosen(branch.params, needed), equations, chosen(branch.results, used))
                for branch, equations in zip(self.branches, kept, strict=True)
            ]
        )
        operands = (0, *[index + 1 for index, is_set in enumerate(needed) if is_set])
        return Case(branches), operands, tuple(index for index, is_set in enumerate(used) if is_set)

    def origin(self, result: int) -> Origin | None:
        """What the first branch that computes something computes."""
        for branch in self.branches:
            value = branch.results[result]
            for eqn in branch.equations:
                if value in eqn.results and not isinstance(eqn.op, (Constant, BroadcastInDim)):
                    inner = eqn.op.origin(eqn.results.index(value)) if isinstance(eqn.op, Region) else None
                    return inner or Origin(eqn, 1)
        return None

    def flops(self, operands: Types, results: Types) -> int:
        """Those of the dearest branch."""
        return max(sum(eqn.flops for eqn in branch.equations) for branch in self.branches)

    def regions(self) -> tuple[Graph, ...]:
        return self.branches


def _signature(branch: Graph) -> str:
    return f"{types_text(branch.param_types)} -> {types_text(branch.result_types)}"


def _filled(
    inside: Equations, given: Sequence[Value | None], like: Sequence[Value], flags: Sequence[bool]
) -> tuple[Value, ...]:
    """Where the flag is set the given value, or zeros like it."""
    rows = chosen(tuple(zip(given, like, strict=True)), flags)
    return tuple([inside.zeros(value.type) if one is None else one for one, value in rows])
