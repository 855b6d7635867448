"""Legalization: what compound ops expand to means what they mean, in plain ops."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.facts import Weight
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.arithmetic import IntegerPower, Power
from rematc.ir.ops.window import SelectAndScatter
from rematc.ir.types import F32, TensorType
from rematc.lowering.module import stablehlo_module
from rematc.lowering.target import Target
from rematc.lowering.writer import RULES as WRITTEN
from rematc.passes.legalize.legalization import Legalize, expansion
from rematc.passes.legalize.rules import RULES
from rematc.passes.light_work import IN_A_ROW
from tests.support.samples import Sample, assert_close, families, graph_of, rows, tolerance_of

ON_CPU = Legalize("cpu")


def sample_of(key: str) -> Sample:
    family, index = rows()[key]
    return families()[family][index]


def expanding() -> list[str]:
    return [key for key in rows() if type(sample_of(key).op) in RULES]


@functools.lru_cache
def legal(key: str) -> Graph:
    sample = sample_of(key)
    return ON_CPU.run(graph_of(sample.op, sample.types))


def equations(graph: Graph) -> list[Equation]:
    inner = [eqn for one in graph.equations for region in one.op.regions() for eqn in equations(region)]
    return [*graph.equations, *inner]


@pytest.mark.parametrize("key", expanding())
def test_an_expansion_means_what_the_op_means(key: str) -> None:
    """In the interpreter: before XLA, and wherever there is no XLA."""
    sample = sample_of(key)
    arrays = sample.arrays()
    for found, wanted in zip(evaluate(legal(key), arrays), sample.op.reference(arrays), strict=True):
        assert_close(found, wanted, tolerance_of(sample, wanted), sample.signed_zeros)


@pytest.mark.parametrize("key", expanding())
def test_what_is_left_the_writer_knows(key: str) -> None:
    graph = legal(key)
    assert [eqn.op.name for eqn in equations(graph) if expansion_of(eqn) is not None] == []
    assert [eqn.op.name for eqn in equations(graph) if type(eqn.op) not in WRITTEN] == []
    assert ON_CPU.run(graph) is graph


def expansion_of(eqn: Equation) -> Graph | None:
    return expansion(eqn.op, eqn.operand_types, "cpu") if type(eqn.op) in RULES else None


def is_rare(op: Op) -> bool:
    """Facts stand in the class: powers are loops of integers alone, and quotients for negative exponents alone."""
    return isinstance(op, Power) or (isinstance(op, IntegerPower) and op.exponent < 0)


@pytest.mark.parametrize("key", expanding())
def test_the_facts_of_an_op_are_those_of_its_expansion(key: str) -> None:
    """Whether XLA fuses it, and whether it is less work than to write its result, follow from what it becomes."""
    sample = sample_of(key)
    found = expansion(sample.op, sample.types, "cpu")
    if found is None or any(0 in type.shape for type in sample.types) or is_rare(sample.op):
        return
    parts = [eqn for eqn in equations(found) if eqn.operands]
    assert not sample.op.is_fusible or [eqn.op.name for eqn in parts if not eqn.op.is_fusible] == []
    assert [eqn.op.name for eqn in parts if eqn.op.weight > sample.op.weight] == []
    assert sample.op.weight > Weight.LIGHT or len(parts) <= IN_A_ROW


def pooling_gradient(window: int = 3) -> Graph:
    op = SelectAndScatter("GE", (1, window, window, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    x = TensorType(F32, (2, 16, 16, 4))
    return graph_of(op, (x, x.with_shape((2, (18 - window) // 2 + 1, (18 - window) // 2 + 1, 4))))


def test_what_some_platform_has_a_kernel_for_stays_until_the_platform_is_known() -> None:
    graph = pooling_gradient()
    assert Legalize().run(graph) is graph and Legalize("tpu").run(graph) is graph
    names = {eqn.op.name for eqn in equations(ON_CPU.run(graph))}
    assert "select_and_scatter" not in names and "pad" in names
    assert ON_CPU.run(pooling_gradient(window=9)).equations[0].op.name == "select_and_scatter"  # 81 positions


@pytest.mark.parametrize("policy", [None, "nothing"])
def test_the_gradient_of_pooling_is_one_array_whoever_reads_it(policy: str | None) -> None:
    """Two convolutions read it: XLA:CPU would add the nine parts for each, and write all nine."""
    kernels = [np.full((3, 3, 3, 16), 0.1, np.float32), np.full((3, 3, 16, 16), 0.1, np.float32)]
    pictures = np.linspace(-1, 1, 16 * 32 * 32 * 3, dtype=np.float32).reshape(16, 32, 32, 3)

    def loss(kernels: Any, x: Any) -> Any:
        x = jax.lax.conv_general_dilated(x, kernels[0], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jnp.tanh(x)
        x = jax.lax.conv_general_dilated(x, kernels[1], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.sum(jnp.tanh(x) ** 2)

    gradient: Any = rematc.value_and_grad(rematc.from_jax(loss), policy=policy)
    compiled = rematc.compile(gradient, kernels, pictures)
    size = 4 * 16 * 33 * 33 * 16
    assert compiled.memory().temp_bytes < 5 * size


@pytest.mark.parametrize(("platform", "has_kernel"), [("tpu", True), ("cpu", False), ("cuda", False)])
def test_the_gradient_of_pooling_is_written_for_its_platform(platform: str, has_kernel: bool) -> None:
    written = stablehlo_module(pooling_gradient(), Target.of(platform))
    assert ("stablehlo.select_and_scatter" in written.text) == has_kernel
    assert written.tuned_for == platform
