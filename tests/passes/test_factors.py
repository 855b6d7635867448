"""Factors of products in the order in which XLA:CPU copies less, and what it expands, written once."""

from __future__ import annotations

from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.verifier import verify
from rematc.lowering.target import Target
from rematc.passes.legalize.factors import SmallerFirst
from rematc.passes.legalize.legalization import Legalize
from tests.support.random_graphs import arguments_for, graphs, same_bits

#: The derivative of a head: the cotangent of logits with more columns than rows, and what is multiplied by the weights.
HEAD = """graph @f(%x: f32[2,8,4], %ct: f32[2,8,64], %w: f32[64,5]) -> (RESULT) {
  %0: f32[64,4] = dot_general %ct, %x {contract=[[0,1],[0,1]], batch=[[],[]]}
  %1: f32[4,64] = transpose %0 {permutation=[1,0]}
  %2: f32[2,8,64] = optimization_barrier %ct
  %3: f32[2,8,64] = negate %2
  %4: f32[2,8,5] = dot_general %ct, %w {contract=[[2],[0]], batch=[[],[]]}
  return RETURNED
}"""
BARRIER = "optimization_barrier"
ON_CPU, ON_GPU = Legalize("cpu"), Legalize("cuda")


def head(*returned: str, old: str = BARRIER, new: str = BARRIER) -> Graph:
    types = {"%0": "f32[64,4]", "%1": "f32[4,64]", "%3": "f32[2,8,64]", "%4": "f32[2,8,5]"}
    text = HEAD.replace("RESULT", ", ".join(types[name] for name in returned))
    return parse(text.replace("RETURNED", ", ".join(returned)).replace(old, new))


def ops(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def agrees(before: Graph, after: Graph) -> bool:
    verify(after)
    random = np.random.default_rng(0)
    arguments = [random.normal(size=type.shape).astype(type.dtype.numpy) for type in before.param_types]
    pairs = zip(evaluate(before, arguments), evaluate(after, arguments), strict=True)
    return all(np.allclose(old, new, rtol=1e-4, atol=1e-5) for old, new in pairs)


def test_the_smaller_factor_is_the_first_and_nothing_is_transposed() -> None:
    before = head("%1", "%3", "%4")
    after = ON_CPU.run(before)
    assert ops(after)[:2] == [BARRIER, "dot_general"] and "transpose" not in ops(after)
    assert after.equations[1].operands[0] is after.params[0]
    assert agrees(before, after)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("op", ["pad", "negate"])
def test_all_products_read_a_larger_factor_behind_one_barrier(op: str, shares: bool, dtype: str) -> None:
    made = {
        "pad": "%9: f32[2,8,64] = pad %ct, %8 {low=[0,1,0], high=[0,-1,0], interior=[0,0,0]}",
        "negate": "%9: f32[2,8,64] = negate %ct",
    }
    lines = f"%8: f32[] = constant {{type=f32[], data=0.0}}\n{made[op]}\n%0:"
    text = HEAD.replace("%ct,", "%9,").replace("%0:", lines).replace("RETURNED", "%1, %3, %4")
    legalize = Legalize("cpu", shares_behind_barriers=shares)
    text = text.replace("RESULT", "f32[4,64], f32[2,8,64], f32[2,8,5]").replace("f32", dtype)
    after = legalize.run(parse(text))
    producer = {value: eqn for eqn in after.equations for value in eqn.results}
    products = [eqn for eqn in after.equations if eqn.op.name == "dot_general"]
    read = [producer[eqn.operands[side]] for eqn, side in zip(products, (1, 0), strict=True)]
    sources = [producer[eqn.operands[0]] if eqn.op.name == "reshape" else eqn for eqn in read]
    assert sources[0].op.name == BARRIER
    is_widened = dtype != "f32"  # behind the barrier and before it there would be two copies in 32 bits
    assert (sources[1] is sources[0]) == (shares or op == "pad" or is_widened)


def test_what_is_not_transposed_anyway_is_written_first() -> None:
    before = head("%0", "%1", "%3", "%4")
    after = ON_CPU.run(before)
    assert ops(after)[:4] == [BARRIER, "dot_general", BARRIER, "transpose"]
    assert agrees(before, after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("optimization_barrier %ct", "negate %ct"),
        ("contract=[[0,1],[0,1]]", "contract=[[1,0],[1,0]]"),
        ("64", "3"),
        (
            "dot_general %ct, %w {contract=[[2],[0]], batch=[[],[]]",
            "slice %ct {start=[0,0,0], limit=[2,8,5], strides=[1,1,1]",
        ),
    ],
    ids=["no barrier", "another order", "smaller", "one product"],
)
def test_nothing_else_changes(old: str, new: str) -> None:
    graph = head("%1", "%3", "%4", old=old, new=new)
    assert ops(ON_CPU.run(graph)) == ops(graph)


def test_other_platforms_take_factors_in_any_order() -> None:
    assert ops(ON_GPU.run(head("%1", "%3", "%4"))) == ops(head("%1", "%3", "%4"))


def test_xla_takes_less_for_the_derivative_of_a_head() -> None:
    x, w = jnp.ones((4, 64, 32)), jnp.ones((32, 4096))

    def loss(w: object, x: object) -> object:
        logits = np.tanh(x @ w)  # type: ignore[operator]  # arrays
        return np.sum(np.log(np.sum(np.exp(logits), -1)))

    logits = 4 * 64 * 4096 * 4
    compiled = rematc.compile(rematc.value_and_grad(loss, argnums=(0, 1), policy="nothing"), w, x)
    most = 2.2 if Target.of("cpu").shares_behind_barriers else 3.2
    assert compiled.memory().temp_bytes < most * logits, "with a copy in another order it is four"


ERFC = """graph @f(%x: f32[128,128], %w: f32[128,128]) -> (f32[128,128], f32[128,128]) {
  %0: f32[128,128] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[128,128] = optimization_barrier %0
  %2: f32[128,128] = erfc %1
  %3: f32[128,128] = multiply %2, %1
  %4: f32[128,128] = add %2, %w
  return %3, %4
}"""


@pytest.mark.parametrize(
    ("old", "new", "barriers"),
    [("", "", 2), ("erfc", "tanh", 1), ("add %2", "add %1", 1), ("optimization_barrier", "negate", 0)],
    ids=["erfc", "one instruction", "one reader", "no barriers"],
)
def test_what_xla_expands_in_parts_is_written_once_for_several_readers(old: str, new: str, barriers: int) -> None:
    graph = parse(ERFC.replace(old, new) if old else ERFC)
    assert Counter(ops(ON_CPU.run(graph)))[BARRIER] == barriers
    assert Counter(ops(ON_GPU.run(graph)))[BARRIER] == min(barriers, 1)


@settings(max_examples=40)
@given(graphs())
def test_all_other_graphs_stay_as_they_are(graph: Graph) -> None:
    after = SmallerFirst().graph(graph)
    verify(after)
    if ops(after) == ops(graph):
        arguments = arguments_for(graph)
        assert same_bits(evaluate(graph, arguments), evaluate(after, arguments))
