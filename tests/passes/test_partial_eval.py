"""What crosses from the known to the staged graph: exactly what the policies allow, and the parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import Constant, Iota, ToMemory
from rematc.ir.policy import Policy, Recompute
from rematc.ir.values import Types, Value
from rematc.ir.verifier import verify
from rematc.passes.jvp import jvp
from rematc.passes.linearize import linearize, under_policy
from rematc.passes.partial_eval import PartialEvaluation, partial_eval
from rematc.passes.policies import as_policy, parse_policy
from rematc.passes.saving import Residual
from tests.support.smooth_graphs import arrays_for, count_ops, is_float, policies, run, smooth_graphs


def split(graph: Graph, policy: Policy | str | None = None) -> PartialEvaluation:
    """The partial evaluation of the graph's jvp, the tangents unknown."""
    joint = jvp(graph, is_float(graph)).graph
    count = len(graph.params)
    decided = parse_policy(policy) if isinstance(policy, str) else policy
    return partial_eval(joint, [index >= count for index in range(len(joint.params))], decided)


def what(residual: Residual) -> str:
    """A residual in a word: a parameter's name, `sine`, or `sine a` for one with a name."""
    if residual.param is not None:
        return str(residual.value.name)
    assert residual.source is not None
    return f"'{residual.label}'" if residual.label else residual.source.op.name


def saved(text: str, policy: Policy | str | None = None) -> list[str]:
    """What is saved of a graph."""
    return [what(residual) for residual in split(parse(text), policy).residuals]


# -- laws on random graphs -------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(smooth_graphs(), st.none() | policies())
def test_the_two_graphs_together_are_the_graph(graph: Graph, policy: Policy | None) -> None:
    joint = jvp(graph, is_float(graph)).graph
    part = split(graph, policy)
    arrays = arrays_for(joint)
    count = len(graph.params)
    outcome = run(part.known, arrays[:count])
    known_count = len(outcome) - len(part.residuals)
    staged = iter(run(part.staged, [*outcome[known_count:], *arrays[count:]]))
    known = iter(outcome[:known_count])
    for is_unknown, expected in zip(part.is_unknown, run(joint, arrays), strict=True):
        np.testing.assert_array_equal(next(staged) if is_unknown else next(known), expected)


@settings(max_examples=60)
@given(smooth_graphs(), st.none() | policies())
def test_the_two_graphs_together_have_the_derivatives_of_the_graph(graph: Graph, policy: Policy | None) -> None:
    """A residual stands for a value in every further derivative, too: its tangent is that of the value."""
    joint = jvp(graph, is_float(graph)).graph
    check_derivatives(joint, split(graph, policy), is_float(joint))


def check_derivatives(graph: Graph, part: PartialEvaluation, has_tangent: Sequence[bool]) -> None:
    """A graph and its two parts one after the other have the same jvp."""
    expected, composed = [jvp(one, has_tangent) for one in (graph, together(part))]
    arrays = arrays_for(expected.graph)
    found = iter(run(composed.graph, arrays))
    values = run(expected.graph, arrays)
    count = len(graph.results)
    for value, other in zip(values[:count], found, strict=False):
        np.testing.assert_allclose(other, value, rtol=1e-9, atol=1e-9)
    given = iter(values[count:])
    for has, had in zip(composed.has_tangent, expected.has_tangent, strict=True):
        tangent, other = next(given) if had else 0.0, next(found) if has else 0.0
        np.testing.assert_allclose(other, np.broadcast_to(tangent, np.shape(other)), rtol=1e-9, atol=1e-9)


def together(part: PartialEvaluation) -> Graph:
    """The two graphs one after the other: the original graph again."""
    b = Builder("together")
    known = [b.parameter(type) for type in part.known.param_types]
    count = len(part.known.results) - len(part.residuals)
    outcome = b.inline(part.known, known)
    later = [b.parameter(type) for type in part.staged.param_types[len(part.residuals) :]]
    now, staged = iter(outcome[:count]), iter(b.inline(part.staged, (*outcome[count:], *later)))
    return b.build(*[next(staged) if is_set else next(now) for is_set in part.is_unknown])


