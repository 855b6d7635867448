"""What products of matrices on a TPU are not to compute of their operands is behind a barrier."""

from __future__ import annotations

import dataclasses
import re
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
from rematc.ir.traversal import all_equations
from rematc.passes.kernels import TPU, TPU_V6E, Fusion
from rematc.passes.product_operands import ProductOperands
from tests.support.ahead import compiler_for
from tests.support.arrays import same_bits

_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped

#: %z times what a product gives, for two products.
GRADIENT = """
graph @main(%d: f32[4,8], %v: f32[8,16], %z: f32[4,16], %k: f32[16,8]) -> (f32[4,8], f32[16,8]) {
  %0: f32[4,16] = dot_general %d, %v {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[4,16] = multiply %0, %z
  %2: f32[4,8] = dot_general %1, %k {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[16,8] = dot_general %1, %d {contract=[[0],[0]], batch=[[],[]]}
  return %2, %3
}
"""

#: That of scores: less its sum along each row.
SCORES = GRADIENT.replace(
    "%2: f32",
    "%4: f32[4] = reduce_sum %1 {dimensions=[1]}\n"
    "  %5: f32[4,16] = broadcast_in_dim %4 {shape=[4,16], dimensions=[0]}\n"
    "  %6: f32[4,16] = subtract %0, %5\n"
    "  %7: f32[4,16] = multiply %6, %z\n  %2: f32",
).replace("dot_general %1", "dot_general %7")


def barriers(text: str, fusion: Fusion = TPU) -> list[str]:
    """The ops whose results are put behind barriers; the program gives what it gave."""
    graph = parse(text)
    found = ProductOperands(fusion).run(graph)
    random = np.random.default_rng(0)
    arrays = [random.normal(size=type.shape).astype(np.float32) for type in graph.param_types]
    assert same_bits(evaluate(found, arrays), evaluate(graph, arrays))
    return behind(found)


def behind(graph: Graph) -> list[str]:
    """The ops whose results stand alone behind barriers, in loops as well."""
    equations = list(all_equations(graph))
    definitions = {value: eqn for eqn in equations for value in eqn.results}
    waiting = [eqn.operands for eqn in equations if isinstance(eqn.op, OptimizationBarrier)]
    return [definitions[values[0]].op.name for values in waiting if len(values) == 1 and values[0] in definitions]


def test_a_factor_of_two_products_that_a_third_is_for_is_written() -> None:
    assert barriers(GRADIENT) == ["multiply"]


def test_it_is_written_with_the_sums_of_its_rows() -> None:
    graph = ProductOperands(TPU).run(parse(SCORES))
    assert behind(graph) == ["multiply"]
    names = [eqn.op.name for eqn in graph.equations]
    assert names.index("subtract") < names.index("optimization_barrier"), "the last multiplication, not the first"


def test_the_factor_is_found_behind_a_transposition_and_a_reshape() -> None:
    text = GRADIENT.replace(
        "  %2: f32[4,8] = dot_general %1, %k {contract=[[1],[0]]",
        "  %8: f32[16,4] = transpose %1 {permutation=[1,0]}\n"
        "  %9: f32[16,4] = reshape %8 {shape=[16,4]}\n"
        "  %2: f32[4,8] = dot_general %9, %k {contract=[[0],[0]]",
    )
    assert barriers(text) == ["multiply"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            GRADIENT.replace("%3: f32[16,8] = dot_general %1", "%3: f32[16,8] = dot_general %z"), id="for one"
        ),
        pytest.param(GRADIENT.replace("multiply %0, %z", "multiply %z, %z"), id="of no product"),
        pytest.param(
            GRADIENT.replace("f32[16,8]) {", "f32[16,8], f32[4,16]) {").replace("%3\n", "%3, %0\n"),
            id="the product is a result",
        ),
        pytest.param(
            GRADIENT.replace("f32[16,8]) {", "f32[16,8], f32[4,16]) {").replace("%3\n", "%3, %1\n"),
            id="it is a result itself",
        ),
        pytest.param(
            GRADIENT.replace("f32[16,8]) {", "f32[16,8], f32[4,16]) {")
            .replace("%3\n", "%3, %9\n")
            .replace("return", "%9: f32[4,16] = sine %1\n  return"),
            id="another kernel reads it",
        ),
        pytest.param(
            GRADIENT.replace("f32[16,8]) {", "f32[16,8], f32[4,16]) {")
            .replace("%3\n", "%3, %9\n")
            .replace("return", "%9: f32[4,16] = sine %0\n  return"),
            id="another kernel reads the product",
        ),
        pytest.param(
            GRADIENT.replace("f32[16,8]) {", "f32[16,8], f32[4,16]) {")
            .replace("%3\n", "%3, %9\n")
            .replace("multiply %0, %z", "multiply %8, %z")
            .replace("  %1", "  %8: f32[4,16] = negate %0\n  %1")
            .replace("return", "%9: f32[4,16] = sine %8\n  return"),
            id="another kernel reads what follows from the product, as a mask does before a relu",
        ),
    ],
)
def test_what_would_be_in_memory_beside_what_it_follows_from_is_not_written(text: str) -> None:
    assert barriers(text) == []


