"""What ops write over, repeated for each of them; and what a plan holds of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import rematc.jax
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import run_passes
from rematc.passes.own_repeats import OwnRepeats
from rematc.passes.planning.apply import apply
from rematc.passes.planning.device import CPU
from rematc.passes.planning.problem import Stages
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from tests.support.arrays import assert_near
from tests.support.random_graphs import arguments_for, same_bits

#: Zeros that a loop sums up in, that another one does, and that are read as they are.
SUMS = """graph @f(%xs: f32[3,4], %ys: f32[2,4]) -> (f32[4], f32[4]{}) {{
  %0: f32[] = constant {{type=f32[], data=0x00000000}}
  %1: f32[4] = broadcast_in_dim %0 {{shape=[4], dimensions=[]}}
  %2: f32[4] = scan %1, %xs {{length=3, consts=0, carry=1,
    body=graph @sum(%c: f32[4], %x: f32[4]) -> (f32[4]) {{ %0: f32[4] = add %c, %x return %0 }}}}
  %3: f32[4] = scan %1, %ys {{length=2, consts=0, carry=1,
    body=graph @sum(%c: f32[4], %x: f32[4]) -> (f32[4]) {{ %0: f32[4] = add %c, %x return %0 }}}}
  return %2, %3{}
}}"""


def begun_with(graph: Graph) -> list[int]:
    """The places of the equations that compute what the loops begin with."""
    producer = {value: index for index, eqn in enumerate(graph.equations) for value in eqn.results}
    return [producer[eqn.operands[0]] for eqn in graph.equations if eqn.op.name == "scan"]


@pytest.mark.parametrize(("results", "value", "begins"), [("", "", [1, 3]), (", f32[4]", ", %1", [2, 4])])
def test_each_loop_begins_with_its_own(results: str, value: str, begins: list[int]) -> None:
    """Right before it; what nothing reads any more is gone."""
    graph = parse(SUMS.format(results, value))
    own = OwnRepeats().run(graph)
    verify(own)
    assert begun_with(own) == begins
    assert OwnRepeats().run(own) is own
    arguments = arguments_for(graph, special=0.0)
    assert same_bits(evaluate(own, arguments), evaluate(graph, arguments))


#: Zeros that are written first, and summed up in last.
LATE = """graph @f(%x: f32[8,4], %w: f32[4,4]) -> (f32[4]) {
  %0: f32[] = constant {type=f32[], data=0x00000000}
  %1: f32[4] = broadcast_in_dim %0 {shape=[4], dimensions=[]}
  %2: f32[8,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[8,4] = dot_general %2, %w {contract=[[1],[0]], batch=[[],[]]}
  %4: f32[4] = scan %1, %3 {length=8, consts=0, carry=1,
    body=graph @sum(%c: f32[4], %x: f32[4]) -> (f32[4]) { %0: f32[4] = add %c, %x return %0 }}
  return %4
}"""


def test_a_stage_repeats_itself_what_one_op_of_it_writes_over() -> None:
    """Its region reads the number, behind the barrier, and no array of it, which would be held until then."""
    graph = parse(LATE)
    staged = apply(translate(graph, Machine(CPU)), Stages((3,), ((),)))
    verify(staged)
    (region,) = [eqn for eqn in staged.equations if isinstance(eqn.op, Checkpoint)]
    assert sorted(value.type.shape for value in region.operands) == [(), (8, 4)]
    run = run_passes(staged, "barriers,simplify,cse,dce").graph
    (barrier,) = [place for place, eqn in enumerate(run.equations) if isinstance(eqn.op, OptimizationBarrier)]
    (zeros,) = [place for place, eqn in enumerate(run.equations) if isinstance(eqn.op, BroadcastInDim)]
    assert barrier < zeros
    arguments = arguments_for(graph, special=0.0)
    assert same_bits(evaluate(run, arguments), evaluate(graph, arguments))


CHUNKS, TOKENS, WIDTH, WORDS = 4, 32, 32, 2048


def loss(weights: Any, tokens: Any, wrap: Any) -> Any:
    """A head in chunks that shares its table with the embedding."""
    table, *layers = weights
    x = table[tokens]
    for layer in layers:
        x = x + jnp.tanh(x @ layer)

    def chunk(total: Any, rows: Any) -> Any:
        x, tokens = rows
        logits = x @ table.T
        return total + jnp.sum(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, tokens[:, None], 1)[:, 0]), ()

    rows = x.reshape(CHUNKS, -1, WIDTH), tokens.reshape(CHUNKS, -1)
    return lax.scan(wrap(chunk), jnp.zeros(()), rows)[0]


def step(weights: Any, tokens: Any, wrap: Any = lambda chunk: chunk) -> Any:
    """Gradient descent with gradients of norm one."""
    gradients = jax.grad(loss)(weights, tokens, wrap)
    norm = jnp.sqrt(sum(jnp.sum(gradient * gradient) for gradient in gradients))
    return [weight - 0.1 * gradient / norm for weight, gradient in zip(weights, gradients, strict=True)]


@pytest.mark.parametrize("less", [0, 2**15])
def test_a_plan_reads_a_shared_table_as_it_is_and_holds_its_gradient_once(less: int) -> None:
    """Less than with each chunk wrapped by hand; it was that, the table transposed, and zeros to scatter into.

    The loop forward gives nothing any more then, and its steps are in no stages.
    """
    keys = jax.random.split(jax.random.key(0), 3)
    weights = [jax.random.normal(keys[0], (WORDS, WIDTH)), *jax.random.normal(keys[1], (2, WIDTH, WIDTH))]
    tokens = jax.random.randint(keys[2], (CHUNKS * TOKENS,), 0, WORDS)
    by_hand = jax.jit(lambda weights, tokens: step(weights, tokens, jax.checkpoint), donate_argnums=0)
    budget = temporary(by_hand.lower(weights, tokens).compile()) - less
    planned: Any = rematc.jax.jit(step, budget=budget, donate_argnums=0)
    assert temporary(planned.lower(weights, tokens).compile()) <= budget
    expected = jax.jit(step)(weights, tokens)
    assert_near(planned(weights, tokens), expected, 1e-5)


def temporary(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)
