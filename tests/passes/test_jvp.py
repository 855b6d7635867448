"""jvp agrees with finite differences, and keeps regions, symbolic zeros and locations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from rematc.compiler.api.text import parse
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.types import BF16, F32, F64, TensorType
from rematc.passes.jvp import jvp
from tests.support.smooth_graphs import arrays_for, directional_difference, is_float, run, smooth_graphs

VECTOR = TensorType(F64, (3,))


@settings(max_examples=60)
@given(smooth_graphs(stops=False))
def test_agrees_with_central_differences(graph: Graph) -> None:
    arrays = arrays_for(graph)
    tangents = [x for x in arrays_for(graph, seed=1) if x.dtype.kind == "f"]
    differentiated = jvp(graph, is_float(graph))
    outcome = run(differentiated.graph, [*arrays, *tangents])
    primals, given_tangents = outcome[: len(graph.results)], iter(outcome[len(graph.results) :])
    expected = iter(directional_difference(graph, arrays, tangents))
    for primal, has_tangent, reference in zip(primals, differentiated.has_tangent, run(graph, arrays), strict=True):
        np.testing.assert_array_equal(primal, reference)
        if primal.dtype.kind != "f":
            assert not has_tangent
            continue
        tangent = next(given_tangents) if has_tangent else np.zeros(primal.shape)
        # Central differences with a step of 1e-5 lose half the digits; third derivatives grow with depth.
        np.testing.assert_allclose(tangent, next(expected), rtol=2e-4, atol=2e-5)


@settings(max_examples=40)
@given(smooth_graphs())
def test_is_linear_in_the_tangents(graph: Graph) -> None:
    arrays = arrays_for(graph)
    first, second = ([x for x in arrays_for(graph, seed) if x.dtype.kind == "f"] for seed in (1, 2))
    differentiated = jvp(graph, is_float(graph)).graph
    count = len(graph.results)

    def along(tangents: list[Any]) -> list[Any]:
        return run(differentiated, [*arrays, *tangents])[count:]

    total = along([2 * x - y for x, y in zip(first, second, strict=True)])
    for whole, x, y in zip(total, along(first), along(second), strict=True):
        np.testing.assert_allclose(whole, 2 * x - y, rtol=1e-9, atol=1e-9)


def test_without_tangents_it_is_the_graph_itself() -> None:
    graph = parse("graph @f(%x: f64[3]) -> (f64[3]) { %0: f64[3] = sine %x return %0 }")
    differentiated = jvp(graph, [False])
    assert differentiated.graph == graph
    assert differentiated.has_tangent == (False,)


def test_only_parameters_asked_for_get_tangents() -> None:
    graph = parse(
        """graph @f(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3]) {
             %0: f64[3] = sine %x
             %1: f64[3] = sine %y
             return %0, %1
           }"""
    )
    differentiated = jvp(graph, [False, True])
    assert differentiated.has_tangent == (False, True)
    assert [param.name for param in differentiated.graph.params] == ["x", "y", "dy"]
    assert len(differentiated.graph.results) == 3


def test_a_parameter_that_is_a_result_has_its_own_tangent() -> None:
    graph = parse("graph @f(%x: f64[3]) -> (f64[3], f64[3]) { return %x, %x }")
    differentiated = jvp(graph, [True]).graph
    x, t = np.arange(3.0), np.ones(3)
    for found, expected in zip(run(differentiated, [x, t]), [x, x, t, t], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_integers_booleans_and_stopped_gradients_have_no_tangent() -> None:
    graph = parse(
        """graph @f(%x: f64[3]) -> (i32[3], bool[3], i64[3], f64[3], f64[3]) {
             %0: i32[3] = convert %x {dtype=i32}
             %1: bool[3] = compare %x, %x {direction="LT"}
             %2: i64[3] = bitcast_convert %x {dtype=i64}
             %3: f64[3] = stop_gradient %x
             %4: f64[3] = convert %0 {dtype=f64}
             return %0, %1, %2, %3, %4
           }"""
    )
    differentiated = jvp(graph, [True])
    assert differentiated.has_tangent == (False,) * 5
    assert differentiated.graph.equations == graph.equations


def test_the_jvp_of_a_checkpoint_is_one_checkpoint_with_its_policy_and_pins() -> None:
    graph = parse(
        """graph @f(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3]) {
             %0: f64[3], %1: f64[3] = checkpoint %x, %y {body=graph @g(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3]) {
               %0: f64[3] = sine %x
               %1: f64[3] = cosine %y
               return %0, %1
             }, policy="names=a", prevent_cse=[true,false]}
             return %0, %1
           }"""
    )
    (eqn,) = jvp(graph, [False, True]).graph.equations
    assert isinstance(eqn.op, Checkpoint)
    assert eqn.op.policy is not None
    assert eqn.op.policy.spec == "names=a"
    assert eqn.op.prevent_cse == (True, False, True), "the tangent is pinned, for it comes late"
    assert not eqn.op.is_differentiated
    assert len(eqn.results) == 3, "both primals, and the tangent that there is"


def test_a_region_without_tangents_stays_as_it_is() -> None:
    graph = parse(
        """graph @f(%x: f64[3], %y: f64[3]) -> (f64[3]) {
             %0: f64[3] = checkpoint %x {body=graph @g(%x: f64[3]) -> (f64[3]) {
               %0: f64[3] = sine %x
               return %0
             }}
             %1: f64[3] = multiply %0, %y
             return %1
           }"""
    )
    differentiated = jvp(graph, [False, True]).graph
    assert differentiated.equations[0] is graph.equations[0]


def test_the_jvp_of_a_jvp_is_the_second_derivative() -> None:
    graph = parse("graph @f(%x: f64[3]) -> (f64[3]) { %0: f64[3] = sine %x return %0 }")
    second = jvp(jvp(graph, [True]).graph, [True, False]).graph
    x, one = np.array([0.1, 0.7, -2.0]), np.ones(3)
    np.testing.assert_allclose(run(second, [x, one, one])[-1], -np.sin(x), rtol=1e-15)


def test_tangent_equations_have_the_line_of_their_primal() -> None:
    b = Builder("f")
    x = b.parameter(VECTOR, "x")
    loc = Location("model.py", 7, 4)
    with b.at(loc):
        y = b.sine(x)
    assert {eqn.loc for eqn in jvp(b.build(y), [True]).graph.equations} == {loc}


def test_a_missing_rule_names_the_op_and_the_line() -> None:
    b = Builder("f")
    x = b.parameter(TensorType(F32, (3,)), "x")
    loc = Location("model.py", 7, 4)
    with b.at(loc):
        y = b.emit1(BitcastConvert(BF16), x)
    with pytest.raises(CompileError, match="jvp of 'bitcast_convert' does not exist: the bits") as failure:
        jvp(b.build(y), [True])
    assert failure.value.loc == loc
