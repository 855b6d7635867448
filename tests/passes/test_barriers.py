"""Where barriers stand, and what they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.structural import Name, OptimizationBarrier
from rematc.ir.policy import Policy
from rematc.ir.types import F64, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.passes.barriers import Barriers
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.inline import Inline
from rematc.passes.linearize import Vjp, under_policy, vjp
from rematc.passes.policies import parse_policy
from tests.support.random_graphs import same_bits
from tests.support.smooth_graphs import arrays_for, count_ops, is_float, policies, run, smooth_graphs

SCALAR = TensorType(F64, ())


def training_step(pulled: Vjp) -> Graph:
    """Forward and backward graph in one, as `value_and_grad` has them."""
    b = Builder("step")
    params = [b.parameter(value.type, value.name) for value in pulled.forward.params]
    results = b.inline(pulled.forward, params)
    count = len(results) - len(pulled.residuals)
    cts = [b.full(value.type, 1.0) for value in pulled.backward.params[len(pulled.residuals) :]]
    return b.build(*results[:count], *b.inline(pulled.backward, [*results[count:], *cts]))


def barriers(graph: Graph) -> list[Equation]:
    return [eqn for eqn in graph.equations if isinstance(eqn.op, OptimizationBarrier)]


def step(text: str, policy: str | None = None) -> Graph:
    """The training step of a graph through the pass."""
    graph = parse(text)
    primal = graph if policy is None else under_policy(graph, parse_policy(policy))
    return Barriers().run(training_step(vjp(primal, is_float(graph))))


def pinned(barrier: Equation, graph: Graph) -> list[Value]:
    """What a barrier holds but for the results of the graph, which are done by then."""
    return [value for value in barrier.operands if value not in graph.results]


# -- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(smooth_graphs(), st.none() | policies(), st.sampled_from(["optimization_barrier", "none"]))
def test_the_meaning_stays_and_no_region_is_left(graph: Graph, policy: Policy | None, strategy: str) -> None:
    primal = graph if policy is None else under_policy(graph, policy)
    before = training_step(vjp(primal, is_float(graph)))
    after = Barriers(strategy).run(before)
    verify(after)
    assert "checkpoint" not in count_ops(after)
    arrays = arrays_for(graph)
    assert same_bits(run(after, arrays), run(before, arrays))


@settings(max_examples=40)
@given(smooth_graphs(), st.none() | policies())
def test_the_forward_graph_has_no_barrier(graph: Graph, policy: Policy | None) -> None:
    primal = graph if policy is None else under_policy(graph, policy)
    assert not barriers(Barriers().run(vjp(primal, is_float(graph)).forward))
    assert not barriers(Barriers().run(primal)), "nor has a graph that is not differentiated"


# -- what a barrier holds ----------------------------------------------------------------------------------------------

LAYERS = """graph @f(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {{
  %0: f64[3] = checkpoint %w, %x {{body=graph @g(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {{
    %0: f64[3] = dot_general %w, %x {{contract=[[1],[0]], batch=[[],[]]}}
    %1: f64[3] = sine %0
    return %1
  }}{0}}}
  %1: f64[3] = checkpoint %w, %0 {{body=graph @g(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {{
    %0: f64[3] = dot_general %w, %x {{contract=[[1],[0]], batch=[[],[]]}}
    %1: f64[3] = sine %0
    return %1
  }}{0}}}
  return %1
}}"""


def test_one_barrier_for_each_region_over_its_residuals_and_cotangent() -> None:
    graph = step(LAYERS.format(""))
    last, first = barriers(graph)
    w, x = graph.params
    sines = [eqn.results[0] for eqn in graph.equations if eqn.op.name == "sine"]
    assert last.operands[:2] == (w, sines[0])
    assert first.operands[:2] == (w, x), "parameters, too: nothing that follows from them is the forward pass's"
    producer = {value: eqn for eqn in graph.equations for value in eqn.results}
    assert producer[last.operands[2]].op.name == "broadcast_in_dim", "the cotangent of the result"
    first_ct = first.operands[2]
    assert producer[first_ct].op.name == "dot_general", "the cotangent that the last layer's backward pass gives"


def test_the_barriers_of_a_plan_hold_values_in_the_order_of_the_program() -> None:
    text = """graph @f(%x: f32[4], %y: f32[4]) -> (f32[4], f32[4]) {
      %0: f32[4] = sine %x
      %1: f32[4] = cosine %y
      %2: f32[4] = exponential %x
      %3: f32[4] = checkpoint %2, %1, %x {is_differentiated=true, is_scheduled=true, body=graph @g(%a: f32[4],
          %b: f32[4], %c: f32[4]) -> (f32[4]) { %0: f32[4] = multiply %a, %b
          %1: f32[4] = multiply %0, %c   return %1 }}
      return %0, %3
    }"""
    assert _held(text) == ["x", "sine", "cosine", "exponential"]
    assert _held(text.replace(", is_scheduled=true", "")) == ["exponential", "cosine", "x", "sine"], "as they are given"


def _held(text: str) -> list[str | None]:
    """What the one barrier holds: the ops that write it, or the names of parameters."""
    graph = Barriers().run(parse(text))
    (barrier,) = barriers(graph)
    producer = {value: eqn.op.name for eqn in graph.equations for value in eqn.results}
    return [producer.get(value, value.name) for value in barrier.operands]


def test_what_stands_behind_a_barrier_reads_only_its_results_and_parameters() -> None:
    graph = step(LAYERS.format(""))
    (last, first) = barriers(graph)
    order = {eqn: index for index, eqn in enumerate(graph.equations)}
    between = graph.equations[order[last] + 1 : order[first]]
    behind = {value for eqn in between for value in eqn.results} | set(last.results)
    assert all(behind.union(graph.params).issuperset(eqn.operands) for eqn in between)
    assert not any(behind.isdisjoint(eqn.operands) for eqn in between if eqn.operands), "xla could merge it"
    counted = count_ops(graph)
    assert (counted["sine"], counted["cosine"], counted["dot_general"]) == (2, 2, 2 + 2 + 2 * 2)


def test_cse_never_merges_recomputation_with_the_forward_graph() -> None:
    graph = step(LAYERS.format(""))
    assert count_ops(CommonSubexpressions().run(graph)) == count_ops(graph)
    without = Barriers("none").run(training_step(vjp(parse(LAYERS.format("")), [True, True])))
    assert count_ops(CommonSubexpressions().run(without))["dot_general"] == 2 + 2 * 2


def test_saved_values_are_pinned() -> None:
    graph = _flat_step("dots")
    (barrier,) = barriers(graph)
    assert [str(value.type) for value in pinned(barrier, graph)] == ["f64[3,3]", *["f64[3]"] * 4], "and the parameters"


def _flat_step(policy: str) -> Graph:
    return step(
        """graph @f(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {
             %0: f64[3] = dot_general %w, %x {contract=[[1],[0]], batch=[[],[]]}
             %1: f64[3] = sine %0
             %2: f64[3] = dot_general %w, %1 {contract=[[1],[0]], batch=[[],[]]}
             %3: f64[3] = sine %2
             return %3
           }""",
        policy,
    )


def test_without_prevent_cse_there_is_no_barrier() -> None:
    graph = step(LAYERS.format(", prevent_cse=false"))
    assert not barriers(graph)
    assert count_ops(graph)["dot_general"] == 2 + 2 + 2 * 2, "xla may merge what is recomputed, we do not"


def test_a_tuple_pins_exactly_these_operands() -> None:
    graph = step(LAYERS.format(", prevent_cse=[false,true]"))
    w = graph.params[0]
    for barrier in barriers(graph):
        assert len(pinned(barrier, graph)) == 2, "x and the cotangent"
        assert w not in barrier.operands
    assert len(barriers(graph)) == 2


def test_a_value_given_twice_is_in_the_barrier_once() -> None:
    graph = step(
        """graph @f(%x: f64[3]) -> (f64[3]) {
             %0: f64[3] = checkpoint %x, %x {body=graph @g(%x: f64[3], %y: f64[3]) -> (f64[3]) {
               %0: f64[3] = multiply %x, %y
               return %0
             }, prevent_cse=true}
             return %0
           }"""
    )
    (barrier,) = barriers(graph)
    assert len(pinned(barrier, graph)) == 2


def test_recomputation_begins_when_the_loss_is_there() -> None:
    text = """graph @f(%x: f64[3]) -> (f64[]) {
      %0: f64[3] = checkpoint %x {body=graph @g(%x: f64[3]) -> (f64[3]) {
        %0: f64[3] = sine %x
        %1: f64[3] = exponential %0
        return %1
      }}
      %1: f64[] = reduce_sum %0 {dimensions=[0]}
      return %1
    }"""
    graph = step(text)
    loss = graph.results[0]
    (barrier,) = barriers(graph)
    assert loss in barrier.operands and len(pinned(barrier, graph)) == 2, "beside x and the cotangent"
    assert not any(barrier.results[barrier.operands.index(loss)] in eqn.operands for eqn in graph.equations)


def test_what_only_unused_results_need_is_not_held() -> None:
    """A barrier keeps all its operands alive; residuals that only unused gradients read must not be among them."""
    whole = training_step(vjp(parse(LAYERS.format("")), [True, True]))
    only_x = Graph(whole.name, whole.params, whole.equations, whole.results[:1])
    assert barriers(Barriers().run(only_x)) == [], "no gradient is used"
    text = """graph @f(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {
      %0: f64[3] = checkpoint %w, %x {body=graph @g(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {
        %0: f64[3] = dot_general %w, %x {contract=[[1],[0]], batch=[[],[]]}
        return %0
      }}
      return %0
    }"""
    whole = training_step(vjp(parse(text), [True, True]))
    only_w = Graph(whole.name, whole.params, whole.equations, whole.results[1:2])
    (barrier,) = barriers(Barriers().run(only_w))
    assert [str(value.type) for value in barrier.operands] == ["f64[3]"] * 2, "x and the cotangent, not w"


def test_nested_regions_have_a_barrier_each() -> None:
    graph = step(LAYERS.format(""), "nothing")
    outermost, last, first = barriers(graph)
    assert len(pinned(outermost, graph)) == 3, "w, x and the cotangent"
    assert outermost.results[2] in last.operands
    assert len(pinned(last, graph)) == len(pinned(first, graph)) == 3


def test_everything_saveable_leaves_no_barrier() -> None:
    assert not barriers(_flat_step("everything"))


def test_notes_of_the_compiler_go_with_the_regions_and_names_stay() -> None:
    text = """
    graph @f(%x: f64[3]) -> (f64[3]) {
      %0: f64[3] = sine %x
      %1: f64[3] = name %0 {label="@crossing"}
      %2: f64[3] = name %1 {label="mine"}
      %3: f64[3] = checkpoint %2 {body=graph @g(%a: f64[3]) -> (f64[3]) { %0: f64[3] = cosine %a return %0 }}
      return %3
    }
    """
    graph = Barriers().run(parse(text))
    verify(graph)
    assert [eqn.op for eqn in graph.equations if isinstance(eqn.op, Name)] == [Name("mine")]
    assert graph.equations[1].operands == graph.equations[0].results


def test_the_strategy_none_leaves_no_barrier() -> None:
    graph = parse(LAYERS.format(""))
    assert not barriers(Barriers("none").run(training_step(vjp(graph, [True, True]))))
    with pytest.raises(
        CompileError,
        match=r"unknown barrier strategy 'nun' \(known: auto, optimization_barrier, call, conditional, none\)",
    ):
        Barriers("nun")


def test_parameters_are_held_where_recomputation_needs_nothing_else() -> None:
    """Else XLA would take the forward evaluation's result, and keep it until then."""
    graph = step(
        """graph @f(%table: f64[9,3], %w: f64[3,3]) -> (f64[3,3]) {
             %0: f64[3,3] = checkpoint %table, %w {body=graph @g(%table: f64[9,3], %w: f64[3,3]) -> (f64[3,3]) {
               %0: f64[9,3] = sine %table
               %1: f64[3,3] = cosine %w
               %2: f64[3,9] = transpose %0 {permutation=[1,0]}
               %3: f64[3,3] = dot_general %2, %0 {contract=[[1],[0]], batch=[[],[]]}
               %4: f64[3,3] = dot_general %3, %1 {contract=[[1],[0]], batch=[[],[]]}
               %5: f64[3,3] = sine %4
               return %5
             }}
             return %0
           }"""
    )
    (barrier,) = barriers(graph)
    assert set(graph.params) <= set(barrier.operands)


@settings(max_examples=30)
@given(smooth_graphs(), policies())
def test_branches_that_are_always_taken_give_the_same_bits(graph: Graph, policy: Policy) -> None:
    whole = training_step(vjp(under_policy(graph, policy), is_float(graph)))
    arrays = arrays_for(whole)
    assert same_bits(run(Barriers("conditional").run(whole), arrays), run(Barriers("none").run(whole), arrays))


@pytest.mark.parametrize("value", [0.0, -0.0, float("nan"), float("inf"), 1e-40])
def test_the_index_of_a_branch_is_never_zero(value: float) -> None:
    """Whatever the bits are that it is made of."""
    graph = Barriers("conditional").run(training_step(vjp(parse(LAYERS.format("")), [True, True])))
    branches = [eqn for eqn in graph.equations if eqn.op.name == "case"]
    assert len(branches) == 2
    arrays = [np.full(param.type.shape, value) for param in graph.params]
    plain = Barriers("none").run(training_step(vjp(parse(LAYERS.format("")), [True, True])))
    assert same_bits(run(graph, arrays), run(plain, arrays))


def test_no_compiler_can_know_the_index_of_a_branch() -> None:
    """The first region of a backward pass has a constant for its cotangent: an index made of that would be known."""
    graph = Barriers("conditional").run(training_step(vjp(parse(LAYERS.format("")), [True, True])))
    variable = set(graph.params)
    for eqn in graph.equations:
        if not variable.isdisjoint(eqn.operands):
            variable.update(eqn.results)
    indices = [eqn.operands[0] for eqn in graph.equations if eqn.op.name == "case"]
    assert len(indices) == 2 and variable.issuperset(indices)


@settings(max_examples=20)
@given(smooth_graphs(), policies())
def test_functions_that_are_not_inlined_give_the_same_bits(graph: Graph, policy: Policy) -> None:
    whole = training_step(vjp(under_policy(graph, policy), is_float(graph)))
    arrays = arrays_for(whole)
    assert same_bits(run(Barriers("call").run(whole), arrays), run(Barriers("none").run(whole), arrays))


def test_each_region_becomes_a_function_that_stays_one() -> None:
    graph = Barriers("call").run(training_step(vjp(parse(LAYERS.format("")), [True, True])))
    assert [eqn.op.is_inlineable for eqn in graph.equations if isinstance(eqn.op, Call)] == [False, False]
    assert not barriers(graph)
    assert Inline().run(graph) is graph


def test_regions_inside_functions_are_found() -> None:
    body = training_step(vjp(parse(LAYERS.format("")), [True, True]))
    b = Builder("main")
    graph = b.build(*b.emit(Call(body), *[b.parameter(type) for type in body.param_types]))
    (eqn,) = Barriers().run(graph).equations
    assert isinstance(eqn.op, Call)
    assert len(barriers(eqn.op.body)) == 2


# -- deep programs -----------------------------------------------------------------------------------------------------


def chain(layers: int, alike: bool = True) -> Graph:
    """The training step of checkpointed layers in a row, which differ, unless `alike`, by how much they add."""
    vector = TensorType(F64, (3,))
    b = Builder("f")
    x = b.parameter(vector, "x")
    for index in range(layers):
        layer = Builder("layer")
        inside = layer.parameter(vector)
        body = layer.build(layer.sine(layer.add(inside, layer.full(vector, 1.0 if alike else float(index)))))
        (x,) = b.emit(Checkpoint(body), x)
    return training_step(vjp(b.build(x), [True]))


def test_regions_of_a_deep_program_become_one_function_where_they_are_alike() -> None:
    graph = Barriers().run(chain(24))
    calls = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Call)]
    assert len(calls) == 24 and len({op.body for op in calls}) <= 3
    assert not any(op.is_inlineable for op in calls) and not barriers(graph)


def test_regions_that_are_few_or_differ_have_barriers() -> None:
    for layers, alike in ((8, True), (24, False)):
        graph = Barriers().run(chain(layers, alike))
        assert len(barriers(graph)) == layers
        assert "call" not in count_ops(graph)


def test_a_function_has_the_operands_that_a_barrier_would_hold() -> None:
    graph = Barriers("call").run(training_step(vjp(parse(LAYERS.format("")), [True, True])))
    eqns = [eqn for eqn in graph.equations if isinstance(eqn.op, Call)]
    whole = step(LAYERS.format(""))
    for eqn, barrier in zip(eqns, barriers(whole), strict=True):
        assert isinstance(eqn.op, Call) and eqn.op.pinned is not None
        held = [value.type for value, is_set in zip(eqn.operands, eqn.op.pinned, strict=True) if is_set]
        assert held == [value.type for value in pinned(barrier, whole)]
