"""linearize and vjp: right derivatives, the same under every policy, with regions that stay regions."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, MissingRuleError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.ir.types import F64, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.passes.jvp import jvp
from rematc.passes.linearize import linearize, under_policy, vjp
from rematc.passes.policies import everything_saveable, nothing_saveable, parse_policy
from tests.support.random_graphs import arguments_for, same_bits, seeded_program
from tests.support.smooth_graphs import (
    TERMS,
    arrays_for,
    by_seed,
    count_ops,
    gradients,
    is_float,
    policies,
    run,
    smooth_graphs,
)

VECTOR, SCALAR = TensorType(F64, (3,)), TensorType(F64, ())


def same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def gradient_graph(graph: Graph, policy: Policy | None = None) -> Graph:
    """The gradient of a graph's first result as a graph: what differentiating twice differentiates."""
    primal = graph if policy is None else under_policy(graph, policy)
    pulled = vjp(primal, is_float(graph), [index == 0 for index in range(len(graph.results))])
    b = Builder("gradient")
    params = [b.parameter(value.type, value.name) for value in graph.params]
    residuals = b.inline(pulled.forward, params)[len(graph.results) :]
    cts = [b.full(SCALAR, 1.0)] if any(pulled.has_tangent) else []
    return b.build(*b.inline(pulled.backward, [*residuals, *cts]))


# -- right derivatives -------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(smooth_graphs(), st.none() | policies())
def test_forward_and_linear_graphs_give_the_jvp(graph: Graph, policy: Policy | None) -> None:
    primal = graph if policy is None else under_policy(graph, policy)
    linearized = linearize(primal, is_float(graph))
    verify(linearized.forward)
    verify(linearized.linear)
    arrays = arrays_for(graph)
    tangents = [x for x in arrays_for(graph, seed=1) if x.dtype.kind == "f"]
    count = len(graph.results)
    forward = run(linearized.forward, arrays)
    same(forward[:count], run(graph, arrays))

    reference = jvp(graph, is_float(graph))
    expected = iter(run(reference.graph, [*arrays, *tangents])[count:])
    found = iter(run(linearized.linear, [*forward[count:], *tangents]))
    for is_set, is_expected in zip(linearized.has_tangent, reference.has_tangent, strict=True):
        if is_expected:
            tangent = next(expected)
            # A tangent that does not depend on the incoming ones is zero, and then there is none.
            np.testing.assert_array_equal(next(found) if is_set else np.zeros_like(tangent), tangent)


@settings(max_examples=60)
@given(smooth_graphs(), st.none() | policies())
def test_the_gradient_is_the_derivative_in_every_direction(graph: Graph, policy: Policy | None) -> None:
    arrays = arrays_for(graph)
    tangents = [x for x in arrays_for(graph, seed=1) if x.dtype.kind == "f"]
    reference = jvp(graph, is_float(graph))
    outcome = run(reference.graph, [*arrays, *tangents])
    derivative = outcome[len(graph.results)] if reference.has_tangent[0] else 0.0
    found = sum(float(np.vdot(g, t)) for g, t in zip(gradients(graph, arrays, policy), tangents, strict=True))
    np.testing.assert_allclose(found, derivative, rtol=1e-9, atol=1e-9)


@settings(max_examples=80)
@given(smooth_graphs(), policies())
def test_every_policy_gives_the_bits_of_no_policy(graph: Graph, policy: Policy) -> None:
    arrays = arrays_for(graph)
    same(gradients(graph, arrays, policy), gradients(graph, arrays))


@pytest.mark.parametrize(
    "policy", [*TERMS, *map(by_seed, range(4))], ids=lambda policy: getattr(policy, "spec", policy)
)
def test_every_policy_gives_the_bits_of_the_strictest_on_graphs_of_all_ops(policy: Policy | str) -> None:
    decided = parse_policy(policy) if isinstance(policy, str) else policy
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arguments are special values, too
        found = [_bits_under(seeded_program(seed), decided) for seed in range(80)]
    assert sum(found) > 50


