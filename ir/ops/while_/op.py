"""Loops as long as a condition holds: `while`. How many steps there are is not known before they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rematc.ir.core import (
    Array,
    Derivatives,
    Effect,
    Emitter,
    Equation,
    Graph,
    Operands,
    Primals,
    Tangents,
    Types,
    Value,
    register,
)
from rematc.ir.effects import silent_equation, without_effects
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.arithmetic import Add, Subtract
from rematc.ir.ops.bodies import chosen, live_equations, others, spread, types_text, with_tangents
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.logical import Compare
from rematc.ir.ops.loop_batching import vmap_while
from rematc.ir.ops.regions import (
    OF_REGION,
    JvpOfGraph,
    PartialEvalOfGraph,
    Region,
    SplitGraph,
    SplitRegion,
    TransposeOfGraph,
    VmapOfGraph,
    graph_of,
)
from rematc.ir.ops.structural import Constant
from rematc.ir.policy import Policy
from rematc.ir.types import BOOL, TensorType

T = TypeVar("T")


@register
@dataclass(frozen=True, slots=True)
class While(Region):
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
    no_jvp = OF_REGION
    no_transpose = OF_REGION

    def parts(self, operands: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """The condition's consts, the body's, and carries apart."""
        end = self.cond_consts + self.body_consts
        return tuple(operands[: self.cond_consts]), tuple(operands[self.cond_consts : end]), tuple(operands[end:])

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

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        """As of a scan; the condition sees primals alone."""
        _, consts, carry = self.parts([tangent is not None for tangent in tangents])
        flags = list(carry)
        while True:
            body, has_tangent = jvp(self.body, [*consts, *flags])
            grown = [old or new for old, new in zip(flags, has_tangent, strict=True)]
            if grown == flags:
                break
            flags = grown
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
        given = [
            b.zeros(primal.type) if tangent is None else tangent
            for primal, tangent in chosen(tuple(zip(first, carry_tangents, strict=True)), flags)
        ]
        present = [tangent for tangent in const_tangents if tangent is not None]
        results = b.emit(op, *cond_values, *body_values, *present, *first, *given)
        return results[:count], spread(results[count:], flags)

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        raise CompileError(
            "the number of steps of a while_loop, or of a fori_loop whose bounds are computed, is not known, so its "
            "steps cannot be kept for a backward pass; use rematc.bounded_while_loop(cond, body, init, max_steps=...), "
            "which can be differentiated backwards, or Python integers as the bounds of a fori_loop, or jvp for "
            "forward-mode derivatives"
        )

    def takes_turns(self, is_batched: Sequence[bool]) -> bool:
        """Where steps have effects: an element that is done has no more of them, while others go on."""
        return self.effect is not Effect.NONE

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        return vmap_while(self, b, vmap, size, operands, is_batched)

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        """Known carries are computed now, and again beside the unknown ones: there is no place to stack residuals."""
        cond_consts, consts, carry = self.parts(is_unknown)
        flags = list(carry)
        while True:
            body = partial_eval(self.body, [*consts, *flags], None)
            grown = [old or new for old, new in zip(flags, body.is_unknown, strict=True)]
            if grown == flags:
                break
            flags = grown
        cond = partial_eval(self.cond, [*cond_consts, *flags], None)
        if any(cond.is_unknown):
            flags = [True] * len(flags)
        whole = graph_of(self, (*self.cond.param_types[: self.cond_consts], *self.body.param_types))
        operands = others(whole.params, is_unknown)
        known = self._known(whole, cond, body, is_unknown, flags)
        forward = Graph(known.name, operands, known.equations, (*known.results, *operands))
        # What the known carries do is done now.
        is_split = not all(flags)
        later = _pruned(self._without_known_effects(whole, is_unknown, flags) if is_split else whole, flags)
        staged = Graph(later.name, (*operands, *chosen(whole.params, is_unknown)), later.equations, later.results)
        if policy is None:
            return SplitRegion(forward, staged, tuple(flags))
        again = Graph(known.name, operands, known.equations, known.results)
        return SplitRegion(forward, staged, tuple(flags), again, (False,) * len(operands))

    def _known(
        self, whole: Graph, cond: SplitGraph, body: SplitGraph, is_unknown: Sequence[bool], flags: Sequence[bool]
    ) -> Graph:
        """The loop over the known carries: what partial evaluation of condition and body leaves for now."""
        carries = tuple([not is_set for is_set in flags])
        if not any(carries):
            return Graph(whole.name, whole.params, (), ())
        of_results = spread(body.known.results, [not is_set for is_set in body.is_unknown])
        step = Graph(
            body.known.name,
            body.known.params,
            body.known.equations,
            tuple([value for value in chosen(of_results, carries) if value is not None]),
        )
        test = Graph(cond.known.name, cond.known.params, cond.known.equations, cond.known.results[:1])
        cond_consts, consts, _ = self.parts(is_unknown)
        op = While(test, step, cond_consts.count(False), consts.count(False))
        of_cond, of_body, first = self.parts(whole.params)
        operands = (*others(of_cond, cond_consts), *others(of_body, consts), *chosen(first, carries))
        results = chosen(whole.results, carries)
        return Graph(whole.name, whole.params, (Equation(op, operands, results),), results)

    def _without_known_effects(self, whole: Graph, is_unknown: Sequence[bool], flags: Sequence[bool]) -> Graph:
        """The loop without the effects that condition and body have of known values."""
        if not self.effect:
            return whole
        _, consts, _ = self.parts(is_unknown)
        reached = set(chosen(self.body.params, (*consts, *flags)))
        kept = []
        for eqn in self.body.equations:
            is_known = reached.isdisjoint(eqn.operands)
            if is_known and eqn.op.effect and not eqn.results:
                continue
            kept.append(silent_equation(eqn) if is_known else eqn)
            if not is_known:
                reached.update(eqn.results)
        body = Graph(self.body.name, self.body.params, tuple(kept), self.body.results)
        op = replace(self, cond=without_effects(self.cond), body=body)
        (eqn,) = whole.equations
        return Graph(whole.name, whole.params, (Equation(op, eqn.operands, eqn.results),), whole.results)

    def without_unused(self, used: Sequence[bool]) -> tuple[While, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the carries that these and the condition need."""
        live = set(self.cond.results)
        cond_equations = live_equations(self.cond, live)
        cond_live = [value in live for value in self.cond.params]
        carries = [a or b for a, b in zip(used, cond_live[self.cond_consts :], strict=True)]
        live = set(chosen(self.body.results, carries))
        while True:
            kept = live_equations(self.body, live)
            grown = [
                is_set or value in live
                for is_set, value in zip(carries, self.body.params[self.body_consts :], strict=True)
            ]
            if grown == carries:
                break
            carries = grown
            live.update(chosen(self.body.results, carries))
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
        of_cond, of_body, first = self.parts(values)
        params, results = self.body.params[self.body_consts :], self.body.results
        fixed = [value if old is new else None for value, old, new in zip(first, params, results, strict=True)]
        limits = known_integers(self.cond, (*of_cond, *fixed))
        strides = known_integers(self.body, (*of_body, *fixed))
        test = next((eqn for eqn in self.cond.equations if self.cond.results[0] in eqn.results), None)
        if test is None or not isinstance(test.op, Compare):
            return None
        counters = self.cond.params[self.cond_consts :]
        for (counter, limit), direction in zip(
            (test.operands, reversed(test.operands)), (test.op.direction, _REVERSED[test.op.direction]), strict=True
        ):
            if counter not in counters or limit not in limits:
                continue
            place = counters.index(counter)
            stride = _stride(self.body, params[place], results[place], strides)
            start = first[place]
            if start is not None and stride is not None:
                return _count(start, limits[limit], stride, direction)
        return None

    def flops(self, operands: Types, results: Types) -> int:
        """Those of one step: how many there are is not known."""
        return sum(eqn.flops for graph in self.regions() for eqn in graph.equations)

    def regions(self) -> tuple[Graph, ...]:
        return (self.cond, self.body)