def test_what_follows_from_a_product_and_nobody_reads_needs_no_memory() -> None:
    """One of two words of random bits, which a product's result counts."""
    text = GRADIENT.replace("graph @main(", "graph @main(%key: u32[2], ").replace(
        "%1: f32[4,16] = multiply %0, %z",
        "%7: u32[4,16] = convert %0 {dtype=u32}\n  %8: u32[4,16], %9: u32[4,16] = threefry2x32 %key, %7, %7\n"
        "  %1: f32[4,16] = convert %8 {dtype=f32}",
    )
    assert behind(ProductOperands(TPU).run(parse(text))) == ["convert"]


def test_where_all_read_it_in_another_shape_it_is_written_in_its_own() -> None:
    text = GRADIENT.replace("  %2: f32", "  %8: f32[4,16] = reshape %1 {shape=[4,16]}\n  %2: f32")
    assert barriers(text.replace("dot_general %1", "dot_general %8")) == ["multiply"]


def test_a_product_of_another_size_is_not_replaced() -> None:
    text = GRADIENT.replace("%v: f32[8,16]", "%v: f32[8,1]").replace("%0: f32[4,16] = dot", "%9: f32[4,1] = dot")
    repeated = "%0: f32[4,16] = broadcast_in_dim %9 {shape=[4,16], dimensions=[0,1]}\n  %1: f32"
    assert barriers(text.replace("%1: f32", repeated)) == []


def test_it_is_not_written_where_its_rows_are_too_long_for_a_kernel() -> None:
    def rows(length: int, fusion: Fusion) -> list[str]:
        return behind(ProductOperands(fusion).run(parse(SCORES.replace("16", str(length)))))

    assert rows(1024, TPU) == ["multiply"]
    assert rows(1025, TPU) == ["reduce_sum"], "its sum is, since that is repeated along the row"
    assert rows(1025, TPU_V6E) == ["multiply"]
    assert rows(2049, TPU_V6E) == ["reduce_sum"]


#: Scores less their rows' greatest, in front of a product.
SOFTMAX = """
graph @main(%q: f32[4,8], %k: f32[8,16], %v: f32[16,8]) -> (f32[4,8]) {
  %0: f32[4,16] = dot_general %q, %k {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[4] = reduce_max %0 {dimensions=[1]}
  %2: f32[4] = stop_gradient %1
  %3: f32[4,1] = reshape %2 {shape=[4,1]}
  %4: f32[4,16] = broadcast_in_dim %3 {shape=[4,16], dimensions=[0,1]}
  %5: f32[4,16] = subtract %0, %4
  %6: f32[4,16] = exponential %5
  %7: f32[4,8] = dot_general %6, %v {contract=[[1],[0]], batch=[[],[]]}
  return %7
}
"""
#: A device whose kernels hold rows of so few elements.
SHORT = dataclasses.replace(TPU, rows=15)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SOFTMAX, id="a maximum"),
        pytest.param(SOFTMAX.replace("reduce_max", "reduce_sum"), id="a sum"),
        pytest.param(SOFTMAX.replace("stop_gradient %1", "maximum %1, %1"), id="a maximum of another, as JAX's is"),
    ],
)
def test_what_is_repeated_along_the_row_that_it_is_of_is_written_where_rows_are_long(text: str) -> None:
    assert barriers(text, SHORT) == [parse(text).equations[1].op.name]


def test_a_long_row_of_maxima_is_followed_in_time() -> None:
    """What is compared with itself, over and over: two paths to each, and three thousand of them."""
    steps = [f"  %m{n}: f32[4] = maximum %{f'm{n - 1}' if n else 1}, %{f'm{n - 1}' if n else 1}\n" for n in range(3000)]
    text = SOFTMAX.replace(
        "  %2: f32[4] = stop_gradient %1\n", f"{''.join(steps)}  %2: f32[4] = stop_gradient %m2999\n"
    )
    assert behind(ProductOperands(SHORT).run(parse(text))) == ["reduce_max"]


#: Scores of factors of 16 bits, which the softmax widens.
NARROW = (
    SOFTMAX.replace("%q: f32", "%q: bf16")
    .replace("%k: f32", "%k: bf16")
    .replace("%0: f32[4,16] = dot_general", "%8: bf16[4,16] = dot_general")
    .replace("  %1: f32[4] = reduce_max", "  %0: f32[4,16] = convert %8 {dtype=f32}\n  %1: f32[4] = reduce_max")
)