def _bits_under(graph: Graph, policy: Policy) -> bool:
    """Whether the graph can be differentiated; then its gradients under the policy are those under `nothing`."""
    if any(0 in value.type.shape for eqn in graph.equations for value in (*eqn.operands, *eqn.results)):
        return False
    try:
        both = [vjp(under_policy(graph, one), is_float(graph)) for one in (nothing_saveable, policy)]
    except (MissingRuleError, CompileError):
        return False  # loops of unknown length among them
    arrays = arguments_for(graph)
    outcomes = []
    for pulled in both:
        forward = run(pulled.forward, arrays)
        count = len(graph.results)
        random = np.random.default_rng(1)
        types = pulled.backward.param_types[len(pulled.residuals) :]
        cts = [np.asarray(random.normal(size=type.shape)).astype(type.dtype.numpy) for type in types]
        outcomes.append([*forward[:count], *run(pulled.backward, [*forward[count:], *cts])])
    assert same_bits(*outcomes)
    return True


@settings(max_examples=40)
@given(smooth_graphs(regions=0), smooth_graphs(regions=0), st.lists(policies(), min_size=2, max_size=4))
def test_nested_regions_give_the_bits_of_no_region_inside(outer: Graph, inner: Graph, nest: list[Policy]) -> None:
    """Regions around the same equations, nested to any depth, under any policies."""
    one = _composed(outer, inner)
    nested = one
    for policy in nest:
        nested = under_policy(nested, policy)
    arrays = arrays_for(one)
    same(gradients(nested, arrays), gradients(one, arrays, nothing_saveable))


def _composed(outer: Graph, inner: Graph) -> Graph:
    """`outer` after `inner`, whose loss scales the vector."""
    b = Builder("composed")
    params = [b.parameter(value.type, value.name) for value in inner.params]
    loss = b.inline(inner, params)[0]
    scaled = b.multiply(params[1], b.broadcast_in_dim(loss, (3,), ()))
    return b.build(b.inline(outer, [params[0], scaled, *params[2:]])[0])


@settings(max_examples=25)
@given(smooth_graphs(max_equations=8), st.none() | policies())
def test_the_gradient_of_a_gradient(graph: Graph, policy: Policy | None) -> None:
    """grad(<grad f, u>) is symmetric and agrees with the jvp of the gradient."""
    first = gradient_graph(graph, policy)
    verify(first)
    arrays = arrays_for(graph)
    tangents = [x for x in arrays_for(graph, seed=1) if x.dtype.kind == "f"]
    forwards = jvp(first, is_float(first))
    along = run(forwards.graph, [*arrays, *tangents])[len(first.results) :]
    backwards = vjp(first, is_float(first))
    residuals = run(backwards.forward, arrays)[len(first.results) :]

    pulled = vjp(graph, is_float(graph), [index == 0 for index in range(len(graph.results))])
    directions = [t for t, is_set in zip(tangents, pulled.has_ct, strict=True) if is_set]
    cts = [t for t, is_set in zip(directions, backwards.has_tangent, strict=True) if is_set]
    given_cts = iter(run(backwards.backward, [*residuals, *cts]))
    from_vjp = sum(
        float(np.vdot(next(given_cts), t)) for t, is_set in zip(tangents, backwards.has_ct, strict=True) if is_set
    )
    having = [t for t, is_set in zip(directions, forwards.has_tangent, strict=True) if is_set]
    from_jvp = sum(float(np.vdot(x, t)) for x, t in zip(along, having, strict=True))
    np.testing.assert_allclose(from_vjp, from_jvp, rtol=1e-8, atol=1e-8)


# -- what is asked for -------------------------------------------------------------------------------------------------

TWO = """graph @f(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3]) {
  %0: f64[3] = sine %x
  %1: f64[3] = exponential %y
  return %0, %1
}"""


