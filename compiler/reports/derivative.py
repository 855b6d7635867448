"""The report on one differentiated function: what a policy saves and recomputes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.differentiation import Differentiation
from rematc.compiler.reports.residuals import SavedResidual, describe_place, describe_residuals
from rematc.ir.core import Graph
from rematc.ir.locations import Location
from rematc.ir.types import TensorType
from rematc.passes.accounting import (
    Counted,
    Effects,
    Iterated,
    Work,
    count_effects,
    flat_equations,
    split_backward,
    total_work,
    uncounted_calls,
    work_by_op,
)
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.planning.shards import Shards
from rematc.passes.repeats import Repeat, repeats_in_segments


@dataclass(frozen=True, slots=True)
class RepeatedValue:
    """What several segments of the backward pass compute again: that takes less than holding it from one to the other.

    Attributes:
        op: the op.
        type: the result's element type and shape.
        place: the user's line, as ` from model.py:41 (attention)`; "" where it is not known.
        segments: how many segments compute it.
        flops: of one evaluation.
    """

    op: str
    type: TensorType
    place: str
    segments: int
    flops: int


@dataclass(frozen=True, slots=True)
class RecomputedValue:
    """What the backward pass computes again, as often as it stands there.

    Attributes:
        op: the op.
        type: the result's element type and shape.
        bytes: of the result, on each device.
        loc: the user's line; None where it is not known.
        count: how many evaluations there are, in loops all of them.
        flops: of all of them.
    """

    op: str
    type: TensorType
    bytes: int
    loc: Location | None
    count: int
    flops: int


@dataclass(frozen=True, slots=True)
class DerivativeReport:
    """One differentiated function.

    Attributes:
        function: its name.
        policy: the policy's text; "none" where there is no policy on the whole function.
        residuals: values computed in the forward graph and kept for the backward graph, biggest first.
        arguments: arguments that the backward graph reads; they cost no copy.
        recomputed: work that the backward graph repeats, by op, most FLOPs first.
        recomputed_values: the same by op, type and line, in program order.
        repeated: what of it several segments repeat.
        forward: work of the forward graph.
        recompute: work repeated in the backward graph.
        backward: the rest of the backward graph's work.
        effects: prints and callbacks in the function, which the forward pass has once, and the backward pass not.
        uncounted: calls of libraries in all of this, by the functions' names: their FLOPs are not known.
        is_planned: whether a plan for a budget decides what is kept and what is computed again: then residuals, and
            what is recomputed, are those before it, and not shown.
    """

    function: str
    policy: str
    residuals: tuple[SavedResidual, ...]
    arguments: tuple[SavedResidual, ...]
    recomputed: dict[str, Work]
    recomputed_values: tuple[RecomputedValue, ...]
    repeated: tuple[RepeatedValue, ...]
    forward: Work
    recompute: Work
    backward: Work
    effects: Effects
    uncounted: dict[str, int]
    is_planned: bool = False

    @property
    def saved_bytes(self) -> int:
        """Bytes of the residuals on the device; arguments are no copies and do not count."""
        return sum(row.bytes for row in self.residuals if not row.on_host)

    @property
    def host_bytes(self) -> int:
        """Bytes of the residuals that wait in the host's memory."""
        return sum(row.bytes for row in self.residuals if row.on_host)

    @property
    def is_spread(self) -> bool:
        """Whether values are spread over devices: sizes are those of what one of them holds."""
        return any(row.part for row in (*self.residuals, *self.arguments))

    @property
    def by_policy(self) -> tuple[SavedResidual, ...]:
        """The residuals that the policy asks for."""
        return tuple([row for row in self.residuals if not row.crosses])

    @property
    def crossing(self) -> tuple[SavedResidual, ...]:
        """The residuals that are saved because they cross from one segment to the next."""
        return tuple([row for row in self.residuals if row.crosses])

    def as_dict(self) -> dict[str, object]:
        """The report as JSON-able data; null for what a plan decides."""
        data = self._as_dict()
        if self.is_planned:
            data |= dict.fromkeys(_PLANNED)
        return data

    def _as_dict(self) -> dict[str, object]:
        return {
            "function": self.function,
            "policy": self.policy,
            "is_planned": self.is_planned,
            "saved_bytes": self.saved_bytes,
            "host_bytes": self.host_bytes,
            "crossing_bytes": sum(row.bytes for row in self.crossing),
            "residuals": [_residual_as_dict(row) for row in self.residuals],
            "arguments": [_residual_as_dict(row) for row in self.arguments],
            "recomputed": {name: asdict(work) for name, work in self.recomputed.items()},
            "recomputed_values": [_recomputed_as_dict(row) for row in self.recomputed_values],
            "repeated": [asdict(row) | {"type": str(row.type), "place": row.place.strip()} for row in self.repeated],
            "forward": asdict(self.forward),
            "recompute": asdict(self.recompute),
            "backward": asdict(self.backward),
            "effects": asdict(self.effects),
            "uncounted_calls": self.uncounted,
        }


