"""Staging keeps the meaning, and the gradients, of every program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.policy import Policy
from rematc.ir.verifier import verify
from rematc.passes.linearize import under_policy, vjp
from rematc.passes.policies import parse_policy
from rematc.passes.staging import loops, profile, segments
from rematc.passes.staging.stage import staged_by_all, ways_to_stage
from tests.support.random_graphs import same_bits
from tests.support.smooth_graphs import arrays_for, is_float, policies, run, smooth_graphs


@pytest.fixture
def eager_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever a byte is saved, so that small programs are cut as well."""
    monkeypatch.setattr(segments, "LEAST_GAIN", 1)
    monkeypatch.setattr(loops, "LEAST_GAIN", 1)
    monkeypatch.setattr(segments, "_GAIN", 0.0)
    monkeypatch.setattr(profile, "_NEAR", 1)


def gradients(graph: Graph, arrays: Any) -> list[Any]:
    """The forward results and all cotangents for cotangents of ones."""
    pulled = vjp(graph, is_float(graph))
    forward = list(run(pulled.forward, arrays))
    count = len(forward) - len(pulled.residuals)
    cts = [
        np.ones(value.type.shape, value.type.dtype.numpy) for value in pulled.backward.params[len(pulled.residuals) :]
    ]
    return [*forward[:count], *run(pulled.backward, [*forward[count:], *cts])]


@settings(max_examples=60)
@given(smooth_graphs(), policies())
@pytest.mark.usefixtures("eager_cuts")
def test_values_stay_bit_for_bit(graph: Graph, policy: Policy) -> None:
    after = staged_by_all(graph, policy)
    verify(after)
    arrays = arrays_for(graph)
    assert same_bits(run(after, arrays), run(graph, arrays))


@settings(max_examples=40)
@given(smooth_graphs(), policies())
@pytest.mark.usefixtures("eager_cuts")
def test_gradients_are_those_of_one_region(graph: Graph, policy: Policy) -> None:
    """Equal but for the order in which cotangents are added up."""
    arrays = arrays_for(graph)
    with np.errstate(all="ignore"):
        ways = staged_by_all(graph, policy), under_policy(graph, policy)
        found, expected = (gradients(one, arrays) for one in ways)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def recurrence(is_reversed: bool, length: int) -> Any:
    def loss(w: Any, h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = np.tanh(h @ w + x)
            return h, h[0] * 2

        h, ys = rematc.scan(step, h, xs, length=length, reverse=is_reversed)
        return np.sum(h) + np.sum(ys**2)  # type: ignore[operator]  # an array

    return loss


@pytest.mark.parametrize("policy", ["nothing", "dots", "auto", "names=a"])
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("length", [2, 36, 37])
@pytest.mark.usefixtures("eager_cuts")
def test_loops_of_loops_give_the_gradients_of_loops(policy: str, is_reversed: bool, length: int) -> None:
    random = np.random.default_rng(length)
    args = random.normal(size=(8, 8)) / 4, random.normal(size=(16, 8)), random.normal(size=(length, 16, 8))
    loss = recurrence(is_reversed, length)
    found: Any = rematc.value_and_grad(loss, (0, 1, 2), policy=policy)(*args)
    expected: Any = rematc.value_and_grad(loss, (0, 1, 2))(*args)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    for x, y in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_a_long_loop_becomes_a_loop_of_loops_where_the_policy_may_repeat_steps() -> None:
    loss = recurrence(False, 1000)
    args = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32), np.ones((1000, 64, 64), np.float32)
    graph = rematc.trace(loss, *args)

    def lengths(policy: str) -> list[int]:
        equations = staged_by_all(graph, parse_policy(policy)).equations
        return [eqn.op.length for eqn in equations if isinstance(eqn.op, Scan)]

    (outer,) = lengths("nothing")
    assert 20 <= outer <= 100
    assert 1000 % outer == 0, "nothing is left over"
    assert lengths("auto") == [1000], "no step is taken twice"


def test_states_of_a_loop_that_are_light_work_are_no_more_under_auto_than_under_dots() -> None:
    """Figures of XLA for a diagonal recurrence, which only reads its states with a reduction."""

    def loss(layers: Any, x: Any) -> Any:
        for decay, read, out in layers:

            def step(state: Any, row: Any, decay: Any = decay, read: Any = read) -> Any:
                state = decay * state + row[:, :, None]
                return state, np.sum(state * read, axis=-1)

            _, mixed = rematc.scan(step, np.zeros((8, 32, 16), np.float32), x)
            x = x + np.tanh(mixed @ out)
        return np.mean(x * x)

    layer = np.full((32, 16), 0.5, np.float32), np.ones((32, 16), np.float32), np.ones((32, 32), np.float32)
    args = [layer] * 3, np.ones((128, 8, 32), np.float32)
    taken = {}
    for policy in (None, "dots", "auto"):
        compiled = rematc.compile(rematc.value_and_grad(loss, policy=policy), *args)
        taken[policy] = compiled.memory().temp_bytes
    assert taken["auto"] <= 1.02 * taken["dots"] < taken[None] / 2


@pytest.mark.parametrize("policy", ["nothing", "auto"])
def test_temporary_memory_of_a_roll_out_is_that_of_its_root(policy: str) -> None:
    """Figures of XLA: two thousand carries of 16 KiB, against some two times the root of them.

    All that a step does is light work, which `auto`, too, does again.
    """

    def loss(u: Any) -> Any:
        u, _ = rematc.scan(lambda u, _: (u + 0.1 * np.sin(u), None), u, length=2000)
        return np.mean(u)

    u = np.ones((64, 64), np.float32)
    plain = rematc.compile(rematc.value_and_grad(loss), u).memory().temp_bytes
    nested = rematc.compile(rematc.value_and_grad(loss, policy=policy), u).memory().temp_bytes
    assert plain >= 2000 * u.nbytes
    assert nested < 200 * u.nbytes


