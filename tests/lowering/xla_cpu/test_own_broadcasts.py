"""What XLA would write a repeated number for, once for several kernels, has its own, and takes less memory with it."""

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
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import make_program, run_passes
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.own_broadcasts import with_own_broadcasts
from rematc.lowering.xla_cpu.prediction import placement, predict

Shape: Any = jax.ShapeDtypeStruct
CPU = Target.of("cpu")
pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is what XLA:CPU writes")


def attention(weights: Any, x: Any) -> Any:
    """Layers that all divide their scores by one number."""
    for q, k, v in weights:
        a, b, c = (jnp.reshape(x @ w, (*x.shape[:2], 4, -1)) for w in (q, k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", a, b) / np.sqrt(a.shape[-1])
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), c).reshape(x.shape)
    return jnp.sum(x**2)


def fused_attention(weights: Any, x: Any) -> Any:
    """The same by JAX's own function, whose softmax XLA evaluates with the product before it in one call."""
    for q, k, v in weights:
        a, b, c = (jnp.reshape(x @ w, (*x.shape[:2], 4, -1)) for w in (q, k, v))
        x = x + jax.nn.dot_product_attention(a, b, c).reshape(x.shape)
    return jnp.sum(x**2)


def upsampled(weights: Any, x: Any) -> Any:
    """Picks rows, twice as many each time: the gradients are scattered into zeros."""
    for w in weights:
        x = jnp.tanh(jnp.take(x, jnp.arange(2 * x.shape[1]) // 2, axis=1) @ w[0])
    return jnp.sum(x**2)


def pooled(weights: Any, x: Any) -> Any:
    """Layers that are cut off at zero; of each an average over rows, two by two, counts."""
    found = jnp.float32(0)
    for w in weights:
        x = jnp.maximum(x @ w[0], 0)
        windows = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 1), (1, 2, 1), "VALID") / 2
        found += jnp.sum(windows**2)
    return found


def shapes(batch: int, rows: int, width: int, layers: int = 4) -> tuple[Any, Any]:
    return [[Shape((width, width), np.float32)] * 3] * layers, Shape((batch, rows, width), np.float32)


LOSSES = {
    "attention": (attention, shapes(4, 256, 64), 0.9),
    "upsampled": (upsampled, shapes(4, 256, 64), 0.9),
    "pooled": (pooled, shapes(4, 2048, 64), 0.95),
}


def without(loss: Any, args: Any) -> Graph:
    return run_passes(
        rematc.lower(rematc.value_and_grad(rematc.from_jax(loss), policy="nothing"), *args).traced.graph
    ).graph


def taken(graph: Graph) -> int:
    return int(compile_program(make_program(graph, ())).memory().temp_bytes)


@pytest.mark.parametrize(("loss", "args", "part"), LOSSES.values(), ids=LOSSES)
def test_less_is_taken_and_predicted(loss: Any, args: Any, part: float) -> None:
    graph = without(loss, args)
    own = with_own_broadcasts(graph, placement(graph, CPU)[0])
    assert predict(own).peak <= part * predict(graph).peak
    assert taken(own) <= part * taken(graph)


