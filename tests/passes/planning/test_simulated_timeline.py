"""Programs as they stand, by the model of a device: barriers take nothing, and the timeline has the peak."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import rematc
from rematc.ir.parser import parse_graph
from rematc.lowering.expectation import expected_peak, expected_timeline
from rematc.lowering.target import Target
from rematc.passes.memory_timeline import BACKWARD, FORWARD, KEPT, RECOMPUTED
from rematc.passes.planning.device import DEVICES
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.simulated_timeline import simulated, simulated_timeline
from tests.support.ahead import COMPILERS, compiler_for

H100 = Machine(DEVICES["h100"])
DOT = "{contract=[[1],[0]], batch=[[],[]]}"
KIB = 2**10
STRUCT: Any = jax.ShapeDtypeStruct
barrier: Any = jax.lax.optimization_barrier


def program(between: str) -> str:
    """Two products, between them a barrier, or nothing."""
    held = "%1" if between else "%0"
    return f"""\
graph @f(%x: f32[64,64], %w: f32[64,64]) -> (f32[64,64], f32[64,64]) {{
  %0: f32[64,64] = dot_general %x, %w {DOT}
  {between}
  %2: f32[64,64] = dot_general {held}, %w {DOT}
  %3: f32[64,64] = add %2, {held}
  %4: f32[64,64] = tanh {held}
  return %3, %4
}}"""


def test_a_barrier_takes_nothing_and_holds_what_it_is_given() -> None:
    plain = parse_graph(program(""))
    held = parse_graph(program("%1: f32[64,64], %9: f32[64,64] = optimization_barrier %0, %w"))
    assert simulated(held, H100).peak == simulated(plain, H100).peak == 16 * KIB, "the other one lies in a result"


def test_what_a_barrier_holds_is_in_memory_though_it_could_be_fused() -> None:
    text = """\
