"""A function with a backward derivative of the user's, `custom_vjp`, and its tangents: `custom_linear`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.batches import Batch
from rematc.ir.core import Graph, JvpContext, Op, SplitContext, SplitRegion, TransposeContext, VmapContext
from rematc.ir.errors import CompileError, InternalError, TypeMismatchError
from rematc.ir.facts import Effect
from rematc.ir.host_functions import UNWRITTEN, FrontendFunction
from rematc.ir.ops.bodies import chosen, spread, types_text, with_batch
from rematc.ir.ops.custom_derivatives import (
    CustomDerivative,
    check_flags,
    check_rule,
    has_elements_beside_zero,
    kept_whole,
    only_results,
    places,
    read_params,
    staged_whole,
    summed_over_batch,
    taking,
    without_cts,
)
from rematc.ir.ops.regions import Region
from rematc.ir.policy import Policy
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value


@register
@dataclass(frozen=True, slots=True)
class CustomVjp(CustomDerivative):
    """A function whose derivative the user gives backwards.

    Attributes:
        body: operands to results.
        forward: operands to (results, residuals). None where it was not traced.
        backward: (residuals, cotangents of the results in `of`) to cotangents of the operands in `wrt`. None where it
            was not traced.
        wrt: for each operand, whether `backward` gives its cotangent; the others are zero.
        of: for each result, whether `backward` takes its cotangent.
        closure: how many of the last operands functions close over.
        reason: why there are no rules, for errors; empty where they were not traced because no derivative was to come.
        source: how the frontend applies the op; for derivatives that it takes where there are no rules.
    """

    name = "custom_vjp"
    body: Graph
    forward: Graph | None
    backward: Graph | None
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    closure: int = 0
    reason: str = ""
    source: FrontendFunction | None = field(default=None, metadata=UNWRITTEN)

    @property
    def has_rule(self) -> bool:
        return self.forward is not None

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        results = Region.infer(self, operands)
        check_flags(self)
        if self.forward is None or self.backward is None:
            if self.forward is not self.backward:
                raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' has one of forward and backward")
            return results
        types = self.body.param_types
        residuals = self.forward.result_types[len(results) :]
        check_rule(self, "forward", self.forward, types, (*results, *residuals))
        cts = chosen(results, self.of)
        check_rule(self, "backward", self.backward, (*residuals, *cts), chosen(types, self.wrt))
        return results

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        """`forward` in place of the body; the tangents are those that have the cotangents of `backward`."""
        if self.forward is None or self.backward is None:
            raise self.untraced()
        self.check_closure(tangents)
        outcome = b.inline(self.forward, primals)
        count = len(self.of)
        b.instead(outcome[:count])
        residuals = outcome[count:]
        given = chosen(tangents, self.wrt)
        present = [tangent for tangent in given if tangent is not None]
        if not present or not any(self.of):
            return (None,) * count
        flags = tuple([tangent is not None for tangent in given])
        op = CustomLinear(self.backward, self.body.name, len(residuals), flags)
        return spread(b.emit(op, *residuals, *present), self.of)

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        """All results are batched as soon as one is, so that each element has its own cotangents.

        Those of operands that the batch shares are summed over the elements.
        """
        body, found = b.vmap_of(self.body, batch.is_batched)
        count = len(self.of)
        if self.forward is None or self.backward is None:
            return b.emit(replace(self, body=body, source=None), *batch.operands)
        forward, outcome = b.vmap_of(self.forward, batch.is_batched)
        flags = (any((*found, *outcome)),) * count
        body = with_batch(body, batch.size, found, flags)
        forward = with_batch(forward, batch.size, outcome, (*flags, *outcome[count:]))
        cts = chosen(flags, self.of)
        backward, outgoing = b.vmap_of(self.backward, (*outcome[count:], *cts))
        if any(flags):
            backward = summed_over_batch(backward, batch.size, outgoing, chosen(batch.is_batched, self.wrt))
        return b.emit(replace(self, body=body, forward=forward, backward=backward), *batch.operands)

    def without_unused(self, used: Sequence[bool]) -> tuple[CustomVjp, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and what these need of operands and residuals.

        What has a cotangent is needed even where no result reads it: the derivative is what the rule says.
        """
        if self.source is not None:
            return self, tuple(range(len(self.wrt))), tuple(range(len(self.of)))
        body = only_results(self.body, used)
        live, count = read_params(body), len(self.of)
        if self.forward is None or self.backward is None:
            pruned = replace(self, body=taking(body, live))
        else:
            backward = without_cts(self.backward, chosen(used, self.of))
            needed = read_params(backward)[: len(self.forward.results) - count]
            forward = only_results(self.forward, (*used, *needed))
            moving = spread(has_elements_beside_zero(backward), self.wrt)
            live = [a or b or bool(c) for a, b, c in zip(live, read_params(forward), moving, strict=True)]
            backward = only_results(backward, chosen(live, self.wrt))
            # Fewer cotangents may need fewer residuals; what is kept is right all the same.
            cts = [True] * sum(chosen(used, self.of))
            pruned = replace(
                self,
                body=taking(body, live),
                forward=taking(forward, live),
                backward=taking(backward, (*needed, *cts)),
            )
        closure = sum(live[len(live) - self.closure :])
        pruned = replace(pruned, wrt=chosen(self.wrt, live), of=chosen(self.of, used), closure=closure)
        return pruned, places(live), places(used)

    def regions(self) -> tuple[Graph, ...]:
        return tuple([graph for graph in (self.body, self.forward, self.backward) if graph is not None])