PLAIN = """graph @f(%x: f64[3]) -> (f64[3]) {
  %0: f64[3] = sine %x
  %1: f64[3] = stop_gradient %0
  %2: f64[3] = multiply %x, %1
  return %2
}"""
NAMED_LATER = """graph @f(%x: f64[3]) -> (f64[3]) {
  %0: f64[3] = sine %x
  %1: f64[3] = stop_gradient %0
  %2: f64[3] = name %1 {label="a"}
  %3: f64[3] = multiply %x, %2
  return %3
}"""
BOTH = """graph @f(%x: f64[3]) -> (f64[3]) {
  %0: f64[3] = sine %x
  %1: f64[3] = stop_gradient %0
  %2: f64[3] = name %1 {label="a"}
  %3: f64[3] = multiply %x, %2
  %4: f64[3] = multiply %x, %0
  %5: f64[3] = add %3, %4
  return %5
}"""


@pytest.mark.parametrize("policy", [None, "nothing", "names=a", "except=a", "everything", "dots"])
@pytest.mark.parametrize("text", [PLAIN, NAMED_LATER, BOTH], ids=["plain", "named", "both"])
def test_a_stopped_value_has_no_tangent_in_further_derivatives(text: str, policy: str | None) -> None:
    """x sg(sin x) has the second derivative 0; and where the residual is read with its tangent as well, it has one."""
    check_derivatives(jvp(parse(text), (True,)).graph, split(parse(text), policy), (True, False))


@settings(max_examples=60)
@given(smooth_graphs(), policies())
def test_residuals_are_parameters_or_allowed_by_the_policy(graph: Graph, policy: Policy) -> None:
    part = split(graph, policy)
    assert len({residual.value for residual in part.residuals}) == len(part.residuals)
    for residual in part.residuals:
        if residual.param is not None:
            assert residual.value is part.known.params[residual.param]
            continue
        value, labels = residual.value, []
        producer = {value: eqn for eqn in part.known.equations for value in eqn.results}
        while (eqn := producer[value]).op.name in ("name", "stop_gradient"):
            value = eqn.operands[0]
        roots = {value}
        for other in part.known.equations:
            if other.op.name in ("name", "stop_gradient") and other.operands[0] in roots:
                roots.add(other.results[0])
                labels.extend([getattr(other.op, "label", None)] if other.op.name == "name" else [])
        (answer, *_) = policy.decide(eqn.op, eqn.operand_types, [str(label) for label in labels])
        assert not isinstance(answer, Recompute), (eqn.op, labels)


@settings(max_examples=40)
@given(smooth_graphs(), st.none() | policies())
def test_nothing_that_follows_from_constants_alone_is_saved(graph: Graph, policy: Policy | None) -> None:
    part = split(graph, policy)
    constant: set[Value] = set()
    for eqn in part.known.equations:
        if not eqn.op.is_product and not eqn.op.regions() and constant.issuperset(eqn.operands):
            constant.update(eqn.results)
    assert constant.isdisjoint(residual.value for residual in part.residuals)


@settings(max_examples=40)
@given(smooth_graphs(), st.none() | policies())
def test_the_staged_graph_has_no_dead_equation(graph: Graph, policy: Policy | None) -> None:
    staged = split(graph, policy).staged
    read = {value for eqn in staged.equations for value in eqn.operands} | set(staged.results)
    for eqn in staged.equations:
        assert not read.isdisjoint(eqn.results), eqn.op
    assert read.issuperset(staged.params[: len(split(graph, policy).residuals)])


# -- what the policy says ----------------------------------------------------------------------------------------------

CHAIN = """graph @f(%w: f64[3,3], %x: f64[3]) -> (f64[3]) {
  %0: f64[3] = dot_general %w, %x {contract=[[1],[0]], batch=[[],[]]}
  %1: f64[3] = sine %0
  %2: f64[3] = dot_general %w, %1 {contract=[[1],[0]], batch=[[],[]]}
  %3: f64[3] = exponential %2
  return %3
}"""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, ["w", "x", "sine", "cosine", "exponential"]),
        ("nothing", ["w", "x"]),
        ("dots", ["w", "x", "dot_general", "dot_general"]),
        (as_policy(lambda op, *_: op.name == "sine"), ["w", "x", "sine"]),
        (as_policy(lambda op, *_: op.name == "cosine"), ["w", "x", "cosine"]),
        (as_policy(lambda *_: True), ["w", "x", "sine", "cosine", "exponential"]),
    ],
    ids=["none", "nothing", "dots", "sine", "cosine", "all"],
)
def test_saved_is_what_is_allowed_and_needed(policy: Policy | str | None, expected: list[str]) -> None:
    assert saved(CHAIN, policy) == expected