def language(layers: Any, head: Any, x: Any, right: Any) -> Any:
    """A network whose last product is much larger than what its layers give."""
    for first, second in layers:
        x = x + np.tanh(x @ first) @ second
    logits = x @ head
    shifted = logits - np.max(logits, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(shifted), axis=1)) - np.sum(shifted * right, axis=1))


LANGUAGE = (
    [(np.ones((64, 256), np.float32), np.ones((256, 64), np.float32))] * 6,
    np.ones((64, 4096), np.float32),
    np.ones((256, 64), np.float32),
    np.ones((256, 4096), np.float32),
)


def test_a_large_head_is_neither_cut_nor_computed_again() -> None:
    graph = rematc.trace(language, *LANGUAGE)
    wrt = [value.type.shape != (256, 4096) for value in graph.params]
    first = next(ways_to_stage(graph, parse_policy("nothing"), wrt, [True]))
    outside = [eqn for eqn in first.equations if eqn.op.name == "dot_general"]
    assert [str(eqn.results[0].type) for eqn in outside][-1] == "f32[256,4096]"
    inside = [eqn.op for eqn in first.equations if isinstance(eqn.op, Checkpoint)]
    assert inside, "the layers are cut"
    assert all(value.type.size <= 256 * 256 for op in inside for value in op.body.results), "no logits cross"


def labelled(layers: Any, head: Any, x: Any, labels: Any) -> Any:
    """Layers in a scan, and the cross-entropy of a large head."""

    def layer(x: Any, weights: Any) -> Any:
        return x + np.tanh(x @ weights[0]) @ weights[1], None

    x, _ = rematc.scan(layer, x, layers)
    logits = x @ head
    shifted = logits - rematc.stop_gradient(np.max(logits, axis=-1, keepdims=True))
    likelihood = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return -np.mean(np.take_along_axis(likelihood, labels[..., None], axis=-1))


def test_between_a_head_and_its_loss_is_a_cut_where_that_takes_less() -> None:
    """The logits and their cotangent, which is written once for both products that read it, and nothing beside them."""
    layers = tuple(np.stack(each) for each in zip(*LANGUAGE[0], strict=True))
    args = (layers, LANGUAGE[1], np.ones((4, 64, 64), np.float32), np.zeros((4, 64), np.int32))
    step = rematc.compile(rematc.value_and_grad(labelled, (0, 1), policy="nothing"), *args)
    logits = 256 * 4096 * 4
    assert step.memory().temp_bytes < 2.5 * logits


def test_a_loss_with_a_rule_of_its_own_is_cut_from_its_head() -> None:
    """The rule is one equation, the last but for constants: nothing behind it is a place where less crosses."""

    @rematc.custom_vjp
    def loss_of(logits: Any, labels: Any) -> Any:
        return forward(logits, labels)[0]

    def forward(logits: Any, labels: Any) -> Any:
        chosen = np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        total = np.log(np.sum(np.exp(logits), axis=-1))
        return np.mean(total - chosen), (logits, total, labels)

    def backward(residuals: Any, ct: Any) -> Any:
        logits, total, labels = residuals
        return (np.exp(logits - total[..., None]) - (labels[..., None] == np.arange(4096))) * (ct / 256), None

    loss_of.defvjp(forward, backward)

    def loss(layers: Any, head: Any, x: Any, labels: Any) -> Any:
        for first, second in layers:
            x = x + np.tanh(x @ first) @ second
        return loss_of(x @ head, labels)

    args = (LANGUAGE[0], LANGUAGE[1], np.ones((4, 64, 64), np.float32), np.zeros((4, 64), np.int32))
    step = rematc.compile(rematc.value_and_grad(loss, (0, 1), policy="nothing"), *args)
    assert step.memory().temp_bytes < 2.5 * 256 * 4096 * 4


def test_automatic_memory_is_below_that_without_a_policy_and_no_product_is_repeated() -> None:
    step = rematc.value_and_grad(language, (0, 1))
    plain = rematc.compile(step, *LANGUAGE)
    chosen = rematc.compile(rematc.value_and_grad(language, (0, 1), policy="auto"), *LANGUAGE)
    assert chosen.memory().temp_bytes <= plain.memory().temp_bytes
    assert chosen.flops() <= 1.01 * plain.flops()


def test_a_loop_in_a_loop_is_staged_at_both_depths() -> None:
    def loss(w: Any, h: Any) -> Any:
        def inner(h: Any, _: Any) -> Any:
            return np.tanh(np.tanh(h @ w) @ w), None

        def outer(h: Any, _: Any) -> Any:
            return rematc.scan(inner, h, None, length=64)[0], None

        last: Any = rematc.scan(outer, h, None, length=4)[0]
        return np.sum(last)

    w, h = np.eye(32, dtype=np.float32), np.ones((256, 32), np.float32)
    plain = rematc.compile(rematc.value_and_grad(loss), w, h).memory().temp_bytes
    nested = rematc.compile(rematc.value_and_grad(loss, policy="nothing"), w, h).memory().temp_bytes
    assert plain > 4 * 64 * h.nbytes
    assert nested < plain / 4