@register
@dataclass(frozen=True, slots=True)
class CustomLinear(Op):
    """The linear map whose adjoint is `backward`: tangents of a `custom_vjp`. It has no value, only a transpose.

    Operands are residuals, then tangents; results are tangents.

    Attributes:
        backward: (residuals, cotangents of the results) to cotangents of what had the tangents.
        function: the function that it is the derivative of.
        residuals: how many operands are residuals.
        given: for each result of `backward`, whether its operand is there; the others have no tangent.
    """

    name = "custom_linear"
    backward: Graph
    function: str
    residuals: int
    given: tuple[bool, ...]
    no_jvp = "does not exist: a custom_vjp has no forward derivative"

    @property
    def effect(self) -> Effect:
        """None: what `backward` does is done where the op is transposed."""
        return Effect.NONE

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not 0 <= self.residuals <= len(self.backward.params) or len(self.given) != len(self.backward.results):
            raise TypeMismatchError(f"'{self.name}' of '{self.function}' does not fit its backward graph")
        expected = self._operand_types
        if tuple(operands) != expected:
            raise TypeMismatchError(
                f"'{self.name}' of '{self.function}' takes {types_text(expected)}, got {types_text(operands)}"
            )
        return self.backward.param_types[self.residuals :]

    @property
    def _operand_types(self) -> tuple[TensorType, ...]:
        backward = self.backward
        return (*backward.param_types[: self.residuals], *chosen(backward.result_types, self.given))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise self.forward_mode()

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        raise self.forward_mode()

    def forward_mode(self) -> CompileError:
        """The error for a map that is evaluated, or differentiated, forwards."""
        return CompileError(
            f"'{self.function}' has a custom_vjp, which gives derivatives backwards alone, and is differentiated "
            "forwards (jvp, linearize, jacfwd); use grad, vjp or jacrev, or give it a custom_jvp"
        )

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        residuals = [operand for operand in operands[: self.residuals] if isinstance(operand, Value)]
        if len(residuals) != self.residuals:
            raise InternalError(f"residuals of '{self.function}' are not known where it is transposed")
        types = self.backward.param_types[self.residuals :]
        given = [b.zeros(type) if ct is None else ct for ct, type in zip(cts, types, strict=True)]
        outgoing = b.inline(self.backward, [*residuals, *given])
        return (*(None,) * self.residuals, *chosen(outgoing, self.given))

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        cts = (True,) * (len(self.backward.params) - self.residuals)
        backward, found = b.vmap_of(self.backward, (*batch.is_batched[: self.residuals], *cts))
        flags = spread(batch.is_batched[self.residuals :], self.given)
        backward = summed_over_batch(backward, batch.size, found, [bool(is_set) for is_set in flags])
        return b.emit(replace(self, backward=backward), *batch.operands)

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        if any(is_unknown):
            return staged_whole(self, self._operand_types, is_unknown, policy)
        return kept_whole(self, self._operand_types)

    def without_unused(self, used: Sequence[bool]) -> tuple[CustomLinear, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the residuals that their cotangents need."""
        # Operands without a tangent need no cotangent either.
        backward = only_results(without_cts(self.backward, used), self.given)
        needed = read_params(backward)[: self.residuals]
        backward = taking(backward, (*needed, *[True] * sum(used)))
        tangents = sum(self.given)
        op = replace(self, backward=backward, residuals=sum(needed), given=(True,) * tangents)
        return op, places((*needed, *[True] * tangents)), places(used)

    def flops(self, operands: Types, results: Types) -> int:
        return sum(eqn.flops for eqn in self.backward.equations)

    def regions(self) -> tuple[Graph, ...]:
        return (self.backward,)
