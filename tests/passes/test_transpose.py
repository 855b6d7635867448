"""The transpose is the adjoint: <J t, u> = <t, J' u>."""

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
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.types import F64, TensorType
from rematc.passes.linearize import linearize
from rematc.passes.transpose import transpose
from tests.support.smooth_graphs import arrays_for, count_ops, is_float, run, smooth_graphs


def inner(xs: list[Any], ys: list[Any]) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(xs, ys, strict=True)))


@settings(max_examples=60)
@given(smooth_graphs())
def test_is_the_adjoint_of_the_linear_graph(graph: Graph) -> None:
    linearized = linearize(graph, is_float(graph))
    linear = linearized.linear
    residuals = run(linearized.forward, arrays_for(graph))[len(graph.results) :]
    count = len(residuals)
    is_linear = [index >= count for index in range(len(linear.params))]
    adjoint = transpose(linear, is_linear)

    tangents = arrays_for(linear, seed=1)[count:]
    outgoing = run(linear, [*residuals, *tangents])
    cts = [np.asarray(np.random.default_rng(2).normal(size=x.shape)) for x in outgoing]
    reached = iter(run(adjoint.graph, [*residuals, *cts]))
    pulled = [next(reached) if is_set else np.zeros_like(t) for is_set, t in zip(adjoint.has_ct, tangents, strict=True)]
    np.testing.assert_allclose(inner(outgoing, cts), inner(tangents, pulled), rtol=1e-9, atol=1e-9)


def test_known_equations_come_first_and_cotangents_are_added() -> None:
    graph = parse(
        """graph @f(%x: f64[3], %t: f64[3]) -> (f64[3], f64[3]) {
             %0: f64[3] = multiply %t, %x
             %1: f64[3] = sine %x
             %2: f64[3] = multiply %0, %1
             return %2, %0
           }"""
    )
    adjoint = transpose(graph, [False, True]).graph
    assert [eqn.op.name for eqn in adjoint.equations] == ["sine", "multiply", "add", "multiply"]
    x, c, d = np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0, 7.0])
    np.testing.assert_allclose(run(adjoint, [x, c, d])[0], (c * np.sin(x) + d) * x, rtol=1e-15)


def test_a_value_returned_twice_gets_both_cotangents() -> None:
    graph = parse("graph @f(%t: f64[3]) -> (f64[3], f64[3]) { return %t, %t }")
    adjoint = transpose(graph, [True]).graph
    np.testing.assert_array_equal(run(adjoint, [np.ones(3), np.full(3, 2.0)])[0], np.full(3, 3.0))


def test_a_linear_parameter_that_no_result_needs_has_a_symbolic_zero() -> None:
    graph = parse(
        """graph @f(%t: f64[3], %u: f64[3]) -> (f64[3]) {
             %0: f64[3] = negate %t
             %1: f64[3] = negate %u
             return %1
           }"""
    )
    adjoint = transpose(graph, [True, True])
    assert adjoint.has_ct == (False, True)
    assert count_ops(adjoint.graph) == {"negate": 1}


def test_results_without_cotangent_count_as_zero() -> None:
    graph = parse(
        """graph @f(%t: f64[3]) -> (f64[3], f64[3]) {
             %0: f64[3] = negate %t
             %1: f64[3] = add %t, %t
             return %0, %1
           }"""
    )
    adjoint = transpose(graph, [True], [True, False])
    assert len(adjoint.graph.params) == 1
    np.testing.assert_array_equal(run(adjoint.graph, [np.ones(3)])[0], -np.ones(3))
    assert transpose(graph, [True], [False, False]).has_ct == (False,)


REGION = """graph @f(%x: f64[3], %w: f64[3], %t: f64[3]) -> (f64[3], f64[3]) {
  %0: f64[3], %1: f64[3] = checkpoint %x, %w, %t {body=graph @g(%x: f64[3], %w: f64[3], %t: f64[3])
      -> (f64[3], f64[3]) {
    %0: f64[3] = sine %x
    %1: f64[3] = multiply %t, %0
    %2: f64[3] = multiply %t, %w
    return %1, %2
  }, policy="dots", prevent_cse=[true,false,true], is_differentiated=true}
  return %0, %1
}"""


