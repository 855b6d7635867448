"""Programs as problems, and plans as programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.policy import Policy
from rematc.ir.printer import print_graph
from rematc.ir.verifier import verify
from rematc.passes.barriers import Barriers
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import under_policy, vjp
from rematc.passes.manager import PassManager, parse_pipeline, print_pipeline
from rematc.passes.planning.apply import apply
from rematc.passes.planning.budget import plan_for_budget
from rematc.passes.planning.device import CPU, H100, V5E, device_named, device_of
from rematc.passes.planning.planning_pass import PlanPass
from rematc.passes.planning.problem import Stages, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import Translation, translate
from rematc.passes.planning.written_once import written_once
from tests.passes.test_barriers import training_step
from tests.support.random_graphs import graphs, same_bits
from tests.support.smooth_graphs import arrays_for, is_float, policies, run, smooth_graphs

ON_CPU = Machine(CPU)

# -- laws --------------------------------------------------------------------------------------------------------------


def flat(graph: Graph) -> Graph:
    return PassManager(parse_pipeline("inline,simplify,cse,dce")).run(graph).graph


@st.composite
def stages_of(draw: st.DrawFn, translation: Translation) -> Stages:
    """Any stages, whether they save anything or not."""
    repeatable = np.flatnonzero(translation.problem.is_repeatable).tolist()
    count = len(translation.problem.cost)
    begins = sorted(draw(st.sets(st.integers(1, count - 1), max_size=4))) if count > 1 else []
    again = [
        tuple(sorted(draw(st.sets(st.sampled_from(before), max_size=5)))) if before else ()
        for before in ([node for node in repeatable if node < begin] for begin in begins)
    ]
    return Stages(tuple(begins), tuple(again))


@settings(max_examples=40)
@given(smooth_graphs(), st.none() | policies(), st.data())
def test_any_plan_gives_the_same_bits(graph: Graph, policy: Policy | None, data: st.DataObject) -> None:
    primal = graph if policy is None else under_policy(graph, policy)
    before = flat(training_step(vjp(primal, is_float(graph))))
    translation = translate(before, ON_CPU)
    after = apply(translation, data.draw(stages_of(translation)))
    verify(after)
    arrays = arrays_for(graph)
    expected = run(before, arrays)
    assert same_bits(run(after, arrays), expected)
    lowered = Barriers("optimization_barrier").run(after)
    verify(lowered)
    assert same_bits(run(lowered, arrays), expected)


@settings(max_examples=30)
@given(graphs(), st.floats(0, 1))
def test_a_planned_program_is_valid(graph: Graph, part: float) -> None:
    before = flat(graph)
    translation = translate(before, ON_CPU)
    found = plan_for_budget(translation.problem, int(part * simulate(translation.problem).peak))
    after = apply(translation, found.stages)
    verify(after)
    assert (after.param_types, after.result_types) == (before.param_types, before.result_types)


@settings(max_examples=30)
@given(smooth_graphs(regions=0), st.data())
def test_nothing_starts_before_the_work_ahead_of_its_stage(graph: Graph, data: st.DataObject) -> None:
    """All work of a stage is behind the barrier of the next one, so that no compiler begins that one earlier."""
    translation = translate(flat(training_step(vjp(graph, is_float(graph)))), ON_CPU)
    stages = data.draw(stages_of(translation))
    after = DeadCode().run(Barriers("optimization_barrier").run(apply(translation, stages)))
    pins = any(written_once(translation.problem, stages))
    producer = {value: eqn for eqn in after.equations for value in eqn.results}
    seen: set[Equation] = set()
    for index, eqn in enumerate(after.equations):
        # A barrier behind one value, which is to be written once, begins no stage.
        if isinstance(eqn.op, OptimizationBarrier) and not (pins and len(eqn.operands) == 1):
            work = list(eqn.operands)
            while work:
                source = producer.get(work.pop())
                if source is not None and source not in seen:
                    seen.add(source)
                    work.extend(source.operands)
            assert all(one in seen or one.op.is_fusible for one in after.equations[:index]), print_graph(after)


# -- what becomes of a program -----------------------------------------------------------------------------------------

CHAIN = """graph @f(%w: f32[64,64], %x: f32[256,64]) -> (f32[256,64]) {
  %0: f32[256,64] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[256,64] = tanh %0
  %2: f32[256,64] = dot_general %1, %w {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[256,64] = tanh %2
  %4: f32[256,64] = dot_general %3, %w {contract=[[1],[0]], batch=[[],[]]}
  %5: f32[256,64] = multiply %4, %3
  %6: f32[256,64] = dot_general %5, %w {contract=[[1],[0]], batch=[[],[]]}
  %7: f32[256,64] = multiply %6, %1
  return %7
}"""
UNIT = 256 * 64 * 4


def test_kernels_are_nodes_and_what_is_in_memory_are_values() -> None:
    translation = translate(parse(CHAIN), ON_CPU)
    problem = translation.problem
    assert [translation.own(node).op.name for node in range(len(problem.cost))] == [
        *("dot_general", "tanh", "dot_general", "tanh", "dot_general", "multiply", "dot_general", "multiply")
    ]
    assert problem.size.tolist() == [UNIT] * 7 + [0], "the result lies in its own memory"
    assert [sorted(read) for read in problem.reads] == [[], [0], [1], [2], [3], [3, 4], [5], [1, 6]]
    assert problem.replaces.tolist() == [-1, 0, -1, 2, -1, 4, -1, 6]
    assert problem.is_repeatable.all()


def test_what_is_fused_belongs_to_what_reads_it() -> None:
    text = """graph @f(%x: f32[8]) -> (f32[]) {
      %0: f32[8] = negate %x
      %1: f32[8] = sine %0
      %2: f32[] = reduce_sum %1 {dimensions=[0]}
      return %2
    }"""
    (cluster,) = translate(parse(text), ON_CPU).clusters
    assert [eqn.op.name for eqn in cluster] == ["negate", "sine", "reduce_sum"]


def test_a_budget_that_fits_leaves_the_program_as_it_is() -> None:
    graph = parse(CHAIN)
    assert PlanPass(8 * UNIT).run(graph) is graph
    assert PlanPass().run(graph) is graph


def test_a_budget_puts_recomputation_into_regions_behind_what_comes_before() -> None:
    graph = parse(CHAIN)
    translation = translate(graph, ON_CPU)
    after = apply(translation, Stages((6,), ((0, 1),)))
    (region,) = [eqn for eqn in after.equations if isinstance(eqn.op, Checkpoint)]
    assert [eqn.op.name for eqn in region.op.regions()[0].equations] == [
        "dot_general",
        "tanh",
        "dot_general",
        "multiply",
    ]
    multiplied = graph.equations[5].results[0]
    assert set(region.operands) == {*graph.params, multiplied}
    (barrier,) = [eqn for eqn in Barriers().run(after).equations if isinstance(eqn.op, OptimizationBarrier)]
    assert multiplied in barrier.operands, "the work right before the stage"
    assert graph.params[0] in barrier.operands, "the smaller of what recomputation reads; XLA would merge it otherwise"


def test_work_that_the_stage_does_not_read_comes_before_it_nevertheless() -> None:
    text = """graph @f(%w: f32[64,64], %x: f32[256,64]) -> (f32[256,64], f32[256,64]) {
      %0: f32[256,64] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
      %1: f32[256,64] = dot_general %0, %w {contract=[[1],[0]], batch=[[],[]]}
      %2: f32[256,64] = dot_general %0, %w {contract=[[1],[0]], batch=[[],[]]}
      return %1, %2
    }"""
    graph = parse(text)
    after = apply(translate(graph, ON_CPU), Stages((2,), ((0,),)))
    region = after.equations[-1]
    one = graph.equations[1].results[0]
    assert one in region.operands
    assert after.results[0] in region.results, "the region gives it on"


def test_the_smallest_plan_and_what_holds_it_up_are_in_the_error() -> None:
    with pytest.raises(CompileError, match=r"needs 10 bytes.*the smallest takes \d+, and holds\n  .*f32\[256,64\]"):
        PlanPass(10).run(parse(CHAIN))


def test_loops_may_run_again_and_take_what_they_need_inside() -> None:
    body = CHAIN.replace("@f", "@g").rstrip()
    text = f"""graph @f(%x: f32[256,64], %w: f32[64,64]) -> (f32[256,64]) {{
      %0: f32[256,64] = scan %w, %x {{body={body}, consts=1, carry=1, length=3}}
      %1: f32[256,64] = sine %0
      return %1
    }}"""
    problem = translate(parse(text), ON_CPU).problem
    assert problem.is_repeatable.tolist() == [True, True]
    assert problem.workspace.tolist() == [simulate(translate(parse(CHAIN), ON_CPU).problem).peak, 0]


def test_the_pass_stands_in_pipelines() -> None:
    text = "plan{budget=2147483648,device=h100},barriers"
    assert print_pipeline(parse_pipeline(text)) == text
    with pytest.raises(CompileError, match="unknown device 'abacus'"):
        parse_pipeline("plan{device=abacus}")
    with pytest.raises(CompileError, match="a budget is a number of bytes, got -1"):
        parse_pipeline("plan{budget=-1}")


# -- devices -----------------------------------------------------------------------------------------------------------


def test_a_kernel_takes_what_it_is_bound_by() -> None:
    assert CPU.time(0.0, 0, 2048 * 1000) == 1000 + 10_000
    assert CPU.time(CPU.product_time(5018 * 20_000, 32), 0, 2048) == 1000 + 20_000
    assert H100.product_time(10**9, 16) < H100.product_time(10**9, 32) < H100.product_time(10**9, 64)
    assert V5E.product_time(10**6, 64) == V5E.product_time(10**6, 32)


def test_devices_have_names_and_platforms() -> None:
    assert device_named("h100") is H100
    assert [device_of(name).name for name in ("cpu", "cuda", "tpu")] == ["cpu", "h100", "v5e"]
