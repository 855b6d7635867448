"""Ops that own graphs: `call` and `checkpoint`. A region is closed; what it reads are its operands.

The rules of such ops transform their graphs by the transformations of `rematc.passes`, which their context has: so the
rules of one op stand together here, and the passes know no op by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rematc.ir.batches import Batch
from rematc.ir.core import (
    Graph,
    JvpContext,
    Op,
    PartContext,
    SplitContext,
    SplitRegion,
    TransposeContext,
    VmapContext,
)
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import cts_of, graph_of, live_equations, spread
from rematc.ir.ops.body_slicings import Bodies, Cutting, Given
from rematc.ir.policy import Policy, SaveNothing
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value

NOTHING = SaveNothing()
INLINED = "does not exist: differentiation inlines it"


class Region(Op):
    """Family base of ops whose meaning is that of one graph applied to the operands."""

    __slots__ = ()
    is_cut_inside = True
    body: Graph

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if tuple(operands) != self.body.param_types:
            found, expected = (", ".join(map(str, types)) for types in (operands, self.body.param_types))
            raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' takes ({expected}), got ({found})")
        return self.body.result_types

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(evaluate(self.body, operands))

    def flops(self, operands: Types, results: Types) -> int:
        return sum(eqn.flops for eqn in self.body.equations)

    def _cutting(self) -> Cutting:
        return self.body.remembered(Cutting, lambda: Cutting(Bodies((self.body,), ())))

    def _body_of(self, b: PartContext, part: Part) -> Graph:
        """The graph applied to one part of the operands; its last parameter is the number of the part."""
        cutting = self._cutting()
        cut = cutting.cut_of(part.slicing, list(map(Given, self.body.params)))
        return cutting.part_of(b, self.body, cut, part, part.slicing.results)

    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)


@register
@dataclass(frozen=True, slots=True)
class Call(Region):
    """A function applied: kept as a function in StableHLO, so that a body used often is printed once.

    Attributes:
        body: the function.
        pinned: None where XLA may put the body in the place of the call. Where it may not, for each operand whether the
            body must wait for it: XLA on the CPU moves nothing into such a function or out of it, and runs it when all
            operands are there; elsewhere the body comes in its place, behind a barrier over these.
    """

    name = "call"
    body: Graph
    pinned: tuple[bool, ...] | None = None
    no_jvp = INLINED
    no_transpose = INLINED

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if self.pinned is not None and len(self.pinned) != len(operands):
            raise TypeMismatchError(f"'call' has {len(operands)} operands but pinned for {len(self.pinned)}")
        return Region.infer(self, operands)

    @property
    def is_inlineable(self) -> bool:
        """Whether XLA may put the body in the place of the call."""
        return self.pinned is None

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return b.emit(replace(self, body=b.vmap_of(self.body, batch.is_batched)[0]), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return self._cutting().slicings(list(map(Given, self.body.params)), list(map(Given, self.body.results)))

    def part(self, b: PartContext, part: Part, operands: Primals) -> tuple[Value, ...]:
        pinned = None if self.pinned is None else (*self.pinned, False)
        return b.emit(Call(self._body_of(b, part), pinned), *operands, part.index)


@register
@dataclass(frozen=True, slots=True)
class Checkpoint(Region):
    """A region whose intermediate values are recomputed when it is differentiated, but for what the policy saves.

    Attributes:
        body: the region.
        policy: what may be saved; None is nothing but the operands.
        prevent_cse: whether XLA must not merge the recomputation with the forward evaluation; for all operands, or
            one entry per operand. None leaves it to the compiler: a barrier is needed, but for the bodies of loops.
        is_differentiated: whether this is the backward (or tangent) side of a region: what it computes from
            residuals is recomputation, and is kept behind a barrier.
        is_scheduled: whether the program stands in the order in which it is to run, as planned: the barrier holds what
            it waits for in that order.
        is_plannable: whether a plan for a budget may decide anew what is computed again inside, as of `jax.checkpoint`.
            A region of rematc's own that it differentiates itself stays as it is beside a budget.
    """

    name = "checkpoint"
    body: Graph
    policy: Policy | None = None
    prevent_cse: bool | tuple[bool, ...] | None = None
    is_differentiated: bool = False
    is_scheduled: bool = False
    is_plannable: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if isinstance(self.prevent_cse, tuple) and len(self.prevent_cse) != len(operands):
            raise TypeMismatchError(
                f"'checkpoint' has {len(operands)} operands but prevent_cse for {len(self.prevent_cse)}"
            )
        return Region.infer(self, operands)

    @property
    def pinned(self) -> tuple[bool, ...]:
        """Which operands are behind the barrier."""
        if isinstance(self.prevent_cse, tuple):
            return self.prevent_cse
        return (self.prevent_cse is not False,) * len(self.body.params)

    @property
    def pinned_in_loop(self) -> tuple[bool, ...]:
        """Which operands are behind the barrier in the body of a loop: none, unless the user asks for it, or a plan.

        XLA merges nothing between the steps of the forward loop and those of the backward one; of one step it does.
        """
        is_left = self.prevent_cse is None and not self.is_scheduled
        return (False,) * len(self.body.params) if is_left else self.pinned

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        body, has_tangent = b.jvp_of(self.body, [tangent is not None for tangent in tangents])
        present = [tangent for tangent in tangents if tangent is not None]
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            prevent_cse = (*prevent_cse, *(True for _ in present))
        joint = b.emit(replace(self, body=body, prevent_cse=prevent_cse), *primals, *present)
        b.instead(joint[: len(has_tangent)])
        return spread(joint[len(has_tangent) :], has_tangent)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        is_linear = [isinstance(operand, LinearOperand) for operand in operands]
        body, gets_ct = b.adjoint_of(self.body, is_linear, [ct is not None for ct in cts])
        known = [operand for operand in operands if isinstance(operand, Value)]
        present = [ct for ct in cts if ct is not None]
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            pinned = [pin for pin, is_set in zip(prevent_cse, is_linear, strict=True) if not is_set]
            prevent_cse = (*pinned, *(True for _ in present))
        adjoint = replace(self, body=body, prevent_cse=prevent_cse, is_differentiated=True)
        return cts_of(is_linear, spread(b.emit(adjoint, *known, *present), gets_ct))

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return b.emit(replace(self, body=b.vmap_of(self.body, batch.is_batched)[0]), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return self._cutting().slicings(list(map(Given, self.body.params)), list(map(Given, self.body.results)))

    def part(self, b: PartContext, part: Part, operands: Primals) -> tuple[Value, ...]:
        pinned = (*self.prevent_cse, False) if isinstance(self.prevent_cse, tuple) else self.prevent_cse
        region = replace(self, body=self._body_of(b, part), prevent_cse=pinned)
        return b.emit(region, *operands, part.index)

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        """The region's own policy decides; its known part is no region any more."""
        part = b.split_of(self.body, is_unknown, self.policy or NOTHING)
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            pinned = [pin for pin, is_set in zip(prevent_cse, is_unknown, strict=True) if not is_set]
            residuals = [True if source is None else pinned[source] for source in part.sources]
            prevent_cse = (*residuals, *(True for is_set in is_unknown if is_set))
        staged = replace(self, body=part.staged, prevent_cse=prevent_cse, is_differentiated=True)
        return SplitRegion(part.known, graph_of(staged, part.staged.param_types), part.is_unknown)

    def without_unused(self, used: Sequence[bool]) -> tuple[Checkpoint, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results: (op, indices of the operands it still takes, of the results it gives)."""
        body = self.body
        results = tuple(index for index, is_used in enumerate(used) if is_used)
        live = {body.results[index] for index in results}
        kept = live_equations(body, live)
        operands = tuple(index for index, value in enumerate(body.params) if value in live)
        pruned = Graph(
            body.name,
            tuple(body.params[index] for index in operands),
            kept,
            tuple(body.results[index] for index in results),
        )
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            prevent_cse = tuple(prevent_cse[index] for index in operands)
        return replace(self, body=pruned, prevent_cse=prevent_cse), operands, results
