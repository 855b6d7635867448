"""A function with a forward derivative of the user's: `custom_jvp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.core import (
    Derivatives,
    Emitter,
    Graph,
    LinearOperand,
    Operands,
    Primals,
    Tangents,
    Types,
    Value,
    known,
    register,
)
from rematc.ir.errors import TypeMismatchError
from rematc.ir.host_functions import UNWRITTEN, FrontendFunction
from rematc.ir.ops.bodies import chosen, others, spread
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
from rematc.ir.ops.loop_batching import with_batch
from rematc.ir.ops.regions import (
    OF_REGION,
    JvpOfGraph,
    Region,
    TransposeOfGraph,
    VmapOfGraph,
)
from rematc.ir.types import TensorType


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
    no_jvp = OF_REGION
    no_transpose = OF_REGION

    @property
    def has_rule(self) -> bool:
        return self.rule is not None

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

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        """The rule's own results: what it computes for tangents and values alike is computed once."""
        if self.rule is None:
            raise self.untraced()
        self.check_closure(tangents)
        given = [
            b.zeros(primal.type) if tangent is None else tangent
            for primal, tangent in chosen(tuple(zip(primals, tangents, strict=True)), self.wrt)
        ]
        results = b.inline(self.rule, [*primals, *given])
        count = len(self.of)
        return results[:count], spread(results[count:], self.of)

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        if self.adjoint is None:
            return CustomDerivative.transpose_region(self, b, transpose, cts, operands)
        law = self.reason or f"'{self.body.name}' is not linear in what its adjoint gives no cotangent of"
        values = [known(operand, law) for operand in others(operands, self.linear)]
        rows = chosen(tuple(zip(cts, self.body.results, strict=True)), self.of)
        given = [b.zeros(value.type) if ct is None else ct for ct, value in rows]
        outgoing = spread(b.inline(self.adjoint, [*values, *given]), self.linear)
        return tuple(
            [ct if isinstance(one, LinearOperand) else None for ct, one in zip(outgoing, operands, strict=True)]
        )

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        """A result is batched if it, or its tangent, is; all are where each element must have its own cotangents."""
        body, of_body = vmap(self.body, is_batched)
        wanted, rule, count = of_body, self.rule, len(self.of)
        if rule is not None:
            rule, found = vmap(rule, (*is_batched, *chosen(is_batched, self.wrt)))
            of_tangents = [bool(is_set) for is_set in spread(found[count:], self.of)]
            wanted = tuple([any(row) for row in zip(wanted, found[:count], of_tangents, strict=True)])
        adjoint = self.adjoint
        if adjoint is not None:
            wanted = (any(wanted),) * count
            adjoint, of_cts = vmap(adjoint, (*others(is_batched, self.linear), *chosen(wanted, self.of)))
            if any(wanted):
                adjoint = summed_over_batch(adjoint, size, of_cts, chosen(is_batched, self.linear))
        if rule is not None:
            rule = with_batch(rule, size, found, (*wanted, *chosen(wanted, self.of)))
        body = with_batch(body, size, of_body, wanted)
        return b.emit(replace(self, body=body, rule=rule, adjoint=adjoint, source=None), *operands)

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