#: What a comparison is with its sides exchanged.
_REVERSED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def known_integers(graph: Graph, params: Sequence[int | None]) -> dict[Value, int]:
    """The values of a graph that are integer scalars and known: constants, and what they are converted to."""
    found = {value: known for value, known in zip(graph.params, params, strict=True) if known is not None}
    for eqn in graph.equations:
        match eqn.op:
            case Constant(type=type, data=data) if type.dtype.is_integer and not type.shape:
                found[eqn.results[0]] = int(np.frombuffer(data, type.dtype.numpy)[0])
            case Convert(dtype=dtype) if dtype.is_integer and eqn.operands[0] in found:
                found[eqn.results[0]] = found[eqn.operands[0]]
    return found


def _stride(body: Graph, before: Value, after: Value, known: dict[Value, int]) -> int | None:
    """What a step adds to a carry."""
    for eqn in body.equations:
        if after not in eqn.results:
            continue
        x, y = eqn.operands if len(eqn.operands) == 2 else (None, None)
        if isinstance(eqn.op, Add) and x is before and y in known:
            return known[y]
        if isinstance(eqn.op, Add) and y is before and x in known:
            return known[x]
        if isinstance(eqn.op, Subtract) and x is before and y in known:
            return -known[y]
    return None


def _count(start: int, limit: int, stride: int, direction: str) -> int | None:
    """How many of start, start + stride, ... there are while they are `direction` limit; None if there is no end."""
    if direction in ("GT", "GE"):
        start, limit, stride = -start, -limit, -stride
        direction = {"GT": "LT", "GE": "LE"}[direction]
    if direction == "LE":
        limit += 1
    if direction not in ("LT", "LE"):
        return None
    if start >= limit:
        return 0
    return -((start - limit) // stride) if stride > 0 else None


def _pruned(whole: Graph, used: Sequence[bool]) -> Graph:
    """The graph of one while loop with only the used results."""
    (eqn,) = whole.equations
    assert isinstance(eqn.op, While)
    if not any(used):
        return Graph(whole.name, whole.params, (), ())
    op, operands, kept = eqn.op.without_unused(used)
    results = [whole.results[index] for index in kept]
    pruned = Equation(op, tuple([eqn.operands[index] for index in operands]), tuple(results))
    return Graph(whole.name, whole.params, (pruned,), chosen(whole.results, used))
