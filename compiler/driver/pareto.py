"""The curve of a program: what plans for many budgets, and policies, take in memory and in time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rematc.compiler.driver.budget import Planner
from rematc.compiler.driver.lowered import Compiled, Lowered
from rematc.compiler.reports.pareto import Pareto, ParetoPoint, marked
from rematc.ir.errors import CompileError
from rematc.ir.units import format_bytes
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.passes.barriers import has_recomputation
from rematc.passes.planning.device import Device, device_of
from rematc.passes.planning.problem import simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate

POINTS = 9
#: The policies that stand beside plans; `everything` is the program without recomputation.
POLICIES = ("nothing", "dots", "dots-no-batch", "auto")
#: A graph whose recomputation is equations like others, as the model prices them: without barriers nothing is merged.
_FLAT = f"{BEFORE_PLAN},barriers{{strategy=none}},dce"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be a point of the curve.

    Attributes:
        point: what is predicted of it.
        lowered: the program.
    """

    point: ParetoPoint
    lowered: Lowered


@dataclass(frozen=True, slots=True)
class Amounts:
    """What running a program takes in the model: bytes at the peak, nanoseconds, floating-point operations."""

    peak: int
    time: int
    flops: int


def candidates(
    lowered: Lowered, policies: Mapping[str, Lowered], points: int = POINTS, seconds: float | None = None
) -> list[Candidate]:
    """Plans of a function from the smallest peak to that without recomputation, and it under policies.

    Args:
        lowered: the function without a policy.
        policies: the function under each policy; one that changes nothing is no point.
        points: how many budgets are planned for.
        seconds: after how many no plan is improved any more.

    Raises CompileError for less than two points.
    """
    if points < 2:
        raise CompileError(f"a curve has 2 points or more, got {points}")
    device = device_of(lowered.target.platform, lowered.target.device_kind)
    base = _amounts(lowered, device)
    planner = Planner(lowered, seconds)
    kept = "no plan" if has_recomputation(lowered.graph) else "everything"
    found = []
    for plan in planner.curve(points):
        is_kept = not plan.recomputes
        made = lowered if is_kept else planner.lower(plan, plan.budget)
        extra_time, extra_flops = plan.time - plan.time_without, plan.extra_flops
        amounts = Amounts(plan.peak, base.time + extra_time, base.flops + extra_flops)
        found.append(_candidate(kept if is_kept else f"plan {format_bytes(plan.budget)}", made, amounts, base))
    for policy, made in policies.items():
        if made.stablehlo() != lowered.stablehlo():
            found.append(_candidate(policy, made, _amounts(made, device), base))
    return found


def _candidate(name: str, lowered: Lowered, amounts: Amounts, base: Amounts) -> Candidate:
    predicted = lowered.predicted_peak()
    seconds, flops = (amounts.time - base.time) / 1e9, amounts.flops - base.flops
    return Candidate(ParetoPoint(name, predicted, seconds, flops, plan=lowered.plan), lowered)


def _amounts(lowered: Lowered, device: Device) -> Amounts:
    translation = translate(run_passes(lowered.traced.graph, _FLAT).graph, Machine(device))
    problem = translation.problem
    run = simulate(problem)
    return Amounts(run.peak, run.time, translation.flops(range(len(problem.cost))))


def measured(found: list[Candidate], compile: Callable[[Lowered, str], Compiled] | None) -> Pareto:
    """The curve of candidates, each compiled by the function that is given, with its name; None for predictions."""
    points = []
    for candidate in found:
        point = candidate.point
        if compile is not None:
            amount = compile(candidate.lowered, point.name).memory().temp_bytes
            point = dataclasses.replace(point, measured=amount)
        points.append(point)
    lowered = found[0].lowered
    device = device_of(lowered.target.platform, lowered.target.device_kind)
    base = _amounts(lowered, device)
    return Pareto(marked(points), lowered.target.name, device.name, base.time / 1e9, base.flops)