#: What of a derivative a plan decides.
_PLANNED = (
    *("saved_bytes", "host_bytes", "crossing_bytes", "residuals", "arguments"),
    *("recomputed", "recomputed_values", "repeated", "forward", "recompute", "backward"),
)


def _residual_as_dict(row: SavedResidual) -> dict[str, object]:
    return {
        "type": str(row.type),
        "bytes": row.bytes,
        "provenance": row.provenance,
        "name": row.label,
        "crosses": row.crosses,
    }


def _recomputed_as_dict(row: RecomputedValue) -> dict[str, object]:
    return {
        "op": row.op,
        "type": str(row.type),
        "place": describe_place(row.loc).strip(),
        "count": row.count,
        "flops": row.flops,
    }


def report_derivative(record: Differentiation, *, is_planned: bool = False) -> DerivativeReport:
    """The report on one differentiated function."""
    vjp = record.vjp
    shards = record.shards()
    rows = describe_residuals(vjp.residuals, vjp.forward, record.policy, shards)
    computed = sorted((row for row in rows if not row.is_argument), key=lambda row: -row.bytes)
    forward, backward = _clean(vjp.forward), _clean(vjp.backward)
    is_ct = [index >= len(vjp.residuals) for index in range(len(backward.params))]
    parts, equations = split_backward(backward, is_ct), flat_equations(forward)
    return DerivativeReport(
        record.function,
        "none" if record.policy is None else record.policy.spec,
        tuple(computed),
        tuple(row for row in rows if row.is_argument),
        work_by_op(parts.recomputed),
        tuple(_recomputed_values(parts.recomputed, shards)),
        tuple([_repeated_value(one) for one in repeats_in_segments(backward, is_ct)]),
        total_work(equations),
        total_work(parts.recomputed),
        total_work(parts.adjoint),
        count_effects(record.primal),
        uncounted_calls([*equations, *parts.recomputed, *parts.adjoint]),
        is_planned,
    )


def _recomputed_values(equations: Sequence[Counted], shards: Shards) -> Iterator[RecomputedValue]:
    found: dict[tuple[str, TensorType, int, Location | None], Work] = {}
    for one in equations:
        eqn, times = (one.eqn, one.times) if isinstance(one, Iterated) else (one, 1)
        if eqn.results:
            (result, *_) = eqn.results
            key = eqn.op.name, result.type, shards.bytes(result), eqn.loc
            found[key] = found.get(key, Work()) + Work(times, one.flops)
    for (op, type, size, loc), work in found.items():
        yield RecomputedValue(op, type, size, loc, work.equations, work.flops)


def _repeated_value(repeat: Repeat) -> RepeatedValue:
    eqn = repeat.eqn
    return RepeatedValue(eqn.op.name, eqn.results[0].type, describe_place(eqn.loc), repeat.segments, eqn.flops)


def report_derivatives(records: Sequence[object], *, is_planned: bool = False) -> tuple[DerivativeReport, ...]:
    """Reports on all differentiations that a trace noted: in a program that `is_planned`, or each with its own plan."""
    return tuple(
        report_derivative(one, is_planned=is_planned or isinstance(following, BudgetReport))
        for one, following in zip_longest(records, records[1:])
        if isinstance(one, Differentiation)
    )


def _clean(graph: Graph) -> Graph:
    return DeadCode().run(CommonSubexpressions().run(graph))