def test_recomputation_starts_from_what_is_saved() -> None:
    part = split(parse(CHAIN), "dots")
    assert count_ops(part.staged) == {
        "sine": 1,
        "cosine": 1,
        "exponential": 1,
        "dot_general": 4,
        "multiply": 2,
        "add": 2,
    }
    assert count_ops(part.known)["cosine"] == 0, "what only the staged graph needs is computed there alone"


def test_a_value_that_nothing_needs_is_not_saved() -> None:
    text = """graph @f(%x: f64[3]) -> (f64[3], f64[3]) {
      %0: f64[3] = sine %x
      %1: f64[3] = add %0, %x
      %2: f64[3] = negate %1
      return %1, %2
    }"""
    assert saved(text, as_policy(lambda op, *_: op.name != "cosine")) == ["x"], "cosine x is all that is needed"


def test_a_value_saved_under_many_variables_crosses_once() -> None:
    text = """graph @f(%x: f64[3]) -> (f64[3], f64[3], f64[3]) {
      %0: f64[3] = exponential %x
      %1: f64[3] = name %0 {label="e"}
      %2: f64[3] = name %1 {label="f"}
      %3: f64[3] = multiply %0, %1
      %4: f64[3] = multiply %3, %2
      %5: f64[3] = stop_gradient %0
      %6: f64[3] = multiply %5, %4
      return %3, %4, %6
    }"""
    residuals = split(parse(text)).residuals
    assert Counter(map(what, residuals)) == {"'e'": 1, "multiply": 1}


def test_a_multiplication_by_itself_saves_its_operand_once() -> None:
    assert saved("graph @f(%x: f64[3]) -> (f64[3]) { %0: f64[3] = multiply %x, %x return %0 }") == ["x"]


# -- names -------------------------------------------------------------------------------------------------------------

NAMED = """graph @f(%x: f64[3]) -> (f64[3]) {
  %0: f64[3] = exponential %x
  %1: f64[3] = name %0 {label="e"}
  %2: f64[3] = sine %1
  %3: f64[3] = cosine %0
  %4: f64[3] = stop_gradient %1
  %5: f64[3] = multiply %3, %4
  %6: f64[3] = add %2, %5
  return %6
}"""


def test_a_saved_name_serves_every_consumer_of_the_same_value() -> None:
    part = split(parse(NAMED), "names=e")
    assert [what(residual) for residual in part.residuals] == ["'e'"]
    assert count_ops(part.staged)["exponential"] == 0


def test_a_denied_name_denies_the_value_under_every_name() -> None:
    part = split(parse(NAMED), "except=e")
    assert "exponential" not in map(what, part.residuals)
    assert "'e'" not in map(what, part.residuals)
    # Its consumers may be saved: e itself is what the tangent of exp needs.
    assert count_ops(part.staged)["exponential"] == 1


@pytest.mark.parametrize(("allowed", "count"), [((), 0), (("a",), 1), (("a", "b"), 2), (("a", "b", "c"), 3)], ids=str)
def test_allow_and_deny_lists(allowed: tuple[str, ...], count: int) -> None:
    names = ("a", "b", "c")
    lines = [
        f"""%{2 * i}: f64[3] = sine %{"x" if i == 0 else 2 * i - 1}
            %{2 * i + 1}: f64[3] = name %{2 * i} {{label="{name}"}}"""
        for i, name in enumerate(names)
    ]
    text = "graph @f(%x: f64[3]) -> (f64[3]) {" + "\n".join(lines) + "\n%6: f64[3] = sine %5\nreturn %6 }"
    rest = [name for name in names if name not in allowed]
    if allowed:
        assert saved(text, f"names={','.join(allowed)}") == ["x", *(f"'{name}'" for name in allowed)]
    if rest:
        assert len(saved(text, f"any-names-but={','.join(rest)}")) == 1 + count
        assert not {f"'{name}'" for name in rest} & set(saved(text, f"except={','.join(rest)}"))


# -- several results ---------------------------------------------------------------------------------------------------

