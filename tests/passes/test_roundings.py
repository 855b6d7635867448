"""Saved numbers of 16 bits are rounded once, for both passes; on the CPU behind a barrier, which takes no memory."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import rematc
from benchmarks.architectures import MODELS, REMATC, unwrapped
from rematc.ir.builder import Builder
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.types import BF16, F16, F32, DType, TensorType
from rematc.lowering.targeting import current_target
from rematc.passes.legalize.legalization import Legalize

ON_CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is XLA:CPU's memory")
BEFORE_12 = not current_target().keeps_bfloat16


@pytest.mark.parametrize(
    ("dtype", "bits", "platform", "expected"),
    [
        (BF16, (8, 7), "cpu", "optimization_barrier"),
        (BF16, (8, 7), "cuda", "reduce_precision"),
        (BF16, (8, 7), "tpu", "reduce_precision"),
        (BF16, (8, 7), None, "reduce_precision"),
        (BF16, (5, 7), "cpu", "reduce_precision"),
        (F16, (5, 10), "cpu", "reduce_precision"),
        (F32, (8, 7), "cpu", "reduce_precision"),
    ],
)
def test_only_a_rounding_that_changes_nothing_becomes_a_barrier(
    dtype: DType, bits: tuple[int, int], platform: str | None, expected: str
) -> None:
    b = Builder("f")
    graph = b.build(*b.emit(ReducePrecision(*bits), b.parameter(TensorType(dtype, (4,)))))
    assert [eqn.op.name for eqn in Legalize(platform).run(graph).equations] == [expected]


@ON_CPU
@pytest.mark.slow
@pytest.mark.skipif(BEFORE_12, reason="XLA:CPU multiplies bfloat16 in float32 before jaxlib 0.12")
def test_logits_that_are_saved_are_there_once() -> None:
    """Behind layers in a loop: they were there three times, as a product and rounded, both in float32, and saved."""
    (model,) = [model for model in MODELS.values() if model.name == "gpt2-scan-4"]
    loss, given = model.build(REMATC, unwrapped, unwrapped), model.arguments()
    found = {policy: rematc.lower(rematc.value_and_grad(loss, policy=policy), *given) for policy in (None, "dots")}
    taken = {policy: lowered.compile().memory().temp_bytes for policy, lowered in found.items()}
    assert taken["dots"] < 0.85 * taken[None]
    assert found["dots"].predicted_peak() == pytest.approx(taken["dots"], rel=0.05)


@ON_CPU
def test_the_forward_pass_reads_the_number_that_is_saved() -> None:
    """Not the one that XLA has before it is rounded: the sums of their sines differ in the second digit."""
    random = np.random.default_rng(0)
    x, w = (random.normal(size=4096).astype(ml_dtypes.bfloat16) for _ in range(2))

    def loss(w: Any, x: Any) -> Any:
        product = rematc.checkpoint_name(x * w, "product")
        return np.sum(np.sin(product.astype(np.float32) * 100))

    exact = x.astype(np.float32) * w.astype(np.float32)
    rounded = exact.astype(ml_dtypes.bfloat16).astype(np.float32)
    value: Any = rematc.value_and_grad(loss, policy="names=product")(w, x)[0]
    expected, other = (float(np.sum(np.sin(z * 100))) for z in (rounded, exact))
    assert abs(expected - other) > 1
    assert value == pytest.approx(expected, abs=0.05)
