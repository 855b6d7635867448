"""The predicted peak: exact on small graphs, near XLA's figure on models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.text import parse
from rematc.passes.liveness import predicted_peak

PRODUCT = "dot_general %{}, %w {{contract=[[1],[0]], batch=[[],[]]}}"


def peak(*lines: str) -> int:
    """Of equations over %x and %w, 256 bytes each, in units of 256 bytes."""
    body = "\n".join(f"%{index}: f32[8,8] = {line}" for index, line in enumerate(lines))
    text = f"graph @f(%x: f32[8,8], %w: f32[8,8]) -> (f32[8,8]) {{ {body} return %{len(lines) - 1} }}"
    return predicted_peak(parse(text)) // 256


def test_parameters_and_results_do_not_count() -> None:
    assert peak(PRODUCT.format("x")) == 0


def test_a_chain_of_products_has_one_value_at_a_time_beside_the_next() -> None:
    assert peak(PRODUCT.format("x"), PRODUCT.format("0"), PRODUCT.format("1")) == 2


def test_what_is_fused_takes_nothing_and_is_read_where_its_reader_is() -> None:
    """Both products wait for the sum; the negations are parts of it."""
    assert peak(PRODUCT.format("x"), "negate %0", PRODUCT.format("x"), "negate %2", "add %1, %3") == 2


def test_an_expensive_function_with_two_readers_is_written() -> None:
    once = peak(PRODUCT.format("x"), "tanh %0", PRODUCT.format("1"), PRODUCT.format("2"))
    twice = peak("tanh %x", "multiply %0, %0", PRODUCT.format("1"), "add %2, %0")
    assert (once, twice) == (2, 3)


def test_a_barrier_is_no_copy() -> None:
    plain = peak(PRODUCT.format("x"), PRODUCT.format("0"))
    assert peak(PRODUCT.format("x"), "optimization_barrier %0", PRODUCT.format("1")) == plain


def test_a_convolution_in_another_order_copies_what_it_reads() -> None:
    """XLA's kernels take images as [batch, spatial, features]; the gradient of a kernel has the batch as features."""

    def convolution(order: str) -> int:
        fields = "window_strides=[1], padding=[[0,0]], lhs_dilation=[1], rhs_dilation=[1], window_reversal=[false]"
        dimensions = f"dimensions={{input={order}, kernel=[2,1,0], output=[0,2,1]}}"
        text = (
            "graph @f(%x: f32[4,4,4], %k: f32[1,4,4]) -> (f32[4,4,4]) {"
            f"%0: f32[4,4,4] = convolution %x, %k {{{fields}, {dimensions}}} return %0 }}"
        )
        return predicted_peak(parse(text))

    assert convolution("[0,2,1]") == 0
    assert convolution("[2,0,1]") == 256


def chain(weights: Any, x: Any) -> Any:
    for first, second in weights:
        x = x + np.tanh(np.tanh(x @ first) @ second)
    return np.mean(x * x)


@pytest.mark.parametrize("policy", [None, "nothing", "dots", "auto"])
def test_the_prediction_is_near_what_xla_takes(policy: str | None) -> None:
    weights = [(np.ones((128, 128), np.float32),) * 2 for _ in range(12)]
    lowered = rematc.lower(rematc.value_and_grad(chain, policy=policy), weights, np.ones((1024, 128), np.float32))
    measured = lowered.compile().memory().temp_bytes
    assert lowered.predicted_peak() == pytest.approx(measured, rel=0.15)