PAIR = """graph @f(%x: f64[3]) -> (f64[3]) {
  %0: f64[3] = sine %x
  %1: f64[3] = exponential %x
  %2: f64[3], %3: f64[3] = optimization_barrier %0, %1
  %4: f64[3] = multiply %2, %3
  return %4
}"""


def pair_policy(*answers: bool) -> Policy:
    def decide(op: Op, operands: Types, name: str | None) -> bool | tuple[bool, ...]:
        return answers if op.name == "optimization_barrier" else False

    return as_policy(decide)


@pytest.mark.parametrize("answers", [(True, True), (True, False), (False, True), (False, False), (True,)])
def test_policies_decide_result_by_result(answers: tuple[bool, ...]) -> None:
    graph = parse(PAIR)
    part = split(graph, pair_policy(*answers))
    spread = answers * 2 if len(answers) == 1 else answers
    assert list(map(what, part.residuals)).count("optimization_barrier") == sum(spread)
    is_whole = all(spread)
    # The equation is repeated whole for the result that is not saved, beside the one on tangents.
    assert count_ops(part.staged)["optimization_barrier"] == (1 if is_whole else 2)
    reference = split(graph)
    x, t = np.array([0.1, 0.5, 2.0]), np.array([1.0, -1.0, 3.0])
    for one in (part, reference):
        residuals = run(one.known, [x])[1:]
        tangent = np.cos(x) * np.exp(x) + np.sin(x) * np.exp(x)
        np.testing.assert_allclose(run(one.staged, [*residuals, t])[0], t * tangent, rtol=1e-14)


def test_a_wrong_number_of_decisions_is_an_error() -> None:
    with pytest.raises(CompileError, match="gave 3 decisions for 'optimization_barrier', which has 2 results"):
        split(parse(PAIR), pair_policy(True, True, True))


# -- constants ---------------------------------------------------------------------------------------------------------


def test_constants_and_what_follows_from_them_are_never_residuals() -> None:
    text = """graph @f(%x: f64[3]) -> (f64[3]) {
      %0: f64[3] = iota {type=f64[3], dimension=0}
      %1: f64[3] = sine %0
      %2: f64[3] = multiply %x, %1
      return %2
    }"""
    part = split(parse(text))
    assert part.residuals == ()
    assert count_ops(part.staged) == {"iota": 1, "sine": 1, "multiply": 1}


BROADCAST = """graph @f(%x: f64[3,3], %s: f64[3]) -> (f64[3,3]) {
  %0: f64[3] = exponential %s
  %1: f64[3,3] = broadcast_in_dim %0 {shape=[3,3], dimensions=[1]}
  %2: f64[3,3] = broadcast_in_dim %s {shape=[3,3], dimensions=[0]}
  %3: f64[3,3] = multiply %1, %2
  %4: f64[3,3] = multiply %x, %3
  return %4
}"""


@pytest.mark.parametrize("policy", [None, as_policy(lambda *_: True), "except=z"], ids=["none", "all", "except"])
def test_of_a_broadcast_the_operand_is_saved(policy: Policy | str | None) -> None:
    assert saved(BROADCAST, policy) == ["x", "s", "exponential", "multiply"]


def test_a_broadcast_is_saved_under_its_name() -> None:
    text = """graph @f(%x: f64[3], %s: f64[]) -> (f64[3]) {
      %0: f64[3] = broadcast_in_dim %s {shape=[3], dimensions=[]}
      %1: f64[3] = name %0 {label="a"}
      %2: f64[3] = multiply %x, %1
      return %2
    }"""
    assert saved(text, "names=a") == ["x", "'a'"]
    assert saved(text, "nothing") == ["x", "s"]


# -- regions -----------------------------------------------------------------------------------------------------------

