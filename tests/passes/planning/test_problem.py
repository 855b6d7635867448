"""Simulating a plan: the naive reference says the same, and so does what follows a plan while it changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rematc.passes.planning.problem import GIVEN, Problem, Stages, order, simulate
from rematc.passes.planning.timeline import Timeline
from tests.support.problems import problems, staged


def naive(problem: Problem, stages: Stages) -> list[int]:
    """The bytes live at each step, one copy after another."""
    steps = order(len(problem.cost), stages).tolist()
    copies = []  # value, first step, last step, whether it lives until the end
    for value, size in enumerate(problem.size.tolist()):
        writes = [step for step, node in enumerate(steps) if value in problem.writes[node]]
        if problem.producer[value] == GIVEN:
            writes = [0]
        for write, following in zip(writes, [*writes[1:], len(steps)], strict=True):
            reads = [step for step in range(write, following) if value in problem.reads[steps[step]]]
            is_lasting = following == len(steps) and bool(problem.is_result[value])
            if problem.producer[value] == GIVEN and not reads and not is_lasting:
                continue
            copies.append((value, size, write, max([write, *reads]), is_lasting))
    live = [int(problem.workspace[node]) for node in steps]
    for value, size, first, last, is_lasting in copies:
        for step in range(first, len(steps) if is_lasting else last + 1):
            live[step] += size
        for other, taken, _, end, other_lasts in copies:
            if other == problem.replaces[value] and end == first and not other_lasts:
                live[first] -= min(size, taken)
    return live


@given(st.data())
def test_simulation_says_what_the_naive_one_says(data: st.DataObject) -> None:
    problem = data.draw(problems())
    stages = data.draw(staged(problem))
    run = simulate(problem, stages)
    assert run.live.tolist() == naive(problem, stages)
    assert run.peak == max(run.live) == run.live[run.at]
    assert run.time == sum(problem.cost[node] for node in run.steps)


@given(st.data())
def test_a_timeline_follows_a_plan_that_changes(data: st.DataObject) -> None:
    problem = data.draw(problems())
    first, second = data.draw(staged(problem)), data.draw(staged(problem))
    timeline = Timeline(problem, first)
    for begin, again in zip(first.begins, first.again, strict=True):
        for node in again:
            timeline.remove(timeline.key(begin, node))
            assert timeline.live.tolist() == simulate(problem, timeline.stages()).live.tolist()
    for begin, again in zip(second.begins, second.again, strict=True):
        for node in again:
            timeline.insert(timeline.key(begin, node))
            run = simulate(problem, timeline.stages())
            assert (timeline.live.tolist(), timeline.time) == (run.live.tolist(), run.time)
            live = sum(timeline.size[value] for value in timeline.held(run.at))
            assert live >= run.peak - problem.workspace[run.steps[run.at]]