def test_of_what_narrow_numbers_give_the_maxima_of_short_rows_are_written_too() -> None:
    def of(text: str) -> list[str]:
        return behind(ProductOperands(TPU).run(parse(text)))

    assert of(NARROW) == ["reduce_max"]
    assert of(NARROW.replace("reduce_max", "reduce_sum")) == []
    assert of(SOFTMAX) == []


def test_in_loops_those_maxima_are_left() -> None:
    shape = _struct((3, 2, 16, 2, 8), jnp.bfloat16)

    def mapped(q: Any) -> Any:
        return jax.lax.map(lambda x: attention(x, x, x), q).sum()

    graph = rematc.lower(rematc.from_jax(mapped), shape).graph
    assert "reduce_max" not in behind(ProductOperands(TPU).run(graph))
    assert "reduce_max" in behind(ProductOperands(SHORT).run(graph))


def test_beside_such_maxima_gradients_of_scores_are_computed_in_products() -> None:
    shape = _struct((2, 16, 2, 8), jnp.bfloat16)
    step = rematc.value_and_grad(rematc.from_jax(attention), (0, 1, 2))
    graph = ProductOperands(TPU).run(rematc.lower(step, shape, shape, shape).graph)
    waiting = [eqn.operands[0].type for eqn in graph.equations if isinstance(eqn.op, OptimizationBarrier)]
    assert behind(graph)[0] == "reduce_max"
    assert not [type for type in waiting if type.shape[-2:] == (16, 16)], "none of them is as large as the scores"


#: The row's value waits for the scores already.
WAITING = SOFTMAX.replace(
    "%3: f32[4,1] = reshape %2 {shape=[4,1]}", "%8: f32[4], %9: f32[4,16] = optimization_barrier %2, %0"
).replace("%3 {shape=[4,16], dimensions=[0,1]}", "%8 {shape=[4,16], dimensions=[0]}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SOFTMAX.replace("stop_gradient", "negate"), id="another value of each row"),
        pytest.param(WAITING, id="one that waits already"),
        pytest.param(
            SOFTMAX.replace("%0: f32[4,16] = dot", "%8: f32[4,8] = dot")
            .replace("%k: f32[8,16]", "%k: f32[8,8], %0: f32[4,16]")
            .replace("reduce_max %0", "reduce_max %8"),
            id="of rows of another length",
        ),
    ],
)
def test_other_values_of_rows_are_left(text: str) -> None:
    assert barriers(text, dataclasses.replace(TPU, rows=7)) == []


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / 8
    scores = jnp.where(jnp.tri(scores.shape[-1], dtype=bool), scores, -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return jnp.sum(jnp.einsum("bhqk,bkhd->bqhd", weights, v).astype(jnp.float32) ** 2)


def test_it_is_done_in_the_steps_of_loops() -> None:
    def scanned(q: Any, ks: Any, v: Any) -> Any:
        return jax.lax.scan(lambda x, k: (x + attention(x, k, v) * x, None), q, ks)[0].sum()

    shapes = [_struct((2, 16, 2, 8), np.float32), _struct((3, 2, 16, 2, 8), np.float32)]
    step = rematc.value_and_grad(rematc.from_jax(scanned), (0, 1), policy="nothing")
    graph = rematc.lower(step, shapes[0], shapes[1], shapes[0]).graph
    assert behind(ProductOperands(TPU).run(graph)) == ["divide"], "by which scores are scaled"
    assert "reduce_max" in behind(ProductOperands(SHORT).run(graph))


def of_xla(length: int, dtype: Any) -> tuple[rematc.Compiled, Any]:
    """Attention, recomputed, as we have XLA compile it for a v5e, and as JAX by hand does."""
    on = jax.sharding.SingleDeviceSharding(rematc.targets.devices(compiler_for("v5e"))[0])
    shape = _struct((2**24 // length**2, length, 2, 64), dtype, sharding=on)
    step = rematc.value_and_grad(rematc.from_jax(attention), (0, 1, 2), policy="nothing")
    theirs = jax.value_and_grad(jax.checkpoint(attention), (0, 1, 2))
    return rematc.lower(step, *[shape] * 3).compile(), jax.jit(theirs).lower(*[shape] * 3).compile()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_xla_for_tpus_takes_no_more_than_for_jax_where_rows_are_long(dtype: Any) -> None:
    """Without these barriers it takes 3.6 and 3.2 times as much."""
    ours, theirs = of_xla(2048, dtype)
    assert ours.memory().temp_bytes <= 1.02 * theirs.memory_analysis().temp_size_in_bytes


def test_xla_for_tpus_takes_as_long_as_for_jax_where_rows_are_short() -> None:
    """By its own estimates: 1.02 times as long, and 1.21 without these barriers."""

    def cycles(text: str) -> int:
        return sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text)))

    ours, theirs = of_xla(512, jnp.float32)
    assert cycles(ours.hlo_optimized()) <= 1.05 * cycles(theirs.as_text())