NESTED = """graph @f(%x: f64[3]) -> (f64[3]) {{
  %0: f64[3] = checkpoint %x {{body=graph @g(%x: f64[3]) -> (f64[3]) {{
    %0: f64[3] = sine %x
    %1: f64[3] = name %0 {{label="a"}}
    %2: f64[3] = sine %1
    %3: f64[3] = name %2 {{label="b"}}
    %4: f64[3] = sine %3
    return %4
  }}, policy="{}"}}
  return %0
}}"""


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("nothing", "names=a,b", ["x"]),
        ("names=a", "nothing", ["x"]),
        # The inner region saves b, which must not leave the outer one; a lies on the way to b outside of the inner.
        ("names=a", "names=b", ["x", "'a'"]),
        ("names=a,b", "names=b", ["x", "'b'"]),
        ("names=a,b", "names=a,b", ["x", "'a'", "'b'"]),
        ("everything", "names=b", ["x", "'b'"]),
        (None, "names=b", ["x", "'b'"]),
        ("names=b", "everything", ["x", "'b'"]),
        ("except=a", "names=a,b", ["x", "'b'"]),
    ],
)
def test_a_value_leaves_two_regions_only_if_both_policies_let_it(
    outer: str | None, inner: str, expected: list[str]
) -> None:
    graph = parse(NESTED.format(inner))
    if outer is not None:
        graph = under_policy(graph, parse_policy(outer))
    assert [what(residual) for residual in linearize(graph, [True]).residuals] == expected


def test_the_staged_part_of_a_region_stays_a_region_with_its_policy_and_pins() -> None:
    graph = parse(
        """graph @f(%x: f64[3], %y: f64[3]) -> (f64[3]) {
             %0: f64[3] = checkpoint %x, %y {body=graph @g(%x: f64[3], %y: f64[3]) -> (f64[3]) {
               %0: f64[3] = sine %x
               %1: f64[3] = name %0 {label="a"}
               %2: f64[3] = multiply %1, %y
               return %2
             }, policy="names=a", prevent_cse=[true,false]}
             return %0
           }"""
    )
    (eqn,) = split(graph).staged.equations
    assert isinstance(eqn.op, Checkpoint)
    assert eqn.op.is_differentiated
    assert eqn.op.policy == parse_policy("names=a")
    names = [value.name for value in eqn.operands]
    assert names == ["x", "y", None, "dx", "dy"]
    assert eqn.op.prevent_cse == (True, False, True, True, True), "x is pinned, y not; the saved sine and tangents are"


def test_a_saved_value_of_sixteen_bits_is_rounded_where_it_is_computed() -> None:
    formats: dict[str, set[Op]] = {"bf16": {ReducePrecision(8, 7)}, "f16": {ReducePrecision(5, 10)}, "f32": set()}
    for dtype, expected in formats.items():
        graph = parse(
            f"""graph @f(%x: {dtype}[3]) -> ({dtype}[3]) {{
                 %0: {dtype}[3] = sine %x
                 %1: {dtype}[3] = sine %0
                 return %1
               }}"""
        )
        for policy in ("nothing", "except=z"):
            part = split(graph, policy)
            rounded = {eqn.op for eqn in part.known.equations if isinstance(eqn.op, ReducePrecision)}
            assert rounded == (set() if policy == "nothing" else expected)
            assert "reduce_precision" not in map(what, part.residuals), "reports name the op that was rounded"


def test_a_region_whose_results_are_integers_is_known() -> None:
    graph = parse(
        """graph @f(%x: f64[3]) -> (i32[3], f64[3]) {
             %0: i32[3] = checkpoint %x {body=graph @g(%x: f64[3]) -> (i32[3]) {
               %0: i32[3] = convert %x {dtype=i32}
               return %0
             }}
             %1: f64[3] = sine %x
             return %0, %1
           }"""
    )
    part = split(graph)
    assert part.is_unknown == (False, False, True)
    assert count_ops(part.staged) == {"multiply": 1}


def test_a_chain_of_regions_saves_what_stands_between_them() -> None:
    layer = """checkpoint %{} {{body=graph @g(%x: f64[3]) -> (f64[3]) {{
      %0: f64[3] = sine %x
      %1: f64[3] = exponential %0
      return %1
    }}}}"""
    lines = [f"%{i}: f64[3] = {layer.format('x' if i == 0 else i - 1)}" for i in range(4)]
    text = "graph @f(%x: f64[3]) -> (f64[3]) {" + "\n".join(lines) + "\nreturn %3 }"
    assert saved(text) == ["x", "exponential", "exponential", "exponential"]
    assert saved(text, "nothing") == ["x"]
    staged = split(parse(text), "nothing").staged
    assert count_ops(staged)["sine"] == 3 + 4, "three to reach the last region's operand, and one in each region"


