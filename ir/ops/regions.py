"""Ops that own graphs: `call` and `checkpoint`. A region is closed; what it reads are its operands.

The rules of such ops transform their graphs. They are handed the transformations of `rematc.passes` as functions, so
that the rules of one op stand together here, and the passes know no op by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rematc.ir.core import (
    Array,
    Derivatives,
    Emitter,
    Equation,
    Graph,
    LinearOperand,
    Op,
    Operands,
    Primals,
    Tangents,
    Types,
    Value,
    needed_rule,
    register,
)
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import live_equations
from rematc.ir.policy import Policy, SaveNothing
from rematc.ir.types import TensorType

OF_REGION = "is a rule of its region: jvp_region, transpose_region, vmap_region, split (ir/ops/regions.py)"
INLINED = "does not exist: differentiation inlines it"


def graph_of(op: Op, operands: Types) -> Graph:
    """The graph that applies one op to operands of these types."""
    params = tuple([Value(type) for type in operands])
    results = tuple([Value(type) for type in op.infer(operands)])
    return Graph(op.name, params, (Equation(op, params, results),), results)


class JvpOfGraph(Protocol):
    """The jvp pass: the graph of primals and present tangents, and which results have tangents."""

    def __call__(self, graph: Graph, has_tangent: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]: ...


class VmapOfGraph(Protocol):
    """The vmap pass: the graph of a batch, of which these parameters are batched, and which results are."""

    def __call__(self, graph: Graph, is_batched: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]: ...


class TransposeOfGraph(Protocol):
    """The transpose pass: the graph of known values and present cts, and which linear parameters get a ct."""

    def __call__(
        self, graph: Graph, is_linear: Sequence[bool], has_ct: Sequence[bool]
    ) -> tuple[Graph, tuple[bool, ...]]: ...


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """A graph in two: what is evaluated now, and what later.

    Attributes:
        known: known parameters to known results, then residuals.
        staged: residuals, then unknown parameters, to unknown results.
        is_unknown: for each result of the whole graph, whether it is unknown.
        sources: for each residual, the index of the known parameter that it is; None for a computed one.
    """

    known: Graph
    staged: Graph
    is_unknown: tuple[bool, ...]
    sources: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """What of a loop's step reaches the staged loop without being stacked for it.

    Attributes:
        params: for each parameter of the step, whether it does.
        fixed: for each parameter, whether it is the same in all steps.
        results: for each known result, whether it is stacked in any case.
    """

    params: tuple[bool, ...]
    fixed: tuple[bool, ...]
    results: tuple[bool, ...]


class PartialEvalOfGraph(Protocol):
    """Partial evaluation under a policy; without one, every value that the staged graph needs is a residual."""

    def __call__(self, graph: Graph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitGraph: ...

    def of_step(self, graph: Graph, is_unknown: Sequence[bool], crossing: Crossing) -> SplitGraph:
        """Split the step of a loop without a policy: the fewest bytes from which what is needed follows are saved."""

    def rematerialize(self, graph: Graph, policy: Policy) -> SplitGraph:
        """Split a known graph into one that saves what the policy lets it, and a staged one of the same results."""


@dataclass(frozen=True, slots=True)
class SplitRegion:
    """An op with regions in two.

    Attributes:
        known: a graph to inline now: known operands to known results, then residuals.
        staged: a graph to inline later: residuals, then what `again` recomputes, then unknown operands, to unknown
            results.
        is_unknown: for each result of the whole op, whether it is unknown.
        again: how the staged side has known values: residuals to known results, then what `staged` needs beside the
            residuals. None where the policy around the op is asked about each residual.
        is_decided: with `again`: for each residual, whether the op has asked that policy, which lets it be saved.
    """

    known: Graph
    staged: Graph
    is_unknown: tuple[bool, ...]
    again: Graph | None = None
    is_decided: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a result of an op with regions comes from.

    Attributes:
        eqn: the equation inside that computes it.
        steps: how many of its results are stacked.
    """

    eqn: Equation
    steps: int


