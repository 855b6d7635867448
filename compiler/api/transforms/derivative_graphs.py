"""Graphs of derivatives: made under a policy, noted for reports, applied in a trace or run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jax.sharding import NamedSharding

from rematc.compiler.api.jit import run_graph
from rematc.compiler.driver.budget import plan_part, with_more_slices
from rematc.compiler.driver.slices import slice_graph, slices_of_program
from rematc.compiler.functions.calls import TracedFunction, apply_graph
from rematc.compiler.functions.policies import check_whole_names
from rematc.compiler.reports.differentiation import Differentiation
from rematc.compiler.reports.residuals import log_residuals
from rematc.compiler.reports.slices import asked_of
from rematc.compiler.tracing.options import NO_OPTIONS, Options
from rematc.compiler.tracing.trace import current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.ir.types import TensorType
from rematc.lowering.choosing import primal_for
from rematc.lowering.planning import Budget, GraphPlanner
from rematc.lowering.signature import Function, function_name
from rematc.lowering.slicing import Choice, Slices
from rematc.lowering.targeting import current_target
from rematc.passes import linearize as linearization


def run(
    graph: Graph, operands: Sequence[object], traced: TracedFunction, options: Options = NO_OPTIONS
) -> list[object]:
    """Apply a graph of `traced` to the operands and what it closes over: recorded in the open trace, or executed.

    Executed, it is compiled with the options of a function of these operands: some may be donated.
    """
    closure = (*traced.captures, *traced.constants)
    if current_trace() is None:
        return run_graph(graph, (*operands, *closure), options)
    return list(apply_graph(graph, (*operands, *closure), (False,) * len(graph.results)))


def require_float(names: Sequence[str], types: Sequence[TensorType], what: str) -> None:
    """Raise CompileError unless all these arguments are real floating-point arrays."""
    for name, type in zip(names, types, strict=True):
        if not type.dtype.is_float:
            raise CompileError(
                f"{what} {name} needs floating-point values, got {type}; leave it out of argnums, "
                "or convert it with astype",
                user_location(),
            )


@dataclass(frozen=True, slots=True)
class StagedVjp:
    """A vjp under a policy on the whole of a function.

    Attributes:
        primal: what was differentiated.
        policy: what of it may be saved.
        pulled: the vjp.
        lying: how its first parameters lie on several devices; None for what nobody knows.
    """

    primal: Graph
    policy: Policy | None
    pulled: linearization.Vjp
    lying: Sequence[NamedSharding | None]


def staged_vjp(
    function: Function,
    graph: Graph,
    policy: Policy | None,
    wrt: Sequence[bool],
    of: Sequence[bool],
    lying: Sequence[NamedSharding | None],
    slices: int = 1,
) -> StagedVjp:
    """The vjp of a function's graph, its segments chosen for so many slices of its largest value.

    `lying` is how its first parameters lie on several devices; None for what nobody knows.
    """
    check_whole_names(policy, graph, function_name(function))
    primal, policy = primal_for(graph, policy, wrt, of, current_target(), slices, lying)
    return StagedVjp(primal, policy, linearization.vjp(primal, wrt, of), lying)


def note(function: Function, staged: StagedVjp) -> None:
    """Note a vjp on the open trace for reports."""
    require_trace().records.append(
        Differentiation(
            function_name(function), staged.policy, staged.primal, staged.pulled, staged.lying, current_target()
        )
    )
    log_residuals(function_name(function), staged.pulled.residuals, staged.pulled.forward)


def noted_vjp(
    function: Function,
    graph: Graph,
    policy: Policy | None,
    wrt: Sequence[bool],
    of: Sequence[bool],
    lying: Sequence[NamedSharding | None],
) -> linearization.Vjp:
    """The vjp of a function's graph under a policy on the whole of it, noted on the open trace for reports."""
    staged = staged_vjp(function, graph, policy, wrt, of, lying, slices_of_program())
    note(function, staged)
    return staged.pulled


def planned_vjp(
    function: Function,
    staged: Callable[[int], StagedVjp],
    budget: Budget | None,
    slices: Slices,
    lying: Sequence[NamedSharding | None],
) -> Graph:
    """A vjp as one graph (`value_and_cotangents`), in slices and planned, noted on the open trace for reports.

    `staged` gives it for a number of slices; `lying` is as in `staged_vjp`. Raises CompileError, at the user's line,
    where nothing can be cut, and where no plan is predicted to fit.
    """
    target, records = current_target(), require_trace().records

    def derive(slices: int) -> Graph:
        return linearization.value_and_cotangents(staged(slices).pulled)

    def planned(slices: Slices) -> tuple[Choice, Graph, list[object]]:
        choice, sliced = slice_graph(derive, slices, target, budget=budget, shardings=lying)
        notes: list[object] = [] if sliced is None else [sliced]
        if budget is None:
            return choice, choice.graph, notes
        in_bytes = budget if sliced is None else budget.of_whole(sliced.whole)
        constraints, asked = in_bytes.constraints, asked_of(sliced)
        planner = GraphPlanner(choice.graph, target, constraints=constraints, shardings=lying, slices=asked)
        report = plan_part(planner, in_bytes, function_name(function))
        return choice, planner.applied(report.plan), [report, *notes]

    choice, graph, notes = with_more_slices(slices, planned)
    note(function, staged(choice.slices))
    records.extend(notes)
    return graph