@pytest.mark.parametrize(("loss", "args", "part"), LOSSES.values(), ids=LOSSES)
def test_the_same_is_computed(loss: Any, args: Any, part: float) -> None:
    weights, x = args
    graph = without(loss, (weights[:2], x))
    own = with_own_broadcasts(graph, placement(graph, CPU)[0])
    verify(own)
    assert own is not graph
    random = np.random.default_rng(0)
    values = [random.normal(size=type.shape).astype(type.dtype.numpy) for type in graph.param_types]
    for found, expected in zip(evaluate(own, values), evaluate(graph, values), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_source_has_one_barrier_and_each_kernel_its_own_array() -> None:
    graph = without(attention, LOSSES["attention"][1])
    own = with_own_broadcasts(graph, placement(graph, CPU)[0])
    added = [eqn for eqn in own.equations if isinstance(eqn.op, OptimizationBarrier) and eqn not in graph.equations]
    numbers = [eqn for eqn in added if not eqn.operands[0].type.rank]
    assert numbers and all(len(set(eqn.operands)) == 1 for eqn in numbers)
    names = {name for eqn in numbers for name in eqn.results}
    repeats = [eqn.operands[0] for eqn in own.equations if isinstance(eqn.op, BroadcastInDim)]
    assert len(names) >= 4
    assert all(repeats.count(name) == 1 for name in names)


def test_rows_are_repeated_in_each_of_two_reductions() -> None:
    repeat = "broadcast_in_dim %r {shape=[128,128], dimensions=[0]}"
    graph = parse(
        "graph @f(%x: f32[128,128], %w: f32[128,128], %r: f32[128]) -> (f32[128], f32[128]) {\n"
        f"%0: f32[128,128] = {repeat}\n%1: f32[128,128] = multiply %x, %0\n%2: f32[128,128] = add %w, %0\n"
        "%3: f32[128] = reduce_sum %1 {dimensions=[1]}\n%4: f32[128] = reduce_max %2 {dimensions=[1]}\n"
        "return %3, %4\n}"
    )
    own = with_own_broadcasts(graph, placement(graph, CPU)[0])
    (barrier,) = [eqn for eqn in own.equations if isinstance(eqn.op, OptimizationBarrier)]
    assert barrier.operands == (graph.params[2],) * 2
    random = np.random.default_rng(0)
    values = [random.normal(size=type.shape).astype(np.float32) for type in graph.param_types]
    for found, expected in zip(evaluate(own, values), evaluate(graph, values), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert predict(own).peak < predict(graph).peak


def test_scaled_products_have_numbers_of_their_own_whatever_is_predicted() -> None:
    graph = without(fused_attention, shapes(4, 256, 64))
    own = with_own_broadcasts(graph, placement(graph, CPU)[0])
    producer = {value: eqn for eqn in own.equations for value in eqn.results}
    for index, eqn in enumerate(own.equations):
        given = [producer[value].op.name for value in eqn.operands if value in producer]
        if eqn.op.name in ("multiply", "divide") and "dot_general" in given and "broadcast_in_dim" in given:
            (number,) = [value for value in eqn.operands if producer[value].op.name == "broadcast_in_dim"]
            others = [*own.equations[:index], *own.equations[index + 1 :]]
            assert not any(number in other.operands for other in others)
    assert taken(own) < 0.9 * taken(graph)


def test_what_is_only_read_by_kernels_that_compute_it_stays() -> None:
    def scaled(w: Any, x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ w) * 0.5
        return x

    graph = rematc.lower(rematc.from_jax(scaled), np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)).graph
    assert with_own_broadcasts(graph, placement(graph, CPU)[0]) is graph


def test_two_heads_at_one_temperature_take_no_array_of_it() -> None:
    """Logits are matrices to XLA, and as many rows as these are what its library takes with their maximum: three."""

    def distilled(weights: Any, x: Any) -> Any:
        head, hidden, teacher = weights
        x = x + jnp.tanh(x @ hidden)
        taught = jax.nn.softmax(jax.lax.stop_gradient(x @ teacher.T) / 2.0)
        learned = jax.nn.log_softmax(x @ head.T / 2.0)
        return jnp.mean(jnp.sum(taught * (jnp.log(taught + 1e-9) - learned), -1))

    head = Shape((6000, 64), np.float32)
    args = [head, Shape((64, 64), np.float32), head], Shape((12, 384, 64), np.float32)
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(distilled), policy="nothing"), *args)
    memory = lowered.compile().memory().temp_bytes
    assert lowered.predicted_peak() == pytest.approx(memory, rel=0.02)
    assert memory < 3.2 * 12 * 384 * 6000 * 4


def test_what_is_computed_as_a_matrix_is_the_graphs_own_value() -> None:
    """A head's logits are: what scales them is found in the graph by the value that the kernel has in another shape."""

    def head(weights: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1] / 2.0))

    graph = without(head, ([Shape((64, 64), np.float32)] * 2, Shape((4, 32, 64), np.float32)))
    placed, _ = placement(graph, CPU)
    own = {value for eqn in graph.equations for value in eqn.results}
    kernels = [kernel for kernel in placed.program.instructions if kernel.name == "tanh"]
    assert kernels
    assert all(set(placed.values(kernel)) <= own for kernel in kernels)
    assert any(not set(kernel.eqn.results) <= own for kernel in kernels if kernel.eqn is not None)