graph @f(%x: f32[64,64]) -> (f32[64]) {{
  %0: f32[64,64] = multiply %x, %x
  %1: f32[64,64] = {} %0
  %2: f32[64] = reduce_sum %1 {{dimensions=[1]}}
  return %2
}}"""
    assert simulated(parse_graph(text.format("negate")), H100).peak == 0
    assert simulated(parse_graph(text.format("optimization_barrier")), H100).peak == 16 * KIB


def test_barriers_in_loops_take_nothing_either() -> None:
    def step(c: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jnp.sin(barrier(c @ c)), None

    def loss(x: jax.Array) -> jax.Array:
        return jax.lax.scan(step, x, None, length=3)[0].sum()

    graph = rematc.lower(rematc.from_jax(loss), STRUCT((64, 64), jnp.float32)).graph
    assert simulated(graph, H100).peak <= 3 * 16 * KIB


LENDING = f"""\
graph @f(%x: f32[64,64], %old: f32[64,64]) -> (f32[64], f32[64,64]) {{
  %0: f32[64,64] = dot_general %x, %x {DOT}
  %1: f32[64,64] = dot_general %x, %0 {DOT}
  %2: f32[64] = reduce_sum %1 {{dimensions=[1]}}
  %3: f32[64,64] = dot_general %old, %x {DOT}
  return %2, %3
}}"""


def test_values_lie_in_the_memory_of_results_that_are_not_written_yet() -> None:
    graph = parse_graph(LENDING)
    assert simulated(graph, H100).peak == 16 * KIB, "one of the two products at a time"
    assert simulated(graph, H100, [(1, 1)]).peak == 32 * KIB, "the donated argument is read later, and lies there"
    early = parse_graph(LENDING.replace("%old, %x", "%x, %x"))
    assert simulated(early, H100, [(1, 1)]).peak == 16 * KIB, "nothing reads it"


SOFTMAX = """\
graph @f(%x: f32[64,WIDTH], %v: f32[WIDTH,1]) -> (f32[64,1]) {
  %0: f32[64,WIDTH] = sort %x {dimension=1}
  %1: f32[64] = reduce_max %0 {dimensions=[1]}
  %2: f32[64] = BETWEEN
  %3: f32[64,WIDTH] = broadcast_in_dim %2 {shape=[64,WIDTH], dimensions=[0]}
  %4: f32[64,WIDTH] = subtract %0, %3
  %5: f32[64,1] = dot_general %4, %v {contract=[[1],[0]], batch=[[],[]]}
  return %5
}"""


@pytest.mark.parametrize(
    ("width", "between", "arrays"),
    [(64, "reshape %1 {shape=[64]}", 2), (64, "optimization_barrier %1", 1), (32_768, "reshape %1 {shape=[64]}", 1)],
    ids=["one kernel", "two kernels", "too long for one"],
)
def test_a_kernel_that_normalizes_rows_writes_over_nothing_on_a_gpu(width: int, between: str, arrays: int) -> None:
    graph = parse_graph(SOFTMAX.replace("WIDTH", str(width)).replace("BETWEEN", between))
    assert simulated(graph, H100).peak // (64 * width * 4) == arrays


def chain(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.sum(x * x)


@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_the_timeline_has_the_peak_and_says_what_stands(policy: str | None) -> None:
    shape = STRUCT((128, 128), jnp.float32)
    made = rematc.lower(rematc.value_and_grad(rematc.from_jax(chain), policy=policy), [shape] * 6, shape)
    timeline = simulated_timeline(made.graph, H100, is_differentiated=True)
    assert timeline.peak == simulated(made.graph, H100).peak
    phases = {step.phase for step in timeline.steps}
    assert phases == {FORWARD, BACKWARD} | ({RECOMPUTED} if policy else set())
    assert any(buffer.role == (RECOMPUTED if policy == "nothing" else KEPT) for buffer in timeline.buffers)
    assert all(buffer.loc is not None for buffer in timeline.buffers)


def test_a_target_has_its_own_model() -> None:
    """A tanh that several kernels read is written on a CPU, and computed by each on a GPU."""
    shape = STRUCT((256, 256), jnp.float32)
    made = rematc.lower(rematc.value_and_grad(rematc.from_jax(chain)), [shape] * 6, shape)
    gpu = Target("cuda", device_kind="NVIDIA H100 80GB HBM3")
    assert expected_peak(made.graph, gpu) == expected_timeline(made.graph, gpu, is_differentiated=True).peak
    assert made.predicted_peak() == expected_peak(made.graph, made.target)


def language(params: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
    """A block of a model of language with its head, in bfloat16; tokens: [batch, length + 1]."""
    width = params["embedding"].shape[1]
    x = params["embedding"].astype(jnp.bfloat16)[tokens[:, :-1]]
    for name in ("a", "b"):
        scores = jnp.einsum("bqd,bkd->bqk", x, x) / width**0.5
        x = x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype), x)
        x = x + jax.nn.gelu(x @ params[name].astype(x.dtype)) @ params[name].T.astype(x.dtype)
    logits = (x @ params["embedding"].T.astype(x.dtype)).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


@pytest.mark.parametrize("target", COMPILERS)
@pytest.mark.parametrize("policy", [None, "nothing"])
def test_the_logits_of_a_head_are_in_float32_nowhere_on_devices_that_are_not_here(
    target: str, policy: str | None
) -> None:
    """Each kernel that reads them converts them. On a GPU that is predicted within a fifth.

    On a TPU arrays as small as the others are here are in vector memory, and not counted.
    """
    params = {"embedding": STRUCT((16_384, 256), jnp.float32)} | {k: STRUCT((256, 1024), jnp.float32) for k in "ab"}
    made = rematc.lower(
        rematc.value_and_grad(rematc.from_jax(language), policy=policy),
        params,
        STRUCT((8, 513), jnp.int32),
        target=compiler_for(target),
    )
    taken = made.compile().memory().temp_bytes
    assert taken < 1.7 * 8 * 512 * 16_384 * 2, "they and their gradient are two bytes a number, one over the other"
    if target == "h100":
        assert made.predicted_peak() == pytest.approx(taken, rel=0.2)