def test_results_that_are_not_differentiated_save_nothing() -> None:
    pulled = vjp(parse(TWO), [True, True], [True, False])
    assert pulled.has_tangent == (True, False)
    assert pulled.has_ct == (True, False)
    assert [residual.source.op.name for residual in pulled.residuals if residual.source] == ["cosine"]
    assert count_ops(pulled.backward) == {"multiply": 1}


def test_the_same_under_a_policy() -> None:
    pulled = vjp(under_policy(parse(TWO), nothing_saveable), [True, True], [True, False])
    assert [residual.param for residual in pulled.residuals] == [0]
    assert count_ops(pulled.backward) == {"cosine": 1, "multiply": 1}


def test_nothing_is_differentiated() -> None:
    pulled = vjp(parse(TWO), [False, False])
    assert pulled.has_tangent == (False, False)
    assert pulled.residuals == ()
    assert pulled.backward.equations == ()


def test_a_derivative_that_is_a_constant_needs_no_residual() -> None:
    graph = parse("graph @f(%x: f64[3]) -> (f64[3]) { %0: f64[3] = negate %x return %0 }")
    pulled = vjp(graph, [True])
    assert pulled.residuals == ()
    assert count_ops(pulled.backward) == {"negate": 1}


@settings(max_examples=40)
@given(smooth_graphs())
def test_everything_saveable_is_exactly_no_checkpoint(graph: Graph) -> None:
    plain, wrapped = (vjp(one, is_float(graph)) for one in (graph, under_policy(graph, everything_saveable)))
    assert wrapped.forward == plain.forward
    assert wrapped.backward == plain.backward
    assert wrapped.has_ct == plain.has_ct


# -- regions -----------------------------------------------------------------------------------------------------------


def sine_chain(b: Builder, x: Value, count: int) -> Value:
    for _ in range(count):
        x = b.sine(x)
    return x


def checkpointed(b: Builder, body: Graph, x: Value, policy: str = "nothing") -> Value:
    return b.emit1(Checkpoint(body, parse_policy(policy)), x)