@pytest.mark.parametrize(("count", "is_given"), [(2, False), (8, True)])
def test_small_arrays_have_their_own_where_together_they_are_large(count: int, is_given: bool) -> None:
    """Each is 64 KiB; the peak is 16 MiB, of which 128 KiB are left as they are."""
    rows = ", ".join(f"%r{index}: f32[128]" for index in range(count))
    lines = []
    for index in range(count):
        lines += [
            f"%a{index}: f32[128,128] = broadcast_in_dim %r{index} {{shape=[128,128], dimensions=[0]}}",
            f"%b{index}: f32[128,128] = multiply %x, %a{index}",
            f"%c{index}: f32[128,128] = add %w, %a{index}",
            f"%d{index}: f32[128] = reduce_sum %b{index} {{dimensions=[1]}}",
            f"%e{index}: f32[128] = reduce_max %c{index} {{dimensions=[1]}}",
            f"%f{index}: f32[128] = add %d{index}, %e{index}",
        ]
    product = "dot_general {}, %big {{contract=[[1],[0]], batch=[[],[]]}}"
    lines += [f"%g: f32[2048,2048] = {product.format('%big')}", f"%h: f32[2048,2048] = {product.format('%g')}"]
    results = ", ".join(f"%f{index}" for index in range(count))
    graph = parse(
        f"graph @f(%big: f32[2048,2048], %x: f32[128,128], %w: f32[128,128], {rows}) "
        f"-> (f32[2048,2048], {', '.join(['f32[128]'] * count)}) {{\n"
        + "\n".join(lines)
        + f"\nreturn %h, {results}\n}}"
    )
    changed = with_own_broadcasts(graph, placement(graph, CPU)[0])
    verify(changed)
    assert (changed is not graph) is is_given


@pytest.mark.parametrize(("function", "is_given"), [("erfc", True), ("tanh", False)])
def test_what_xla_expands_shares_no_number_with_a_reduction(function: str, is_given: bool) -> None:
    """XLA's arithmetic for erfc compares with 2, too; of what both read an array was written."""
    graph = parse(
        "graph @f(%x: f32[128,128], %w: f32[128,128]) -> (f32[128,128], f32[128]) {\n"
        f"%0: f32[128,128] = {function} %x\n%1: f32[] = constant {{type=f32[], data=2.0}}\n"
        "%2: f32[128,128] = broadcast_in_dim %1 {shape=[128,128], dimensions=[]}\n"
        "%3: f32[128,128] = multiply %w, %2\n%4: f32[128] = reduce_sum %3 {dimensions=[1]}\nreturn %0, %4\n}"
    )
    own = with_own_broadcasts(graph, placement(graph, CPU)[0])
    verify(own)
    assert (own is not graph) is is_given
    unit = 4 * 128 * 128
    assert taken(own) < unit / 2
    assert (taken(graph) >= unit) is is_given


def test_what_a_segment_reads_is_repeated_as_what_it_is() -> None:
    """The largest logit of each row has a second name in the segments of a policy; XLA writes one array for both."""

    def loss(weights: Any, x: Any, labels: Any) -> Any:
        logits = x @ weights
        most = logits.max(-1, keepdims=True)
        logs = np.log(np.exp(logits - most).sum(-1, keepdims=True)) + most
        return -np.mean(np.where(np.arange(2048) == labels[:, None], logits - logs, 0.0))

    given = Shape((32, 2048), np.float32), Shape((512, 32), np.float32), Shape((512,), np.int32)
    whole = rematc.compile(rematc.value_and_grad(loss), *given).memory().temp_bytes
    lowered = rematc.lower(rematc.value_and_grad(loss, policy="auto"), *given)
    found = lowered.compile().memory().temp_bytes
    assert found == pytest.approx(lowered.predicted_peak(), rel=0.01)
    assert found <= whole
