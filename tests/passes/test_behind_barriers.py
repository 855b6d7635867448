"""What products compute of their operands on a TPU stands behind a barrier, not in front of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.lowering.pipeline import run_passes
from rematc.lowering.target import Target
from rematc.passes.behind_barriers import BehindBarriers
from rematc.passes.kernels import TPU
from tests.support.ahead import compiler_for
from tests.support.arrays import same_bits

HEAD = """
graph @main(%x: f32[4,8], %w: f32[8,16], %s: f32[4,16]) -> (f32[4,8], f32[8,16]) {
  %0: f32[4,16] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[4,16] = exponential %0
  %2: f32[4,16] = multiply %1, %s
  %3: f32[4,8], %4: f32[4,16] = optimization_barrier %x, %2
  %5: f32[4,8] = dot_general %4, %w {contract=[[1],[1]], batch=[[],[]]}
  %6: f32[8,16] = dot_general %3, %4 {contract=[[0],[0]], batch=[[],[]]}
  return %5, %6
}
"""


def moved(text: str) -> Graph:
    graph = parse(text)
    found = BehindBarriers(TPU).run(graph)
    random = np.random.default_rng(0)
    arrays = [random.normal(size=type.shape).astype(np.float32) for type in graph.param_types]
    assert same_bits(evaluate(found, arrays), evaluate(graph, arrays))
    return found


def behind(graph: Graph) -> list[str]:
    """The equations behind the barrier, by their ops."""
    names = [eqn.op.name for eqn in graph.equations]
    return names[names.index("optimization_barrier") + 1 :]


def test_what_only_products_read_is_computed_behind_the_barrier() -> None:
    graph = moved(HEAD)
    assert behind(graph) == ["exponential", "multiply", "dot_general", "dot_general"]
    (barrier,) = [eqn for eqn in graph.equations if isinstance(eqn.op, OptimizationBarrier)]
    (logits,) = graph.equations[0].results
    assert set(barrier.operands) == {graph.params[0], logits, graph.params[2]}, "all that it is computed from waits"


#: The same, but what is in front of the barrier follows from a second product.
PRODUCTS = HEAD.replace("%s: f32[4,16]", "%m: f32[16,16]").replace(
    "exponential %0", "dot_general %0, %m {contract=[[1],[0]], batch=[[],[]]}"
)


def with_result(text: str, name: str) -> str:
    """With one more result, computed last where the name is that of another equation."""
    text = text.replace("f32[8,16]) {", "f32[8,16], f32[4,16]) {")
    return text.replace("return", f"{name}\n  return").replace("%6\n}", f"%6, {name.partition(':')[0]}\n}}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(with_result(HEAD, "%7: f32[4,16] = sine %4"), id="read by another kernel"),
        pytest.param(
            HEAD.replace("f32[8,16]) {", "f32[8,16], f32[4,16]) {").replace("%6\n", "%6, %4\n"), id="a result"
        ),
        pytest.param(with_result(HEAD, "%7: f32[4,16] = sine %2"), id="read in front of it as well"),
        pytest.param(PRODUCTS.replace("%1, %s", "%1, %0"), id="of two arrays that are held for it"),
    ],
)
def test_what_is_in_memory_anyway_or_takes_more_to_hold_stays_in_front(text: str) -> None:
    assert behind(moved(text))[0] == "dot_general"


def test_what_is_held_anyway_counts_for_nothing() -> None:
    text = with_result(PRODUCTS.replace("%1, %s", "%1, %0"), "%7: f32[4,16] = sine %0")
    assert behind(moved(text))[0] == "multiply"


def test_programs_are_made_so_for_tpus() -> None:
    for platform, first in (("tpu", "exponential"), ("cuda", "dot_general"), ("cpu", "dot_general")):
        assert behind(run_passes(parse(HEAD), target=Target.of(platform)).graph)[0] == first


def test_the_gradient_of_logits_is_in_memory_nowhere_on_a_tpu() -> None:
    """Figures of XLA for a v5e: the logits, and not their gradient beside them."""

    def loss(head: Any, x: Any, tokens: Any) -> Any:
        logits = jnp.einsum("btd,dv->btv", jnp.tanh(x), head.astype(x.dtype), preferred_element_type=jnp.float32)
        picked = jnp.take_along_axis(logits, tokens[:, :, None], axis=-1).squeeze(-1)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    struct: Any = jax.ShapeDtypeStruct
    shapes = struct((512, 50304), "float32"), struct((8, 512, 512), "bfloat16"), struct((8, 512), "int32")
    step = rematc.value_and_grad(rematc.from_jax(loss), (0, 1), policy="nothing")
    taken = rematc.compile(step, *shapes, target=compiler_for("v5e")).memory().temp_bytes
    assert taken < 1.1 * 8 * 512 * 50304 * 4