class Region(Op):
    """Family base of ops that own graphs, whose rules transform these.

    `body` and what is said of it here hold for ops whose meaning is that of one graph applied to the operands; the
    others say for themselves.
    """

    __slots__ = ()
    body: Graph
    no_jvp = OF_REGION
    no_transpose = OF_REGION
    no_vmap = OF_REGION

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if tuple(operands) != self.body.param_types:
            found, expected = (", ".join(map(str, types)) for types in (operands, self.body.param_types))
            raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' takes ({expected}), got ({found})")
        return self.body.result_types

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(evaluate(self.body, operands))

    def flops(self, operands: Types, results: Types) -> int:
        return sum(eqn.flops for eqn in self.body.equations)

    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)

    def origin(self, result: int) -> Origin | None:
        """The equation inside that computes a result, for reports; None where the op computes it itself."""
        return None

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        """Emit the op over primals and tangents; its primal results and their tangents."""
        raise MissingRuleError(f"jvp of '{self.name}' needs {type(self).__name__}.jvp_region (ir/ops/regions.py)")

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        """Emit the adjoint; the cotangents of the operands, None for those that are not linear."""
        raise MissingRuleError(
            f"transpose of '{self.name}' needs {type(self).__name__}.transpose_region (ir/ops/regions.py)"
        )

    def takes_turns(self, is_batched: Sequence[bool]) -> bool:
        """Whether the elements of a batch must be taken one after another, instead of all at once."""
        return False

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        """Emit the op on a batch, as `Op.vmap` says. It may be that no operand is batched, but a collective inside."""
        raise MissingRuleError(f"vmap of '{self.name}' {needed_rule(self, 'vmap_region')}")

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        """Tell what the known operands determine from the rest; `policy` is that of the graph around the op."""
        raise MissingRuleError(
            f"partial evaluation of '{self.name}' needs {type(self).__name__}.split (ir/ops/regions.py)"
        )


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

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        return b.emit(replace(self, body=vmap(self.body, is_batched)[0]), *operands)


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
    """

    name = "checkpoint"
    body: Graph
    policy: Policy | None = None
    prevent_cse: bool | tuple[bool, ...] | None = None
    is_differentiated: bool = False

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
        """Which operands are behind the barrier in the body of a loop: none, unless the user asks for it.

        XLA merges nothing between the steps of the forward loop and those of the backward one.
        """
        return (False,) * len(self.body.params) if self.prevent_cse is None else self.pinned

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        body, has_tangent = jvp(self.body, [tangent is not None for tangent in tangents])
        present = [tangent for tangent in tangents if tangent is not None]
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            prevent_cse = (*prevent_cse, *(True for _ in present))
        results = b.emit(replace(self, body=body, prevent_cse=prevent_cse), *primals, *present)
        count = len(has_tangent)
        outgoing = iter(results[count:])
        return results[:count], tuple([next(outgoing) if is_set else None for is_set in has_tangent])

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        is_linear = [isinstance(operand, LinearOperand) for operand in operands]
        body, gets_ct = transpose(self.body, is_linear, [ct is not None for ct in cts])
        known = [operand for operand in operands if not isinstance(operand, LinearOperand)]
        present = [ct for ct in cts if ct is not None]
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            pinned = [pin for pin, is_set in zip(prevent_cse, is_linear, strict=True) if not is_set]
            prevent_cse = (*pinned, *(True for _ in present))
        adjoint = replace(self, body=body, prevent_cse=prevent_cse, is_differentiated=True)
        outgoing, wanted = iter(b.emit(adjoint, *known, *present)), iter(gets_ct)
        return tuple([next(outgoing) if is_set and next(wanted) else None for is_set in is_linear])

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        return b.emit(replace(self, body=vmap(self.body, is_batched)[0]), *operands)

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        """The region's own policy decides; its known part is no region any more."""
        part = partial_eval(self.body, is_unknown, self.policy or SaveNothing())
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
        return Checkpoint(pruned, self.policy, prevent_cse, self.is_differentiated), operands, results