def test_the_transpose_of_a_region_is_one_region_with_its_policy_and_pins() -> None:
    (eqn,) = transpose(parse(REGION), [False, False, True]).graph.equations
    assert isinstance(eqn.op, Checkpoint)
    assert eqn.op.is_differentiated
    assert eqn.op.policy is not None
    assert eqn.op.policy.spec == "dots"
    assert eqn.op.prevent_cse == (True, False, True, True), "x, w, and the two cotangents, which are pinned"


def test_a_region_takes_only_the_cotangents_that_there_are() -> None:
    adjoint = transpose(parse(REGION), [False, False, True], [False, True]).graph
    (eqn,) = adjoint.equations
    assert [str(value.type) for value in eqn.operands] == ["f64[3]"] * 3
    w, ct = np.arange(3.0), np.full(3, 2.0)
    np.testing.assert_array_equal(run(adjoint, [np.ones(3), w, ct])[0], w * ct)


def test_an_operand_given_twice_to_a_region_gets_both_cotangents() -> None:
    graph = parse(
        """graph @f(%x: f64[3], %t: f64[3]) -> (f64[3]) {
             %0: f64[3] = checkpoint %x, %t, %t {body=graph @g(%x: f64[3], %t: f64[3], %u: f64[3]) -> (f64[3]) {
               %0: f64[3] = multiply %t, %x
               %1: f64[3] = add %0, %u
               return %1
             }, is_differentiated=true}
             return %0
           }"""
    )
    adjoint = transpose(graph, [False, True]).graph
    x, ct = np.arange(3.0), np.full(3, 2.0)
    np.testing.assert_array_equal(run(adjoint, [x, ct])[0], x * ct + ct)


def test_a_function_that_is_not_linear_names_the_op_and_the_line() -> None:
    b = Builder("f")
    t = b.parameter(TensorType(F64, (3,)), "t")
    loc = Location("model.py", 7, 4)
    with b.at(loc):
        y = b.sine(t)
    with pytest.raises(CompileError, match="transpose of 'sine'") as failure:
        transpose(b.build(y), [True])
    assert failure.value.loc == loc


# -- slices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([((0, 0), (3, 2)), ((0, 2), (3, 6))], ["concatenate"]),  # a split
        ([((0, 4), (3, 6)), ((0, 1), (3, 3)), ((0, 4), (3, 6))], ["add", "concatenate"]),  # gaps, and twice the same
        ([((0, 0), (3, 4)), ((0, 2), (3, 6))], ["pad", "pad", "add"]),  # they overlap
        ([((0, 0), (3, 2)), ((0, 2), (2, 6))], ["pad", "pad", "add"]),  # along two dimensions
        ([((0, 0), (3, 6)), ((0, 2), (3, 6))], ["pad", "add"]),  # one takes all
        ([((1, 0), (2, 6))], ["pad"]),
    ],
)
def test_slices_that_do_not_overlap_go_back_as_one_array(slices: list[Any], expected: list[str]) -> None:
    b = Builder("f")
    x = b.parameter(TensorType(F64, (3, 6)))
    graph = b.build(*[b.slice(x, start, limit) for start, limit in slices])
    adjoint = transpose(graph, (True,)).graph
    work = [eqn.op.name for eqn in adjoint.equations if eqn.op.name not in ("constant", "broadcast_in_dim")]
    assert work == expected
    cts = [np.random.default_rng(index).normal(size=value.type.shape) for index, value in enumerate(graph.results)]
    total = np.zeros((3, 6))
    for (start, limit), ct in zip(slices, cts, strict=True):
        total[tuple(map(slice, start, limit))] += ct
    np.testing.assert_allclose(run(adjoint, cts)[0], total)


def test_slices_are_joined_beside_what_else_a_value_is_used_for() -> None:
    b = Builder("f")
    x = b.parameter(TensorType(F64, (4,)))
    parts = [b.slice(x, (index,), (index + 1,)) for index in range(4)]
    adjoint = transpose(b.build(*parts, b.negate(x)), (True,)).graph
    assert count_ops(adjoint)["concatenate"] == 1
    assert count_ops(adjoint)["add"] == 1
    found = run(adjoint, [*(np.full(1, float(index)) for index in range(4)), np.ones(4)])[0]
    np.testing.assert_array_equal(found, [-1, 0, 1, 2])
