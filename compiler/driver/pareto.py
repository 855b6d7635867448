"""The curve of a program: what plans for many budgets, and policies, take in memory and in time."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rematc.compiler.driver.budget import Planner
from rematc.compiler.driver.lowered import Compiled, Lowered
from rematc.compiler.reports.pareto import Pareto, ParetoPoint, is_dominated, marked
from rematc.compiler.reports.slices import count_of
from rematc.ir.errors import CompileError
from rematc.ir.units import format_bytes
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.lowering.propagation import shards_of
from rematc.lowering.slicing import AUTO, Slices, is_cut
from rematc.passes.barriers import has_recomputation
from rematc.passes.planning.device import Device, device_of
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.planning.problem import simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from rematc.passes.slicing.slicing import WAYS

POINTS = 9
#: Into how many slices `auto` cuts: four times as many each time.
SLICES = (4, 16, 64)
#: The policies that stand beside plans; `everything` is the program without recomputation.
POLICIES = ("nothing", "dots", "dots-no-batch", "auto")
#: A graph whose recomputation is equations like others, as the model prices them: without barriers nothing is merged.
_FLAT = f"{BEFORE_PLAN},barriers{{strategy=none}},dce"


def sliced_for(slices: Slices, cut_in: Callable[[Slices], Lowered]) -> list[Lowered]:
    """A function in the numbers of slices that are asked for, by what lowers it in a number.

    Of `auto`, in each way to cut it, each program once; none where none are asked for. Raises CompileError for a number
    that saves nothing.
    """
    if not is_cut(slices):
        return []
    if slices != AUTO:
        return [cut_in(slices)]
    found: dict[str, Lowered] = {}
    for count, way in itertools.product(SLICES, WAYS):
        with suppress(CompileError):
            lowered = cut_in(InSlices(count, way))
            if lowered.slices is not None:
                found.setdefault(lowered.stablehlo(), lowered)
    return list(found.values())


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
    lowered: Lowered,
    policies: Mapping[str, Lowered],
    points: int = POINTS,
    seconds: float | None = None,
    sliced: Sequence[Lowered] = (),
) -> list[Candidate]:
    """Plans of a function from the smallest peak to that without recomputation, and it under policies, and in slices.

    Args:
        lowered: the function without a policy.
        policies: the function under each policy; one that changes nothing is no point.
        points: how many budgets are planned for; of each that is `sliced`, half as many.
        seconds: after how many no plan is improved any more.
        sliced: the function in slices, without a policy. One is left out that is predicted to take no less memory than
            another one, or than the function without slices, and no less time.

    Raises CompileError for less than two points.
    """
    if points < 2:
        raise CompileError(f"a curve has 2 points or more, got {points}")
    device = device_of(lowered.target.platform, lowered.target.device_kind)
    base = _amounts(lowered, device)
    found = _planned(lowered, base, base, points, seconds)
    cuts = _worth_it([(lowered, base), *((cut, _amounts(cut, device)) for cut in sliced)])
    counts = Counter([count_of(cut.slices) for cut, _ in cuts])
    for cut, own in cuts:
        count = count_of(cut.slices)
        way = cut.slices.asked.way if cut.slices is not None and counts[count] > 1 else ""
        name = ", ".join([f"{count} slices", *filter(None, [way])])
        found += _planned(cut, own, base, (points + 1) // 2, seconds, name)
    for policy, made in policies.items():
        if made.stablehlo() != lowered.stablehlo():
            found.append(_candidate(policy, made, _amounts(made, device), base))
    return found


def _worth_it(programs: Sequence[tuple[Lowered, Amounts]]) -> list[tuple[Lowered, Amounts]]:
    """All but the first, and but those that are predicted to take no less than another in memory and in time."""
    found: dict[tuple[int, int], tuple[Lowered, Amounts]] = {}
    for program, own in programs:
        found.setdefault((program.predicted_peak(), own.time), (program, own))
    _, *others = found.items()
    return [pair for taken, pair in others if not is_dominated(taken, found)]


def _planned(
    lowered: Lowered, own: Amounts, base: Amounts, points: int, seconds: float | None, cut: str = ""
) -> list[Candidate]:
    """Plans of a program that takes its `own` amounts without one; `base` is the program without slices.

    `cut` names a program in slices.
    """
    planner = Planner(lowered, seconds)
    kept = "no plan" if has_recomputation(lowered.graph) else "everything"
    count = count_of(lowered.slices)
    # The fastest plan for one budget may be that for a larger one, too.
    plans = {plan.does: plan for plan in reversed(planner.curve(points))}
    found = []
    for plan in reversed(plans.values()):
        is_kept = not plan.recomputes
        made = lowered if is_kept else planner.lower(plan, plan.budget)
        extra_time, extra_flops = plan.time - plan.time_without, plan.extra_flops
        amounts = Amounts(plan.peak, own.time + extra_time, own.flops + extra_flops)
        names = [cut] if cut else []
        if not is_kept:
            names.append(f"plan {format_bytes(plan.budget)}")
        found.append(_candidate(", ".join(names) or kept, made, amounts, base, count))
    return found


def _candidate(name: str, lowered: Lowered, amounts: Amounts, base: Amounts, slices: int = 1) -> Candidate:
    predicted = lowered.predicted_peak()
    seconds, flops = (amounts.time - base.time) / 1e9, amounts.flops - base.flops
    return Candidate(ParetoPoint(name, predicted, seconds, flops, plan=lowered.plan, slices=slices), lowered)


def _amounts(lowered: Lowered, device: Device) -> Amounts:
    graph = run_passes(lowered.traced.graph, _FLAT).graph
    translation = translate(graph, Machine(device, shards_of(graph, lowered.target, lowered.shardings)))
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
