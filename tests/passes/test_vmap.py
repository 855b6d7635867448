"""vmap as a pass: a batched graph is a loop over the elements, and what these share is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError, MissingRuleError, TypeMismatchError
from rematc.ir.locations import Location
from rematc.ir.ops.collective import AxisGather, AxisIndex, AxisMax, AxisMin, AxisSum, Collective
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.parser import parse_graph
from rematc.ir.policy import Policy
from rematc.ir.printer import print_graph
from rematc.ir.registry import OPS, register
from rematc.ir.types import F64, I32, TensorType
from rematc.ir.values import Types, Value
from rematc.ir.verifier import verify
from rematc.passes.jvp import jvp
from rematc.passes.linearize import under_policy, vjp
from rematc.passes.policies import parse_policy
from rematc.passes.transpose import transpose
from rematc.passes.vmap import vmap
from tests.support.smooth_graphs import arrays_for, count_ops, gradients, is_float, policies, run, smooth_graphs
from tests.support.work import lines_run

VECTOR, SCALAR = TensorType(F64, (3,)), TensorType(F64, ())
SIZE = 3
WAYS = st.tuples(*[st.booleans()] * 4)


def elements_for(graph: Graph, is_batched: Sequence[bool]) -> list[list[Any]]:
    """Arguments of each element of a batch, which agree where they are not batched."""
    own = [arrays_for(graph, seed) for seed in range(SIZE)]
    return [[x if is_set else y for x, y, is_set in zip(one, own[0], is_batched, strict=True)] for one in own]


def stacked(elements: Sequence[Sequence[Any]], is_batched: Sequence[bool]) -> list[Any]:
    columns = zip(*elements, strict=True)
    return [np.stack(column) if is_set else column[0] for column, is_set in zip(columns, is_batched, strict=True)]


def assert_is_loop(found: Sequence[Any], is_batched: Sequence[bool], expected: Sequence[Sequence[Any]]) -> None:
    for index, element in enumerate(expected):
        for result, has_batch, wanted in zip(found, is_batched, element, strict=True):
            # Sums over a batch dimension are made in another order than those over an element's.
            np.testing.assert_allclose(result[index] if has_batch else result, wanted, rtol=1e-11, atol=1e-11)


# -- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(smooth_graphs(), WAYS)
def test_vmap_is_a_loop(graph: Graph, is_batched: tuple[bool, ...]) -> None:
    batched = vmap(graph, is_batched, SIZE)
    verify(batched.graph)
    elements = elements_for(graph, is_batched)
    assert_is_loop(
        run(batched.graph, stacked(elements, is_batched)), batched.is_batched, [run(graph, one) for one in elements]
    )


@settings(max_examples=40)
@given(smooth_graphs(), policies(), WAYS)
def test_vmap_of_a_gradient_is_a_loop_of_gradients(graph: Graph, policy: Policy, is_batched: tuple[bool, ...]) -> None:
    """The forward and the backward graph batched one by one, the residuals between them batched where they are."""
    pulled = vjp(under_policy(graph, policy), is_float(graph), [index == 0 for index in range(len(graph.results))])
    elements = elements_for(graph, is_batched)
    forward = vmap(pulled.forward, is_batched, SIZE)
    residuals = run(forward.graph, stacked(elements, is_batched))[len(graph.results) :]
    cts = [np.ones((), np.float64)] if any(pulled.has_tangent) else []
    of_residuals = forward.is_batched[len(graph.results) :]
    backward = vmap(pulled.backward, [*of_residuals, *(False for _ in cts)], SIZE)
    verify(backward.graph)
    expected = []
    for one in elements:
        everything = zip(gradients(graph, one, policy), pulled.has_ct, strict=True)
        expected.append([gradient for gradient, is_set in everything if is_set])
    assert_is_loop(run(backward.graph, [*residuals, *cts]), backward.is_batched, expected)


@settings(max_examples=40)
@given(smooth_graphs(), policies(), WAYS)
def test_gradient_of_vmap_adds_up_the_elements(graph: Graph, policy: Policy, is_batched: tuple[bool, ...]) -> None:
    batched = vmap(under_policy(graph, policy), is_batched, SIZE)
    b = Builder("summed")
    params = [b.parameter(type) for type in batched.graph.param_types]
    loss = b.inline(batched.graph, params)[0]
    total = b.build(b.reduce_sum(loss, (0,)) if batched.is_batched[0] else b.scale(loss, SIZE))
    elements = elements_for(graph, is_batched)
    each = [gradients(graph, one) for one in elements]
    wanted = [
        np.stack(parts) if is_set else sum(parts)
        for parts, is_set in zip(zip(*each, strict=True), is_batched[:3], strict=True)
    ]
    for found, expected in zip(gradients(total, stacked(elements, is_batched)), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@settings(max_examples=25)
@given(smooth_graphs(max_equations=6), WAYS, WAYS)
def test_vmap_of_vmap_is_two_loops(graph: Graph, outer: tuple[bool, ...], inner: tuple[bool, ...]) -> None:
    once = vmap(graph, inner, SIZE)
    twice = vmap(once.graph, outer, 2)
    verify(twice.graph)
    arrays = arrays_for(twice.graph)
    rows = [[x[row] if is_set else x for x, is_set in zip(arrays, outer, strict=True)] for row in range(2)]
    assert_is_loop(run(twice.graph, arrays), twice.is_batched, [run(once.graph, row) for row in rows])


def test_an_empty_batch_has_empty_results() -> None:
    """Of ops, too, that have no form for windows in nothing: a gather, a product of two batches."""
    b = Builder()
    x, y = b.parameter(TensorType(F64, (3, 3))), b.parameter(VECTOR)
    start = b.convert(b.reduce_sum(y, (0,)), I32)
    window = b.dynamic_slice(x, (start, start), (2, 3))
    graph = b.build(b.dot_general(window, y, ([1], [0])), start)
    batched = vmap(graph, (True, True), 0)
    verify(batched.graph)
    assert [found.shape for found in run(batched.graph, [np.zeros((0, 3, 3)), np.zeros((0, 3))])] == [(0, 2), (0,)]


# -- what is shared ----------------------------------------------------------------------------------------------------


def test_what_the_elements_share_is_computed_once() -> None:
    b = Builder()
    x, w = b.parameter(VECTOR), b.parameter(VECTOR)
    shared = b.sine(w)
    graph = b.build(b.multiply(x, shared), shared)
    batched = vmap(graph, (True, False), SIZE)
    assert batched.is_batched == (True, False)
    assert batched.graph.equations[0] is graph.equations[0]
    assert batched.graph.result_types == (TensorType(F64, (SIZE, 3)), VECTOR)


def test_a_product_with_shared_weights_has_no_batch_dimension() -> None:
    b = Builder()
    x, w = b.parameter(VECTOR), b.parameter(TensorType(F64, (3, 3)))
    graph = b.build(b.dot_general(x, w, ([0], [0])))
    for is_batched, count in (((True, False), 0), ((False, True), 0), ((True, True), 1)):
        (product,) = [eqn.op for eqn in vmap(graph, is_batched, SIZE).graph.equations if eqn.op.name == "dot_general"]
        assert len(product.batch[0]) == count  # type: ignore[attr-defined]  # a DotGeneral


def test_a_function_called_often_is_batched_once() -> None:
    inner = Builder("body")
    body = inner.build(inner.sine(inner.parameter(VECTOR)))
    b = Builder()
    x = b.parameter(VECTOR)
    for _ in range(3):
        (x,) = b.emit(Call(body), x)
    bodies = {id(eqn.op.regions()[0]) for eqn in vmap(b.build(x), (True,), SIZE).graph.equations}
    assert len(bodies) == 1


def test_depth_is_no_limit_and_work_is_linear() -> None:
    def work(depth: int) -> int:
        b = Builder()
        x = b.parameter(VECTOR)
        for _ in range(depth):
            x = b.sine(x)
        graph = b.build(x)
        return lines_run(lambda: vmap(graph, (True,), SIZE))

    assert work(20_000) < 12 * work(2_000)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def sines(policy: str | None) -> Graph:
    """A region of three sines of x times w, each time after a product."""
    inner = Builder("body")
    w, x = inner.parameter(TensorType(F64, (3, 3))), inner.parameter(VECTOR)
    for _ in range(3):
        x = inner.sine(inner.dot_general(x, w, ([0], [0])))
    body = inner.build(x)
    b = Builder()
    params = [b.parameter(type) for type in body.param_types]
    return b.build(*b.emit(Checkpoint(body, None if policy is None else parse_policy(policy), (True, False)), *params))


@pytest.mark.parametrize("policy", [None, "dots", "dots-no-batch", "nothing"])
def test_a_checkpoint_stays_one_with_its_policy(policy: str | None) -> None:
    graph = sines(policy)
    (eqn,) = vmap(graph, (False, True), SIZE).graph.equations
    assert isinstance(eqn.op, Checkpoint)
    before = graph.equations[0].op
    assert isinstance(before, Checkpoint)
    assert (eqn.op.policy, eqn.op.prevent_cse) == (before.policy, before.prevent_cse)


@pytest.mark.parametrize(
    ("policy", "is_batched", "saved", "products"),
    [
        # As JAX's on the same function: with nothing saved, three products are made again, and each has two adjoints.
        (None, (False, True), 2, 9),
        ("dots", (False, True), 5, 6),
        ("dots-no-batch", (False, True), 5, 6),
        ("dots", (True, True), 5, 6),
        ("dots-no-batch", (True, True), 2, 9),
    ],
)
def test_residuals_and_recomputation_of_a_batched_checkpoint(
    policy: str | None, is_batched: tuple[bool, bool], saved: int, products: int
) -> None:
    batched = vmap(sines(policy), is_batched, SIZE).graph
    pulled = vjp(batched, (True, True))
    assert len(pulled.residuals) == saved
    assert count_ops(pulled.backward)["dot_general"] == products


def test_vmap_of_a_vjp_recomputes_what_the_vjp_does() -> None:
    pulled = vjp(sines("dots"), (True, True))
    kept = [False, *(True for _ in pulled.backward.params[1:])]
    before, after = count_ops(pulled.backward), count_ops(vmap(pulled.backward, kept, SIZE).graph)
    for name in ("sine", "cosine", "dot_general", "checkpoint"):
        assert after[name] == before[name]


# -- collectives -------------------------------------------------------------------------------------------------------


def of_axis(op: Collective, type: TensorType = VECTOR) -> Graph:
    b = Builder()
    return b.build(b.emit1(op, b.parameter(type)))


BATCH = np.random.default_rng(5).normal(size=(SIZE, 3))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (AxisSum("i", SIZE), BATCH.sum(0)),
        (AxisMax("i", SIZE), BATCH.max(0)),
        (AxisMin("i", SIZE), BATCH.min(0)),
        (AxisGather("i", SIZE, 0), BATCH),
        (AxisGather("i", SIZE, 1), BATCH.T),
    ],
)
def test_collectives_over_a_batch_are_the_same_for_all(op: Collective, expected: Any) -> None:
    batched = vmap(of_axis(op), (True,), SIZE, "i")
    verify(batched.graph)
    assert batched.is_batched == (False,)
    np.testing.assert_allclose(run(batched.graph, [BATCH])[0], expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (AxisSum("i", SIZE), BATCH[0] * SIZE),
        (AxisMax("i", SIZE), BATCH[0]),
        (AxisGather("i", SIZE, 0), np.stack([BATCH[0]] * SIZE)),
    ],
)
def test_collectives_of_what_is_shared(op: Collective, expected: Any) -> None:
    batched = vmap(of_axis(op), (False,), SIZE, "i")
    np.testing.assert_allclose(run(batched.graph, [BATCH[0]])[0], expected, rtol=1e-15)


def test_the_index_in_a_region_without_batched_operands() -> None:
    inner = Builder("body")
    body = inner.build(inner.emit1(AxisIndex("i", SIZE)))
    b = Builder()
    b.parameter(VECTOR)
    batched = vmap(b.build(*b.emit(Call(body))), (False,), SIZE, "i")
    assert batched.is_batched == (True,)
    assert batched.graph.result_types == (TensorType(I32, (SIZE,)),)


@pytest.mark.parametrize("op", [AxisSum("i", SIZE), AxisMax("i", SIZE), AxisGather("i", SIZE, 1)])
def test_collectives_of_another_axis_are_batched_and_stay(op: Collective) -> None:
    graph = of_axis(op)
    inner = vmap(graph, (True,), 2, "j")
    assert type(inner.graph.equations[0].op) is type(op)
    both = np.stack([BATCH, BATCH**2], 1)
    outer = vmap(inner.graph, (True,), SIZE, "i")
    verify(outer.graph)
    (found,) = run(outer.graph, [both])
    for row in range(2):
        (expected,) = run(vmap(graph, (True,), SIZE, "i").graph, [both[:, row]])
        np.testing.assert_array_equal(found[row], expected)


@pytest.mark.parametrize("op", [AxisSum("i", SIZE), AxisGather("i", SIZE, 0), AxisGather("i", SIZE, 1)])
def test_transposes_of_collectives_are_adjoint(op: Collective) -> None:
    """<F v, u> = <v, F' u> over the whole batch, where F is the op batched and F' its transpose batched."""
    graph = of_axis(op)
    adjoint = transpose(graph, (True,)).graph
    forward, backward = vmap(graph, (True,), SIZE, "i"), vmap(adjoint, (True,), SIZE, "i")
    (pushed,) = run(forward.graph, [BATCH])
    every = np.broadcast_to(pushed, (SIZE, *pushed.shape))
    cts = np.random.default_rng(6).normal(size=every.shape)
    (pulled,) = run(backward.graph, [cts])
    pulled = pulled if backward.is_batched[0] else np.broadcast_to(pulled, BATCH.shape)
    np.testing.assert_allclose(np.sum(BATCH * pulled), np.sum(every * cts), rtol=1e-13)


@pytest.mark.parametrize("op", [AxisSum("i", SIZE), AxisMax("i", SIZE), AxisMin("i", SIZE), AxisGather("i", SIZE)])
def test_tangents_of_collectives_are_limits_of_differences(op: Collective) -> None:
    graph = of_axis(op)
    tangent = np.random.default_rng(7).normal(size=BATCH.shape)
    pushed = vmap(jvp(graph, (True,)).graph, (True, True), SIZE, "i")
    (_, found) = run(pushed.graph, [BATCH, tangent])
    step = 1e-6
    values = vmap(graph, (True,), SIZE, "i").graph
    (ahead,), (behind,) = run(values, [BATCH + step * tangent]), run(values, [BATCH - step * tangent])
    np.testing.assert_allclose(found, (ahead - behind) / (2 * step), rtol=0, atol=1e-8)


@pytest.mark.parametrize("op", [AxisSum("i", 3), AxisMax("i", 3), AxisMin("i", 3), AxisGather("i", 3, 1)])
def test_text_of_collectives_reads_back(op: Collective) -> None:
    graph = of_axis(op)
    assert parse_graph(print_graph(graph)) == graph


def test_the_dimension_of_a_gather_is_checked() -> None:
    with pytest.raises(TypeMismatchError, match=r"'axis_gather' of f64\[3\] takes a dimension up to 1, got 2"):
        of_axis(AxisGather("i", SIZE, 2))


def test_a_collective_has_no_value_outside_its_batch() -> None:
    with pytest.raises(CompileError, match=r"'axis_sum' has a value only inside vmap\(\.\.\., axis_name='i'\)"):
        run(of_axis(AxisSum("i", SIZE)), [BATCH[0]])


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_op_without_the_rule_says_where_to_write_it() -> None:
    class Unruled(Op):
        name = "unruled"

        def infer(self, operands: Types) -> tuple[TensorType, ...]:
            return tuple(operands)

    Unruled.__module__ = "rematc.ir.ops.shape"
    register(Unruled)
    try:
        b = Builder()
        x: Value = b.parameter(VECTOR)
        b.loc = Location("model.py", 3, 5, "loss")
        graph = b.build(b.emit1(Unruled(), x))
        with pytest.raises(
            MissingRuleError, match=r"model.py:3:5.*vmap of 'unruled' needs Unruled.vmap \(ir/ops/shape"
        ):
            vmap(graph, (True,), SIZE)
    finally:
        del OPS["unruled"]
