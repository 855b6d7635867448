"""A function with a forward derivative of the user's: `custom_jvp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.batches import Batch
from rematc.ir.core import Graph, JvpContext, TransposeContext, VmapContext
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.host_functions import UNWRITTEN, FrontendFunction
from rematc.ir.ops.bodies import chosen, filled, others, spread, with_batch
from rematc.ir.ops.custom_derivatives import (
    CustomDerivative,
    check_flags,
    check_rule,
    only_results,
    places,
    read_params,
    summed_over_batch,
    taking,
)
from rematc.ir.ops.regions import Region
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value, known


@register
@dataclass(frozen=True, slots=True)
class CustomJvp(CustomDerivative):
    """A function whose forward derivative the user gives.

    Attributes:
        body: operands to results.
        rule: (operands, tangents of those in `wrt`) to (results, tangents of those in `of`); linear in the tangents.
            None where it was not traced.
        wrt: for each operand, whether the rule takes its tangent.
        of: for each result, whether the rule gives its tangent; the others are zero.
        closure: how many of the last operands functions close over.
        adjoint: of a function that is linear in some operands: (the others, cotangents of the results in `of`) to
            cotangents of these operands. Without one the body is transposed, where a rule applies the function to
            tangents.
        linear: for each operand, whether the function is linear in it; nothing without an adjoint.
        reason: why there is no rule, for errors; empty where it was not traced because no derivative was to come.
        source: how the frontend applies the op; for derivatives that it takes where there is no rule.
        is_recognized: whether the rule is a pass's, for one derivative (`rematc.passes.recognize`), and not the user's.
    """

    name = "custom_jvp"
    body: Graph
    rule: Graph | None
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    closure: int = 0
    adjoint: Graph | None = None
    linear: tuple[bool, ...] = ()
    reason: str = ""
    source: FrontendFunction | None = field(default=None, metadata=UNWRITTEN)
    is_recognized: bool = False

    @property
    def has_rule(self) -> bool:
        return self.rule is not None

    @property
    def storage(self) -> Storage:  # type: ignore[override]  # a property where the family has a constant
        """As that of what the function does, where it has one result: a relu is fused, whoever wrote its derivative."""
        works = [eqn.op for eqn in self.body.equations if eqn.operands]
        is_fused = len(self.body.results) == 1 and all(op.is_fusible for op in works)
        return Storage.FUSED if is_fused else Storage.WRITTEN

    @property
    def weight(self) -> Weight:  # type: ignore[override]  # as above
        """The most of what the function does."""
        return max([eqn.op.weight for eqn in self.body.equations if eqn.operands], default=Weight.LIGHT)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        results = Region.infer(self, operands)
        check_flags(self)
        types = self.body.param_types
        if len(self.linear) != (0 if self.adjoint is None else len(types)):
            raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' says of other operands that it is linear")
        if self.adjoint is not None:
            params = (*others(types, self.linear), *chosen(results, self.of))
            check_rule(self, "adjoint", self.adjoint, params, chosen(types, self.linear))
        if self.rule is not None:
            check_rule(
                self, "rule", self.rule, (*types, *chosen(types, self.wrt)), (*results, *chosen(results, self.of))
            )
        return results

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        """The rule's own results: what it computes for tangents and values alike is computed once."""
        if self.rule is None:
            raise self.untraced()
        self.check_closure(tangents)
        given = filled(b, tangents, primals, self.wrt)
        joint = b.inline(self.rule, [*primals, *given])
        b.instead(joint[: len(self.of)])
        return spread(joint[len(self.of) :], self.of)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        if self.adjoint is None:
            return CustomDerivative.transpose(self, b, cts, operands)
        law = self.reason or f"'{self.body.name}' is not linear in what its adjoint gives no cotangent of"
        values = [known(operand, law) for operand in others(operands, self.linear)]
        given = filled(b, cts, self.body.results, self.of)
        outgoing = spread(b.inline(self.adjoint, [*values, *given]), self.linear)
        return tuple(
            [ct if isinstance(one, LinearOperand) else None for ct, one in zip(outgoing, operands, strict=True)]
        )

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        """A result is batched if it, or its tangent, is; all are where each element must have its own cotangents."""
        body, of_body = b.vmap_of(self.body, batch.is_batched)
        wanted, rule, count = of_body, self.rule, len(self.of)
        if rule is not None:
            rule, found = b.vmap_of(rule, (*batch.is_batched, *chosen(batch.is_batched, self.wrt)))
            of_tangents = [bool(is_set) for is_set in spread(found[count:], self.of)]
            wanted = tuple([any(row) for row in zip(wanted, found[:count], of_tangents, strict=True)])
        adjoint = self.adjoint
        if adjoint is not None:
            wanted = (any(wanted),) * count
            adjoint, of_cts = b.vmap_of(adjoint, (*others(batch.is_batched, self.linear), *chosen(wanted, self.of)))
            if any(wanted):
                adjoint = summed_over_batch(adjoint, batch.size, of_cts, chosen(batch.is_batched, self.linear))
        if rule is not None:
            rule = with_batch(rule, batch.size, found, (*wanted, *chosen(wanted, self.of)))
        body = with_batch(body, batch.size, of_body, wanted)
        return b.emit(replace(self, body=body, rule=rule, adjoint=adjoint, source=None), *batch.operands)

    def without_unused(self, used: Sequence[bool]) -> tuple[CustomJvp, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the operands that body or rule need for them."""
        if self.adjoint is not None or self.source is not None:
            return self, tuple(range(len(self.wrt))), tuple(range(len(self.of)))
        body = only_results(self.body, used)
        live = read_params(body)
        of = chosen(self.of, used)
        rule, count, taken = self.rule, len(self.of), len(self.wrt)
        if rule is not None:
            rule = only_results(rule, (*used, *chosen(used, self.of)))
            read = read_params(rule)
            of_tangents = spread(read[taken:], self.wrt)
            live = [any(row) for row in zip(live, read[:taken], map(bool, of_tangents), strict=True)]
            rule = taking(rule, (*live, *chosen(live, self.wrt)))
        assert count == len(used)
        closure = sum(live[len(live) - self.closure :])
        pruned = CustomJvp(taking(body, live), rule, chosen(self.wrt, live), of, closure, reason=self.reason)
        return pruned, places(live), places(used)

    def regions(self) -> tuple[Graph, ...]:
        return tuple([graph for graph in (self.body, self.rule, self.adjoint) if graph is not None])
