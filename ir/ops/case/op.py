"""Branches: `case` applies one of several graphs, chosen by an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.batches import Batch
from rematc.ir.core import (
    Graph,
    JvpContext,
    Origin,
    PartContext,
    SplitContext,
    SplitRegion,
    TransposeContext,
    VmapContext,
)
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import Inside, chosen, cts_of, filled, live_equations, spread, types_text
from rematc.ir.ops.case.base import INDEX, CaseBase
from rematc.ir.ops.case.batch import vmap_case
from rematc.ir.ops.case.cut import part_of_branches, slicings_of_case
from rematc.ir.ops.case.split import split_case
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.policy import Policy
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value


@register
@dataclass(frozen=True, slots=True)
class Case(CaseBase):
    """Branch number `index`, applied to the rest of the operands; an index outside takes the last branch.

    The first operand is the index, an i32 scalar.

    Attributes:
        branches: at least one; all take and give the same types.
    """

    name = "case"
    branches: tuple[Graph, ...]

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

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        flags = [tangent is not None for tangent in tangents[1:]]
        parts = [b.jvp_of(branch, flags) for branch in self.branches]
        has_tangent = _in_some([present for _, present in parts])
        count = len(has_tangent)
        branches = []
        for graph, present in parts:
            inside, like = Inside.of(graph), graph.results[:count]
            given = filled(inside, spread(graph.results[count:], present), like, has_tangent)
            branches.append(inside.build((*like, *given)))
        joint = b.emit(Case(tuple(branches)), *primals, *[tangent for tangent in tangents if tangent is not None])
        b.instead(joint[:count])
        return spread(joint[count:], has_tangent)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        is_linear = [isinstance(operand, LinearOperand) for operand in operands[1:]]
        has_ct = [ct is not None for ct in cts]
        parts = [b.adjoint_of(branch, is_linear, has_ct) for branch in self.branches]
        gets_ct = _in_some([present for _, present in parts])
        branches = []
        for branch, (graph, present) in zip(self.branches, parts, strict=True):
            inside = Inside.of(graph)
            results = filled(inside, spread(graph.results, present), chosen(branch.params, is_linear), gets_ct)
            branches.append(inside.build(results))
        known = [operand for operand in operands if isinstance(operand, Value)]
        given = [ct for ct in cts if ct is not None]
        outgoing = spread(b.emit(Case(tuple(branches)), *known, *given), gets_ct)
        return (None, *cts_of(is_linear, outgoing))

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return vmap_case(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return slicings_of_case(self)

    def part(self, b: PartContext, part: Part, operands: Primals) -> tuple[Value, ...]:
        return b.emit(Case(part_of_branches(self, b, part)), *operands, part.index)

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        return split_case(self, (INDEX, *self.branches[0].param_types), b, is_unknown, policy)

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
                    return eqn.op.origin(eqn.results.index(value)) or Origin(eqn, 1)
        return None

    def flops(self, operands: Types, results: Types) -> int:
        """Those of the dearest branch."""
        return max(sum(eqn.flops for eqn in branch.equations) for branch in self.branches)


def _signature(branch: Graph) -> str:
    return f"{types_text(branch.param_types)} -> {types_text(branch.result_types)}"


def _in_some(rows: Sequence[Sequence[bool]]) -> tuple[bool, ...]:
    """What is set in some branch."""
    return tuple([any(column) for column in zip(*rows, strict=True)])