# -- offloading --------------------------------------------------------------------------------------------------------


def test_an_offloaded_residual_lies_in_the_hosts_memory_between_two_copies() -> None:
    part = split(parse(CHAIN), "offload-dots-no-batch")
    offloaded = [residual for residual in part.residuals if residual.param is None]
    assert [str(residual.value.type) for residual in offloaded] == ["f64<host>[3]"] * 2
    assert list(map(what, offloaded)) == ["dot_general"] * 2
    to_host = [eqn for eqn in part.known.equations if isinstance(eqn.op, ToMemory)]
    to_device = [eqn for eqn in part.staged.equations if isinstance(eqn.op, ToMemory)]
    assert [eqn.op for eqn in to_host] == [ToMemory(True)] * 2
    assert [eqn.op for eqn in to_device] == [ToMemory(False)] * 2
    assert [eqn.results[0] for eqn in to_host] == [residual.value for residual in offloaded]
    assert [eqn.operands[0] for eqn in to_device] == list(part.staged.params[2:4])
    assert all(str(eqn.results[0].type) == "f64[3]" for eqn in to_device)


def test_an_offloaded_name_is_copied_once_for_all_its_aliases() -> None:
    part = split(parse(NAMED), "offload=e")
    assert [what(residual) for residual in part.residuals] == ["'e'"]
    assert count_ops(part.known)["to_memory"] == 1
    assert count_ops(part.staged)["to_memory"] == 1
    assert count_ops(part.staged)["exponential"] == 0


def test_what_is_offloaded_but_not_needed_is_not_copied() -> None:
    text = """graph @f(%x: f64[3]) -> (f64[3]) {
      %0: f64[3] = sine %x
      %1: f64[3] = name %0 {label="e"}
      %2: f64[3] = negate %1
      return %2
    }"""
    part = split(parse(text), "offload=e")
    assert [what(residual) for residual in part.residuals] == ["x"]
    assert count_ops(part.known)["to_memory"] == 0


@pytest.mark.parametrize(
    ("outer", "offloaded", "copies"),
    [("offload=a", ["'a'"], 1), ("names=a", ["'a'"], 1), (None, ["'a'"], 1), ("nothing", [], 1), ("names=b", [], 1)],
)
def test_a_value_offloaded_inside_is_copied_once(outer: str | None, offloaded: list[str], copies: int) -> None:
    """The region around it decides on the copy as on the value itself."""
    graph = parse(NESTED.format("offload=a"))
    if outer is not None:
        graph = under_policy(graph, parse_policy(outer))
    linearized = linearize(graph, [True])
    verify(linearized.forward)
    verify(linearized.linear)
    assert [what(residual) for residual in linearized.residuals if residual.param is None] == offloaded
    assert all(residual.value.type.on_host for residual in linearized.residuals if residual.param is None)
    both = count_ops(linearized.forward) + count_ops(linearized.linear)
    assert both["to_memory"] == 2 * copies


def test_literals_are_repeated_and_not_carried() -> None:
    part = split(
        parse(
            """graph @f(%x: f64[3]) -> (f64[3]) {
                 %0: f64[] = constant {type=f64[], data=2.5}
                 %1: f64[3] = broadcast_in_dim %0 {shape=[3], dimensions=[]}
                 %2: f64[3] = multiply %x, %1
                 return %2
               }"""
        ),
        "except=z",
    )
    assert part.residuals == ()
    assert sum(isinstance(eqn.op, (Constant, Iota)) for eqn in part.staged.equations) == 1


def test_work_does_not_double_with_each_level_of_nesting(monkeypatch: pytest.MonkeyPatch) -> None:
    splits: list[object] = []
    split = Scan.split

    def counted(self: Scan, *args: Any) -> Any:
        splits.append(self)
        return split(self, *args)

    monkeypatch.setattr(Scan, "split", counted)

    def nested(depth: int) -> Any:
        inside = nested(depth - 1) if depth else np.sin
        return lambda x: rematc.fori_loop(0, 3, lambda _, carry: np.tanh(inside(carry)), x)

    counts = []
    for depth in (2, 4, 6):
        splits.clear()
        rematc.lower(rematc.grad(nested(depth)), np.float32(0.5))
        counts.append(len(splits))
    assert counts[2] - counts[1] == counts[1] - counts[0]