def recursive_checkpoint(count: int) -> Graph:
    """`count` sines; the first half of each half is a region, down to pairs."""
    b = Builder(f"sines{count}")
    x = b.parameter(SCALAR, "x")
    if count <= 2:
        return b.build(sine_chain(b, x, count))
    half = recursive_checkpoint(count // 2)
    return b.build(*b.inline(half, [checkpointed(b, half, x)]))


@pytest.mark.parametrize(("count", "residuals", "sines"), [(8, 4, 5), (16, 5, 17)])
def test_recursive_checkpoint(count: int, residuals: int, sines: int) -> None:
    pulled = vjp(recursive_checkpoint(count), [True])
    assert len(pulled.residuals) == residuals
    assert count_ops(pulled.forward)["sine"] == count
    assert count_ops(pulled.backward)["sine"] == sines
    b = Builder("plain")
    plain = b.build(sine_chain(b, b.parameter(SCALAR, "x"), count))
    assert len(vjp(plain, [True]).residuals) == count
    x = [np.asarray(3.0)]
    np.testing.assert_allclose(gradients(recursive_checkpoint(count), x), gradients(plain, x), rtol=1e-15)


def binomial_checkpoint(count: int) -> Graph:
    """Every half, at every level, is a region."""
    b = Builder(f"sines{count}")
    x = b.parameter(SCALAR, "x")
    if count <= 2:
        return b.build(sine_chain(b, x, count))
    half = binomial_checkpoint(count // 2)
    return b.build(checkpointed(b, half, checkpointed(b, half, x)))


@pytest.mark.parametrize(("count", "sines"), [(4, 2), (8, 8), (16, 24)])
def test_binomial_checkpoint(count: int, sines: int) -> None:
    pulled = vjp(binomial_checkpoint(count), [True])
    assert count_ops(pulled.forward)["sine"] == count
    assert count_ops(pulled.backward)["sine"] == sines
    assert len(pulled.residuals) == 2, "the operands of the two outermost regions"


@pytest.mark.parametrize("depth", [1, 5, 60])
def test_regions_nested_to_any_depth(depth: int) -> None:
    graph = parse("graph @f(%x: f64[]) -> (f64[]) { %0: f64[] = sine %x %1: f64[] = sine %0 return %1 }")
    nested = graph
    for _ in range(depth):
        nested = under_policy(nested, nothing_saveable)
    pulled = vjp(nested, [True])
    assert [residual.param for residual in pulled.residuals] == [0]
    x = [np.asarray(0.7)]
    same(gradients(nested, x), gradients(graph, x))


def test_derivatives_of_derivatives_keep_regions() -> None:
    graph = under_policy(parse(TWO), nothing_saveable)
    b = Builder("loss")
    x, y = b.parameter(VECTOR, "x"), b.parameter(VECTOR, "y")
    s, e = b.inline(graph, [x, y])
    loss = b.build(b.reduce_sum(b.multiply(s, e), (0,)))
    first = gradient_graph(loss)
    assert [eqn.op.is_differentiated for eqn in first.equations if isinstance(eqn.op, Checkpoint)] == [True]
    second = vjp(first, [True, True])
    regions = [eqn.op for eqn in second.backward.equations if isinstance(eqn.op, Checkpoint)]
    assert regions
    assert all(region.is_differentiated and region.policy == nothing_saveable for region in regions)
    forwards = jvp(first, [True, True]).graph
    assert sum(isinstance(eqn.op, Checkpoint) for eqn in forwards.equations) == 1


def test_a_policy_on_the_whole_function_stays_in_all_derivatives() -> None:
    graph = parse("graph @f(%x: f64[]) -> (f64[]) { %0: f64[] = sine %x %1: f64[] = exponential %0 return %1 }")
    derivative, x = graph, 0.7
    # f = exp(sin x), and its derivatives by hand.
    s, c, f = np.sin(x), np.cos(x), np.exp(np.sin(x))
    expected = [c * f, (c * c - s) * f, (c * c * c - 3 * s * c - c) * f]
    for order, value in enumerate(expected, start=1):
        derivative = gradient_graph(derivative, by_seed(order))
        np.testing.assert_allclose(run(derivative, [np.asarray(x)])[0], value, rtol=1e-13)


def test_a_forward_region_is_not_differentiated_twice_in_a_mixed_graph() -> None:
    """A region of known values stays in the forward graph; the policy on the whole graph sees into it."""
    text = """graph @f(%x: f64[3], %y: f64[3]) -> (f64[]) {
      %0: f64[3] = checkpoint %x {body=graph @g(%x: f64[3]) -> (f64[3]) {
        %0: f64[3] = sine %x
        %1: f64[3] = name %0 {label="a"}
        %2: f64[3] = exponential %1
        return %2
      }, policy="nothing"}
      %1: f64[3] = multiply %0, %y
      %2: f64[] = reduce_sum %1 {dimensions=[0]}
      return %2
    }"""
    plain = vjp(parse(text), [False, True])
    assert [residual.source.op.name for residual in plain.residuals if residual.source] == ["checkpoint"]
    named = vjp(under_policy(parse(text), parse_policy("names=a")), [False, True])
    assert [residual.label for residual in named.residuals] == ["a"]


def test_lengthening_a_chain_lengthens_its_derivative_by_as_much() -> None:
    def size(count: int) -> int:
        b = Builder("chain")
        pulled = vjp(b.build(sine_chain(b, b.parameter(SCALAR, "x"), count)), [True])
        return len(pulled.forward.equations) + len(pulled.backward.equations)

    sizes = [size(count) for count in (2, 3, 4, 5)]
    assert {later - earlier for earlier, later in pairwise(sizes)} == {3}
