"""Plans as objects: JSON, text, differences, explanations, and programs that have changed."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.passes.linearize import vjp
from rematc.passes.planning.addressing import program_of
from rematc.passes.planning.budget import curve, plan_for_budget
from rematc.passes.planning.device import CPU
from rematc.passes.planning.plan import Bound, Plan
from rematc.passes.planning.planned_program import PlannedProgram
from rematc.passes.planning.problem import AS_IT_STANDS, Stages, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from tests.passes.planning.test_planning_pass import CHAIN, UNIT, flat
from tests.passes.test_barriers import training_step
from tests.support.random_graphs import graphs
from tests.support.smooth_graphs import is_float, smooth_graphs

ON_CPU = Machine(CPU)


def planned(graph: Graph, part: float) -> Plan:
    """The plan for a part of what the program needs without one."""
    translation = translate(graph, ON_CPU)
    found = plan_for_budget(translation.problem, int(part * simulate(translation.problem).peak))
    return Plan(found.budget, CPU.name, Bound.known(found.bound), found.stages, program_of(translation))


def joint(graph: Graph) -> Graph:
    return flat(training_step(vjp(graph, is_float(graph))))


@settings(max_examples=30)
@given(smooth_graphs(regions=0), st.floats(0.3, 1))
def test_plans_say_what_was_found_and_read_back(graph: Graph, part: float) -> None:
    translation = translate(joint(graph), ON_CPU)
    found = plan_for_budget(translation.problem, int(part * simulate(translation.problem).peak))
    plan = Plan(found.budget, CPU.name, Bound.known(found.bound), found.stages, program_of(translation))
    assert (plan.peak, plan.time, plan.is_feasible) == (found.run.peak, found.run.time, found.is_feasible)
    assert sorted(plan.held) == sorted(found.held)
    assert plan.flops == translation.flops(range(len(translation.clusters)))
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()


@settings(max_examples=30)
@given(graphs())
def test_any_program_has_a_document(graph: Graph) -> None:
    plan = planned(flat(graph), 1)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.diff(plan).is_empty
    assert str(plan.diff(plan)) == "the plans are the same"


@settings(max_examples=20)
@given(smooth_graphs(regions=0), st.data())
def test_everything_is_explained(graph: Graph, data: st.DataObject) -> None:
    plan = planned(joint(graph), 0.6)
    for place in range(len(plan.program.kernels)):
        assert plan.explain(plan.program.label(place)).startswith(f"{plan.program.label(place)}: ")


@settings(max_examples=20)
@given(smooth_graphs(regions=0))
def test_more_points_never_cost_more_time(graph: Graph) -> None:
    problem = translate(joint(graph), ON_CPU).problem
    peak = simulate(problem).peak
    few = [peak * part // 4 for part in range(2, 5)]
    many = curve(problem, [peak * part // 8 for part in range(4, 9)])[::2]
    for one, other in zip(curve(problem, few), many, strict=True):
        assert not one.is_feasible or other.run.time <= one.run.time


# -- which program -----------------------------------------------------------------------------------------------------


def test_names_and_lines_change_no_digest() -> None:
    graph = parse(CHAIN)
    other = parse(CHAIN.replace("%w", "%weight").replace("%x", "%input").replace("@f", "@g"))
    programs = [program_of(translate(each, ON_CPU)) for each in (graph, other)]
    assert programs[0] == programs[1]
    assert len({kernel.digest for kernel in programs[0].kernels}) == len(programs[0].kernels)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%3: f32[256,64] = tanh", "%3: f32[256,64] = sine", r"kernel 3: tanh, f32\[256,64\]; now sine"),
        ("multiply %6, %1", "multiply %6, %0", "kernel 7: multiply"),
        (
            "f32[256",
            "f32[128",
            r"kernel 0: dot_general, f32\[256,64\]; now dot_general, f32\[128,64\]\n.*\n.*\n.*5 others",
        ),
        ("contract=[[1],[0]]", "contract=[[1],[1]]", "kernel 0: dot_general"),
        ("return %7", "return %6", "kernel 6: dot_general"),
    ],
)
def test_a_program_that_has_changed_is_noticed(old: str, new: str, message: str) -> None:
    plan = planned(parse(CHAIN), 0.5)
    with pytest.raises(CompileError, match=rf"(?s)the plan was made for another program.*{message}"):
        program_of(translate(parse(CHAIN.replace(old, new)), ON_CPU)).check_same(plan.program)


def test_programs_that_are_longer_or_shorter_are_noticed() -> None:
    longer = CHAIN.replace("return %7", "%8: f32[] = reduce_sum %7 {dimensions=[0,1]}\n  return %7, %8")
    longer = longer.replace("-> (f32[256,64])", "-> (f32[256,64], f32[])")
    one, other = [program_of(translate(parse(text), ON_CPU)) for text in (CHAIN, longer)]
    with pytest.raises(CompileError, match=r"of 8 kernels; this one has 9(?s:.)*kernel 8: .*; was not there"):
        other.check_same(one)
    with pytest.raises(CompileError, match=r"of 9 kernels; this one has 8(?s:.)*kernel 8: .*; is no longer there"):
        one.check_same(other)


@pytest.mark.parametrize(
    ("begins", "again", "message"),
    [
        ((9,), ((0,),), "begins at kernel 9"),
        ((0,), ((),), "begins at kernel 0"),
        ((4, 3), ((0,), (0,)), "begins at kernel 3, after 4"),
        ((4,), ((5,),), "before it has run"),
        ((4,), ((-1,),), "before it has run"),
        ((4,), ((1, 0),), "another order"),
    ],
)
def test_stages_that_are_none_are_refused(
    begins: tuple[int, ...], again: tuple[tuple[int, ...], ...], message: str
) -> None:
    program = planned(parse(CHAIN), 1).program
    with pytest.raises(CompileError, match=message):
        program.check_stages(Stages(begins, again))


def test_what_must_not_be_repeated_is_not() -> None:
    program = planned(parse(CHAIN), 1).program
    fixed = dataclasses.replace(program.kernels[1], is_repeatable=False)
    program = dataclasses.replace(program, kernels=(program.kernels[0], fixed, *program.kernels[2:]))
    with pytest.raises(CompileError, match=r"runs tanh, f32\[256,64\], again, which must not be repeated"):
        program.check_stages(Stages((3,), ((1,),)))


# -- documents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]", "the document is"),
        ("{}", "its 'format' is"),
        ('{"format": "rematc plan 1"}', "'kernels' of the document is null, expected list"),
    ],
)
def test_what_is_no_plan(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=f"this is no plan of rematc's: .*{message}"):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("budget", True, "'budget' of the document is true, expected int"),
        ("stages", [{"begin": 1, "again": ["x"]}], "'again' of a stage"),
        ("stages", [{"begin": 99, "again": []}], "begins at kernel 99"),
        ("kernels", [{"op": "sine", "digest": "", "reads": [0]}], "kernel 0 reads what is not there"),
        ("kernels", [{"op": "sine"}], "'digest' of kernel 0"),
        ("kernels", [3], "kernel 0 is 3, expected an object"),
    ],
)
def test_documents_are_checked(name: str, value: object, message: str) -> None:
    document = json.loads(planned(parse(CHAIN), 1).to_json()) | {"stages": []} | {name: value}
    with pytest.raises(CompileError, match=message):
        Plan.from_json(json.dumps(document))


# -- texts -------------------------------------------------------------------------------------------------------------


def chain_plan() -> Plan:
    """The first product and what follows from it are run again before the sixth kernel."""
    program = program_of(translate(parse(CHAIN), ON_CPU))
    return Plan(3 * UNIT, CPU.name, Bound.known(1), Stages((6,), ((0, 1),)), program)


def test_the_text_has_figures_what_is_live_and_what_runs_again() -> None:
    text = str(chain_plan())
    for line in ("budget               192.0 KiB", "predicted peak", "live at the peak, when", "no plan is below"):
        assert line in text
    assert "computed again before dot_general.6\ndot_general.0  f32[256,64]  64.0 KiB  1.72 us\ntanh.1 " in text
    assert "Plan(budget=196608" in repr(chain_plan())


def test_long_lists_of_values_are_cut() -> None:
    lines = planned(parse(CHAIN), 0).describe_held(most=1).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("  and ")


def test_of_what_is_live_the_largest_kernels_are_shown() -> None:
    kernel = planned(parse(CHAIN), 1).program.kernels[0]
    program = PlannedProgram((*[kernel] * 30, dataclasses.replace(kernel, reads=tuple(range(30)))))
    text = str(Plan(1, CPU.name, Bound.known(1), AS_IT_STANDS, program))
    assert "dot_general.18 " in text
    assert "dot_general.25 " not in text
    assert text.endswith("and 11 others of 704.0 KiB")


def test_names_whose_values_are_all_kept_make_a_policy() -> None:
    plan = chain_plan()
    names = {0: ("a",), 1: ("both", "one"), 2: ("c",), 3: ("both",)}
    kernels = [
        dataclasses.replace(kernel, names=names.get(place, ())) for place, kernel in enumerate(plan.program.kernels)
    ]
    plan = dataclasses.replace(plan, program=PlannedProgram(tuple(kernels)))
    assert plan.saved_names == ("c",)
    assert dataclasses.replace(plan, stages=AS_IT_STANDS).saved_names == ("a", "both", "one", "c")


def test_differences_are_named() -> None:
    one = chain_plan()
    other = dataclasses.replace(one, stages=Stages((7,), ((1, 2),)))
    diff = one.diff(other)
    assert (diff.kept_by_first, diff.kept_by_second, diff.moved) == ((2,), (0,), (1,))
    assert not diff.is_empty
    assert "kept by the first plan, computed again by the second\ndot_general.2" in str(diff)


def test_explanations_are_simulations() -> None:
    plan = chain_plan()
    kept = dataclasses.replace(plan, stages=AS_IT_STANDS)
    again = plan.explain("tanh.1")
    assert "computed again before dot_general.6, and 1 kernel that does so for it alone" in again
    saved = plan.time - plan.time_without
    assert f"kept instead: {saved / 1e3:.2f} us less" in again
    before = kept.explain("tanh.1")
    assert "kept: read by dot_general.2, multiply.7" in before
    assert f"with 1 kernel that it needs: {saved / 1e3:.2f} us more" in before
    assert "a result of the program" in plan.explain("multiply.7")
    assert "read at once" in plan.explain("dot_general.4")
    with pytest.raises(CompileError, match=r"the plan has no value 'tanhh'; did you mean 'tanh'"):
        plan.explain("tanhh")
