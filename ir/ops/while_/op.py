"""Loops as long as a condition holds: `while`. How many steps there are is not known before they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.batches import Batch
from rematc.ir.core import (
    Equation,
    Graph,
    JvpContext,
    PartContext,
    SplitContext,
    SplitRegion,
    TransposeContext,
    VmapContext,
)
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import chosen, filled, live_equations, settled, spread, types_text, with_tangents
from rematc.ir.ops.while_.base import WhileBase
from rematc.ir.ops.while_.batch import vmap_while
from rematc.ir.ops.while_.cut import part_of_while, slicings_of_while
from rematc.ir.ops.while_.split import split_while
from rematc.ir.ops.while_.trip_count import trip_count
from rematc.ir.policy import Policy
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import BOOL, TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value


@register
@dataclass(frozen=True, slots=True)
class While(WhileBase):
    """A loop as long as a condition holds: `while cond(cond consts, carry): carry = body(body consts, carry)`.

    Operands are the consts of the condition, those of the body, first carries; results are last carries.

    Attributes:
        cond: (its consts, carries) to a boolean scalar.
        body: (its consts, carries) to carries.
        cond_consts: how many operands only the condition reads.
        body_consts: how many operands after these only the body reads.
    """

    name = "while"
    cond: Graph
    body: Graph
    cond_consts: int = 0
    body_consts: int = 0

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if min(self.cond_consts, self.body_consts) < 0:
            raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' counts less than nothing")
        cond_consts, body_consts, carry = self.parts(operands)
        for graph, given in ((self.cond, (*cond_consts, *carry)), (self.body, (*body_consts, *carry))):
            if graph.param_types != given:
                raise TypeMismatchError(
                    f"'{self.name}' gives '{graph.name}' {types_text(given)}, "
                    f"which takes {types_text(graph.param_types)}"
                )
        if self.cond.result_types != (TensorType(BOOL, ()),):
            raise TypeMismatchError(
                f"'{self.name}' needs a condition that gives a boolean scalar, "
                f"'{self.cond.name}' gives {types_text(self.cond.result_types)}"
            )
        if self.body.result_types != carry:
            raise TypeMismatchError(
                f"'{self.name}' of '{self.body.name}' carries {types_text(carry)}, but a step gives "
                f"{types_text(self.body.result_types)}"
            )
        return carry

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        cond_consts, body_consts, carry = self.parts(operands)
        while evaluate(self.cond, [*cond_consts, *carry])[0]:
            carry = tuple(evaluate(self.body, [*body_consts, *carry]))
        return carry

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        """As of a scan; the condition sees primals alone."""
        _, consts, carry = self.parts([tangent is not None for tangent in tangents])
        body, has_tangent, flags = settled(lambda carries: b.jvp_of(self.body, (*consts, *carries)), carry)
        count = len(flags)
        body, _ = with_tangents(body, count, has_tangent, flags)
        primal_params, tangent_params = body.params[: len(self.body.params)], body.params[len(self.body.params) :]
        of_consts, extra = tangent_params[: sum(consts)], tangent_params[sum(consts) :]
        inner = (*primal_params[: self.body_consts], *of_consts, *primal_params[self.body_consts :], *extra)
        cond = Graph(
            self.cond.name,
            (*self.cond.params, *[Value(value.type) for value in extra]),
            self.cond.equations,
            self.cond.results,
        )
        op = While(
            cond,
            Graph(body.name, inner, body.equations, body.results),
            self.cond_consts,
            self.body_consts + sum(consts),
        )
        cond_values, body_values, first = self.parts(primals)
        _, const_tangents, carry_tangents = self.parts(tangents)
        present = [tangent for tangent in const_tangents if tangent is not None]
        given = filled(b, carry_tangents, first, flags)
        joint = b.emit(op, *cond_values, *body_values, *present, *first, *given)
        b.instead(joint[:count])
        return spread(joint[count:], flags)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        raise CompileError(
            "the number of steps of a while_loop, or of a fori_loop whose bounds are computed, is not known, so its "
            "steps cannot be kept for a backward pass; use rematc.bounded_while_loop(cond, body, init, max_steps=...), "
            "which can be differentiated backwards, or Python integers as the bounds of a fori_loop, or jvp for "
            "forward-mode derivatives"
        )

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return vmap_while(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return slicings_of_while(self)

    def part(self, b: PartContext, part: Part, operands: Primals) -> tuple[Value, ...]:
        op = While(*part_of_while(self, b, part), self.cond_consts + 1, self.body_consts + 1)
        of_cond, of_body, carry = self.parts(operands)
        return b.emit(op, *of_cond, part.index, *of_body, part.index, *carry)

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        return split_while(self, b, is_unknown, policy)

    def without_unused(self, used: Sequence[bool]) -> tuple[While, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the carries that these and the condition need."""
        live = set(self.cond.results)
        cond_equations = live_equations(self.cond, live)
        cond_live = [value in live for value in self.cond.params]
        live = set()

        def step(flags: tuple[bool, ...]) -> tuple[tuple[Equation, ...], tuple[bool, ...]]:
            live.update(chosen(self.body.results, flags))
            kept = live_equations(self.body, live)
            return kept, tuple([value in live for value in self.body.params[self.body_consts :]])

        kept, _, carries = settled(step, [a or b for a, b in zip(used, cond_live[self.cond_consts :], strict=True)])
        cond_flags = cond_live[: self.cond_consts]
        body_flags = [value in live for value in self.body.params[: self.body_consts]]
        operands = tuple(index for index, is_set in enumerate((*cond_flags, *body_flags, *carries)) if is_set)
        cond = Graph(
            self.cond.name, chosen(self.cond.params, (*cond_flags, *carries)), cond_equations, self.cond.results
        )
        body = Graph(
            self.body.name, chosen(self.body.params, (*body_flags, *carries)), kept, chosen(self.body.results, carries)
        )
        results = tuple(index for index, is_set in enumerate(carries) if is_set)
        return While(cond, body, sum(cond_flags), sum(body_flags)), operands, results

    def trip_count(self, values: Sequence[int | None]) -> int | None:
        """How many steps there are, where a counter is compared with a limit; None where that does not follow.

        `values` are those of the operands that are integers and known.
        """
        return trip_count(self, values)

    def flops(self, operands: Types, results: Types) -> int:
        """Those of one step: how many there are is not known."""
        return sum(eqn.flops for graph in self.regions() for eqn in graph.equations)
