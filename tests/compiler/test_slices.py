"""`slices=`: the head of a language model in one loop over tokens, forward and backward."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.ir.errors import CompileError
from rematc.lowering import slicing
from rematc.lowering.planning import UnreachableBudgetError
from rematc.passes.planning.plan import Plan

BATCH, TOKENS, WIDTH, VOCABULARY = 2, 64, 32, 1024
LOGITS = BATCH * TOKENS * VOCABULARY * 4


def params(layers: int = 2) -> Any:
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return jnp.asarray(random.normal(size=shape).astype(np.float32) / np.sqrt(WIDTH))

    weights = [{"up": drawn(WIDTH, 4 * WIDTH), "down": drawn(4 * WIDTH, WIDTH)} for _ in range(layers)]
    return {"embedding": drawn(VOCABULARY, WIDTH), "layers": weights}


def tokens() -> Any:
    return jnp.asarray(np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, TOKENS + 1)).astype(np.int32))


def plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


def hidden(p: Any, given: Any, wrap: Callable[..., Any] = plain) -> Any:
    @wrap
    def layer(weights: Any, x: Any) -> Any:
        return x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]

    x = p["embedding"][given[:, :-1]]
    for weights in p["layers"]:
        x = layer(weights, x)
    return x


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[..., None], -1)[..., 0]


def loss(p: Any, given: Any, wrap: Callable[..., Any] = plain) -> Any:
    return cross_entropy(hidden(p, given, wrap) @ p["embedding"].T, given[:, 1:]).mean()


def with_dropout(p: Any, given: Any) -> Any:
    x = hidden(p, given)
    logits = x @ p["embedding"].T
    mask = jax.random.bernoulli(jax.random.key(3), 0.8, logits.shape)
    return cross_entropy(jnp.where(mask, logits, 0), given[:, 1:]).mean()


def with_weights(p: Any, given: Any) -> Any:
    """The mean over tokens that count: its cotangent follows from how many they are, not from the loss."""
    counts = (given[:, 1:] % 3 != 0).astype(jnp.float32)
    return (cross_entropy(hidden(p, given) @ p["embedding"].T, given[:, 1:]) * counts).sum() / counts.sum()


def with_top_k(p: Any, given: Any) -> Any:
    best, where = jax.lax.top_k(hidden(p, given) @ p["embedding"].T, 4)
    return jnp.sum(best * jnp.cos(where.astype(jnp.float32)))


def with_sort(p: Any, given: Any) -> Any:
    ordered = jnp.sort(hidden(p, given) @ p["embedding"].T, -1)
    return jnp.sum(ordered * jnp.linspace(0, 1, VOCABULARY))


def with_batch_statistics(p: Any, given: Any) -> Any:
    """Logits less their mean over all tokens, over their spread over the vocabulary: no dimension is independent."""
    logits = hidden(p, given) @ p["embedding"].T
    centered = logits - logits.mean((0, 1))
    return jnp.sum(jax.nn.softmax(centered, -1) ** 2)


def in_bfloat16(p: Any, given: Any) -> Any:
    logits = (hidden(p, given).astype(jnp.bfloat16) @ p["embedding"].astype(jnp.bfloat16).T).astype(jnp.float32)
    return cross_entropy(logits, given[:, 1:]).mean()


def assert_near(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = float(np.max(np.abs(other)))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


def taken(compiled: Any) -> int:
    """Bytes of temporary memory."""
    return int(compiled.memory_analysis().temp_size_in_bytes)


#: Of each head without a policy, and under one of those that the plain one has.
HEADS: dict[str, tuple[Callable[..., Any], list[str | None]]] = {
    "plain": (loss, [None, "nothing", "dots"]),
    "dropout": (with_dropout, [None, "dots"]),
    "weights": (with_weights, [None, "nothing"]),
    "top-k": (with_top_k, [None, "dots"]),
    "sort": (with_sort, [None, "nothing"]),
    "statistics": (with_batch_statistics, [None, "dots"]),
    "checkpointed layers": (functools.partial(loss, wrap=jax.checkpoint), [None, "nothing"]),
}


#: Those that always run.
QUICK = (("plain", None),)


@pytest.mark.parametrize(
    ("function", "policy"),
    [
        pytest.param(function, policy, id=f"{name}-{policy}", marks=() if (name, policy) in QUICK else pytest.mark.slow)
        for name, (function, policies) in HEADS.items()
        for policy in policies
    ],
)
def test_a_head_in_slices_gives_what_jax_gives(function: Callable[..., Any], policy: str | None) -> None:
    p, given = params(), tokens()
    step = rematc.jax.value_and_grad(function, policy=policy, slices=8)
    expected = jax.jit(jax.value_and_grad(function))(p, given)
    compiled = jax.jit(step).lower(p, given).compile()
    assert_near(compiled(p, given), expected)
    whole = jax.jit(rematc.jax.value_and_grad(function, policy=policy)).lower(p, given).compile()
    assert taken(compiled) < taken(whole)
    assert_near(step(p, given), expected)


def test_a_head_in_bfloat16_is_no_further_from_float32_than_it_was() -> None:
    """Weights' gradients are added up in float32, slice after slice."""
    p, given = params(), tokens()
    exact = jax.jit(jax.grad(loss))(p, given)["embedding"]
    whole = jax.jit(rematc.jax.grad(in_bfloat16))(p, given)["embedding"]
    sliced = jax.jit(rematc.jax.grad(in_bfloat16, slices=16))(p, given)["embedding"]
    assert np.linalg.norm(sliced - exact) < 1.05 * np.linalg.norm(whole - exact)


def by_hand(wrap: Callable[..., Any], count: int, p: Any, given: Any) -> Any:
    """Each layer under a checkpoint, and the head over slices of the tokens, each under one."""
    x, labels = hidden(p, given, wrap), given[:, 1:]
    slices = x.reshape(BATCH, count, -1, WIDTH).swapaxes(0, 1), labels.reshape(BATCH, count, -1).swapaxes(0, 1)

    @jax.checkpoint
    def step(total: Any, one: Any) -> Any:
        return total + cross_entropy(one[0] @ p["embedding"].T, one[1]).sum(), None

    total, _ = jax.lax.scan(step, jnp.zeros(()), slices)
    return total / labels.size


@pytest.mark.each_case
@pytest.mark.parametrize("policy", ["nothing", pytest.param("dots", marks=pytest.mark.slow)])
def test_slices_take_what_they_take_by_hand(policy: str) -> None:
    checkpoint = jax.checkpoint
    if policy == "dots":
        checkpoint = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.checkpoint_dots)
    p, given = params(4), tokens()
    written = jax.jit(jax.value_and_grad(functools.partial(by_hand, checkpoint, 16))).lower(p, given).compile()
    found = jax.jit(rematc.jax.value_and_grad(loss, policy=policy, slices=16)).lower(p, given).compile()
    assert_near(found(p, given), written(p, given))
    assert taken(found) <= 1.1 * taken(written)


# -- what cannot be cut ------------------------------------------------------------------------------------------------


def with_a_sort_of_all(p: Any, given: Any) -> Any:
    """Of all logits at once: there is no dimension of them."""
    logits = hidden(p, given) @ p["embedding"].T
    return jnp.sum(jnp.sort(logits.reshape(-1)) * jnp.linspace(0, 1, logits.size))


def test_what_needs_all_at_once_is_refused_with_its_line() -> None:
    step = rematc.jax.value_and_grad(jax.jit(with_a_sort_of_all), slices=4)
    with pytest.raises(CompileError, match=r"nothing can run in 4 slices|4 slices save nothing") as caught:
        step(params(1), tokens())
    assert caught.value.loc is not None
    assert caught.value.loc.file.endswith("test_slices.py")


def test_auto_leaves_alone_what_saves_nothing() -> None:
    p, given = params(1), tokens()
    step = rematc.jax.value_and_grad(with_a_sort_of_all, slices="auto")
    assert_near(step(p, given), jax.jit(jax.value_and_grad(with_a_sort_of_all))(p, given))


@pytest.mark.parametrize("slices", [0, -1, "some", 1.5, True, None])
def test_what_says_nothing_about_slices_is_refused(slices: Any) -> None:
    with pytest.raises(CompileError, match="is no number of slices") as caught:
        rematc.jax.value_and_grad(loss, slices=slices)
    assert caught.value.loc is not None
    assert caught.value.loc.file.endswith("test_slices.py")


def beside_a_sort(w: Any, x: Any, y: Any) -> Any:
    """The product can be cut, and is not what takes the memory."""
    return jnp.sum(jnp.sin(x @ w)) + jnp.sum(jnp.sort(y) * jnp.linspace(0, 1, y.size))


def test_slices_that_save_nothing_are_refused() -> None:
    given = jnp.ones((16, 16)), jnp.ones((16, 16)), jnp.linspace(1, 0, 2**16)
    step = rematc.jax.value_and_grad(beside_a_sort, argnums=2, slices=2)
    with pytest.raises(CompileError, match="2 slices save nothing") as caught:
        step(*given)
    assert caught.value.loc is not None
    expected = jax.jit(jax.value_and_grad(beside_a_sort, argnums=2))(*given)
    assert_near(rematc.jax.value_and_grad(beside_a_sort, argnums=2, slices="auto")(*given), expected)


# -- doors -------------------------------------------------------------------------------------------------------------


def numpy_loss(w: Any, x: Any) -> Any:
    """A head in NumPy."""
    logits = np.dot(x, w)
    scaled = np.exp(logits - np.max(logits, -1, keepdims=True))
    return np.sum(np.log(np.sum(scaled, -1)) + logits[..., 0])


def test_functions_of_numpy_run_in_slices_and_reports_say_so() -> None:
    random = np.random.default_rng(0)
    w, x = random.normal(size=(16, 512)).astype(np.float32), random.normal(size=(64, 16)).astype(np.float32)
    expected = rematc.value_and_grad(numpy_loss, argnums=(0, 1))(w, x)
    assert_near(rematc.value_and_grad(numpy_loss, argnums=(0, 1), slices=4)(w, x), expected)
    for compiled in (
        rematc.compile(rematc.value_and_grad(numpy_loss, argnums=(0, 1), slices=4), w, x),
        rematc.compile(rematc.value_and_grad(numpy_loss, argnums=(0, 1)), w, x, slices=4),
    ):
        assert_near(compiled(w, x), expected)
        report = compiled.report()
        assert "f32[64,512] of 'dot_general'" in str(report)
        assert "in 4 slices of 16 along dimension 0" in str(report)
        assert report.slices is not None
        loc = report.slices.largest.loc
        assert loc is not None
        stage = {"value": "f32[64,512]", "op": "dot_general", "where": loc.from_here().describe()}
        cut = {"dimension": 0, "count": 4, "each": 16, "again": False, "stages": 1}
        assert report.as_dict()["slices"] == [{**stage, **cut}]


def test_slices_and_a_budget_go_together() -> None:
    """What is planned is the program in slices."""
    p, given = params(4), tokens()
    expected = jax.jit(jax.value_and_grad(loss))(p, given)
    step = rematc.value_and_grad(rematc.from_jax(loss), budget=LOGITS * 7 // 8, slices=16)
    compiled = rematc.compile(step, p, given)
    assert compiled.memory().temp_bytes <= LOGITS * 7 // 8
    assert_near(compiled(p, given), expected)
    assert compiled.report().slices is not None
    assert_near(rematc.jax.value_and_grad(loss, budget=LOGITS, slices=16)(p, given), expected)


@pytest.mark.parametrize(
    "where",
    ["of compile", *[pytest.param(one, marks=pytest.mark.slow) for one in ("of the derivative", "both of compile")]],
)
def test_auto_takes_the_slices_of_the_fastest_plan_within_a_budget(where: str) -> None:
    p, given = params(), tokens()
    asked: dict[str, Any] = {"slices": "auto"}

    def counted(budget: int) -> int:
        function = rematc.from_jax(loss)
        if where == "of the derivative":
            compiled = rematc.compile(rematc.value_and_grad(function, budget=budget, **asked), p, given)
        elif where == "of compile":
            compiled = rematc.compile(rematc.value_and_grad(function, **asked), p, given, budget=budget)
        else:
            compiled = rematc.compile(rematc.value_and_grad(function), p, given, budget=budget, **asked)
        assert compiled.memory().temp_bytes <= budget
        slices = compiled.report().slices
        return 1 if slices is None else slices.largest.count

    assert counted(LOGITS * 7 // 8) > 1, "whole logits are more"
    if where == "of the derivative":
        assert counted(8 * LOGITS) == 1, "it fits as it stands"


def large_head(w: Any, x: Any) -> Any:
    return jnp.sum(jax.nn.logsumexp(x @ w, -1))


@pytest.mark.parametrize("where", ["of the derivative", "of compile", "of the gradient", "of a step"])
def test_auto_takes_more_slices_where_xla_takes_more_than_was_predicted(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A prediction that all budgets are met stands for one that is wrong; XLA takes more, and the slices it takes."""
    monkeypatch.setattr(slicing._Search, "of_fastest_plan", lambda _, graph, *__: slicing.Choice(graph))
    p, given = params(), tokens()
    budget = LOGITS * 3 // 4
    if where == "of a step":
        step: Any = rematc.jax.jit(jax.value_and_grad(loss), budget=budget, slices="auto")
        assert taken(step.lower(p, given).compile()) <= budget
        return
    function = rematc.from_jax(loss)
    if where == "of the derivative":
        made = rematc.compile(rematc.value_and_grad(function, budget=budget, slices="auto"), p, given)
    elif where == "of the gradient":
        made = rematc.compile(rematc.grad(function, slices="auto"), p, given, budget=budget)
    else:
        made = rematc.compile(rematc.value_and_grad(function), p, given, budget=budget, slices="auto")
    assert made.memory().temp_bytes <= budget
    assert made.report().slices is not None
    with pytest.raises(UnreachableBudgetError, match="no plan was found"):
        rematc.compile(rematc.value_and_grad(function), p, given, budget=1, slices="auto")


_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped
LARGE_HEAD = _struct((128, 16384), jnp.float32), _struct((2048, 128), jnp.float32)


def test_auto_takes_as_few_slices_as_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rematc.plans"):
        sliced = rematc.jax.value_and_grad(large_head, argnums=(0, 1), policy="nothing", slices="auto")
        step = jax.jit(sliced).lower(*LARGE_HEAD).compile()
    assert "sliced in large_head" in caplog.text
    whole = jax.jit(rematc.jax.value_and_grad(large_head, argnums=(0, 1), policy="nothing"))
    assert taken(step) < taken(whole.lower(*LARGE_HEAD).compile()) / 2


def test_auto_takes_no_slices_that_keep_no_device_busy() -> None:
    """Each of them would read and write the sums for a few rows."""
    small = _struct((8, 64), jnp.float32), _struct((4, 8), jnp.float32)
    step = jax.jit(rematc.jax.value_and_grad(large_head, argnums=(0, 1), slices="auto")).lower(*small)
    assert "stablehlo.while" not in step.as_text()


# -- attention ---------------------------------------------------------------------------------------------------------


def attention(p: Any, x: Any) -> Any:
    """Two layers of causal attention of two heads over one sequence, as written without a kernel."""
    count = x.shape[0]
    for weights in p:
        queries, keys, values = [y.reshape(count, 2, -1) for y in jnp.split(x @ weights, 3, -1)]
        scores = jnp.einsum("the,she->hts", queries, keys)
        scores = jnp.where(jnp.tril(jnp.ones((count, count), bool)), scores, -jnp.inf)
        x = x + jnp.einsum("hts,she->the", jax.nn.softmax(scores, -1), values).reshape(x.shape)
    return jnp.mean(jnp.sin(x))


def attention_arguments(tokens: int) -> Any:
    random = np.random.default_rng(0)
    weights = [jnp.asarray(random.normal(size=(16, 48)).astype(np.float32) / 4) for _ in range(2)]
    return weights, jnp.asarray(random.normal(size=(tokens, 16)).astype(np.float32))


@pytest.mark.parametrize("policy", [None, "nothing", "dots-no-batch"])
def test_scores_of_attention_are_never_whole(policy: str | None) -> None:
    """Blocks of queries, forward and backward, though nobody wrote them."""
    given = attention_arguments(256)
    step = jax.jit(rematc.jax.value_and_grad(attention, policy=policy, slices=16)).lower(*given).compile()
    assert_near(step(*given), jax.jit(jax.value_and_grad(attention))(*given))
    assert taken(step) < 2 * 256 * 256 * 4, "one array of scores"


@pytest.mark.slow
def test_memory_of_attention_is_linear_in_the_sequence() -> None:
    def needed(tokens: int) -> int:
        step = rematc.jax.value_and_grad(attention, policy="nothing", slices=tokens // 16)
        return taken(jax.jit(step).lower(*attention_arguments(tokens)).compile())

    assert needed(512) < 2.2 * needed(256)


def test_a_budget_is_met_by_slices_of_attention() -> None:
    given = attention_arguments(256)
    budget = 384 * 2**10  # three quarters of one array of scores
    with pytest.raises(CompileError, match="no plan"):
        rematc.jax.value_and_grad(attention, budget=budget, slices="off")(*given)
    step = jax.jit(rematc.jax.value_and_grad(attention, budget=budget, slices=16)).lower(*given).compile()
    assert taken(step) <= budget
    assert_near(step(*given), jax.jit(jax.value_and_grad(attention))(*given))


def test_attention_in_a_scan_over_layers_runs_in_slices() -> None:
    weights, x = attention_arguments(256)

    def scanned(p: Any, x: Any) -> Any:
        return jnp.mean(jnp.sin(jax.lax.scan(lambda x, weights: (x + layer(weights, x), None), x, p)[0]))

    def layer(weights: Any, x: Any) -> Any:
        queries, keys, values = jnp.split(x @ weights, 3, -1)
        return jax.nn.softmax(queries @ keys.T, -1) @ values

    given = jnp.stack(weights), x
    step = jax.jit(rematc.jax.value_and_grad(scanned, policy="nothing", slices=16)).lower(*given).compile()
    assert_near(step(*given), jax.jit(jax.value_and_grad(scanned))(*given))
    assert taken(step) < 256 * 256 * 4


def test_slices_are_said_once() -> None:
    w, x = np.ones((4, 64), np.float32), np.ones((8, 4), np.float32)
    with pytest.raises(CompileError, match="has slices of its own"):
        rematc.compile(rematc.value_and_grad(numpy_loss, slices=4), w, x, slices=2)


def test_a_derivative_of_a_sliced_derivative_is_that_of_the_function() -> None:
    w, x = np.ones((4, 64), np.float32) / 8, np.linspace(0, 1, 32, dtype=np.float32).reshape(8, 4)

    def norm(gradient: Callable[..., Any], w: Any, x: Any) -> Any:
        return np.sum(np.square(gradient(w, x)))

    sliced, whole = rematc.grad(numpy_loss, slices=4), rematc.grad(numpy_loss)
    found, expected = (rematc.grad(functools.partial(norm, one))(w, x) for one in (sliced, whole))
    assert_near(found, expected)


# -- training steps ----------------------------------------------------------------------------------------------------


def adam_step(state: Any, x: Any) -> Any:
    """A step that JAX differentiates, with moments."""
    weights, moments = state
    value, slopes = jax.value_and_grad(attention)(weights, x)
    moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, slopes)
    return (jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments), value


def test_a_training_step_runs_in_slices_as_it_is() -> None:
    weights, x = attention_arguments(256)
    state = weights, jax.tree.map(jnp.zeros_like, weights)
    expected = jax.jit(adam_step)(state, x)
    asked: list[dict[str, Any]] = [{"slices": 16}, {"slices": 16, "budget": "50%"}]
    for options in asked:
        step: Any = rematc.jax.jit(adam_step, **options)
        assert_near(step(state, x), expected)
        report = step.report(state, x)
        assert report.slices is not None
        assert "in 16 slices" in str(report)
    whole = jax.jit(adam_step).lower(state, x).compile()
    sliced: Any = rematc.jax.jit(adam_step, slices=16)
    assert taken(sliced.lower(state, x).compile()) < taken(whole) / 3


def test_a_percentage_is_of_the_step_without_slices() -> None:
    weights, x = attention_arguments(256)
    state = weights, jax.tree.map(jnp.zeros_like, weights)
    whole: Any = rematc.jax.jit(adam_step, budget="100%")
    sliced: Any = rematc.jax.jit(adam_step, slices=16, budget="30%")
    budget = sliced.report(state, x).budget
    assert budget.budget == whole.report(state, x).budget.budget * 30 // 100
    assert budget.measured <= budget.budget


def test_a_step_in_slices_as_a_part_of_another_program() -> None:
    weights, x = attention_arguments(256)
    state = weights, jax.tree.map(jnp.zeros_like, weights)
    step = rematc.jax.jit(adam_step, slices=16)
    outer = jax.jit(lambda state, x: step(step(state, x)[0], x))
    assert_near(outer(state, x), jax.jit(lambda state, x: adam_step(adam_step(state, x)[0], x))(state, x))
    with pytest.raises(CompileError, match="is no number of slices"):
        rematc.jax.jit(adam_step, slices=0)


Run = Callable[..., Any]
#: Attention within a budget, by each way to ask for one, with slices as they are said.
WITHIN: list[Run] = [
    lambda given, **asked: rematc.jax.value_and_grad(attention, **asked)(*given),
    lambda given, **asked: jax.jit(rematc.jax.value_and_grad(attention, **asked))(*given),
    lambda given, **asked: rematc.compile(rematc.value_and_grad(rematc.from_jax(attention)), *given, **asked)(*given),
    lambda given, **asked: rematc.compile(rematc.value_and_grad(rematc.from_jax(attention), **asked), *given)(*given),
    lambda given, **asked: rematc.lower(rematc.value_and_grad(rematc.from_jax(attention)), *given, **asked).compile()(
        *given
    ),
    lambda given, **asked: rematc.jit(rematc.value_and_grad(rematc.from_jax(attention), **asked))(*given),
    lambda given, **asked: rematc.jax.jit(jax.value_and_grad(attention), **asked)(*given),
    lambda given, **asked: jax.jit(rematc.jax.jit(jax.value_and_grad(attention), **asked))(*given),
]


@pytest.mark.parametrize("run", WITHIN)
def test_slices_are_taken_where_no_plan_fits_without(run: Run) -> None:
    given = attention_arguments(512)
    assert_near(run(given, budget="1MiB"), jax.value_and_grad(attention)(*given))


def test_the_smallest_plan_is_not_looked_for_where_slices_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the program without slices, nor of any number of them that is only weighed."""

    def looked_for(*_: Any) -> NoReturn:
        raise AssertionError("no plan is near the budget, and slices give one that fits")

    monkeypatch.setattr("rematc.passes.planning.planner.Planner._found_smallest", looked_for)
    given = attention_arguments(512)
    step: Any = rematc.jax.jit(jax.value_and_grad(attention), budget=2**20)
    assert step.report(*given).slices is not None


@pytest.mark.parametrize("amount", [2**20, "20%"])
def test_slices_that_are_needed_fit_and_a_plan_remembers_them(amount: int | str) -> None:
    given = attention_arguments(512)
    step: Any = rematc.jax.jit(jax.value_and_grad(attention), budget=amount)
    budget = step.report(*given).budget
    assert budget.measured <= budget.budget
    assert budget.plan.slices is not None
    assert step.report(*given).slices.largest.count > 1
    plan = Plan.from_json(budget.plan.to_json())
    again: Any = rematc.jax.jit(jax.value_and_grad(attention), plan=plan)
    assert again.report(*given).budget.measured == budget.measured
    gradient = rematc.value_and_grad(rematc.from_jax(attention))
    made = rematc.compile(gradient, *given, budget=amount)
    assert made.report().slices is not None and made.plan is not None
    assert rematc.compile(gradient, *given, plan=made.plan).memory() == made.memory()
    found = made.report().budget
    if amount == "20%":
        assert found is not None and found.budget == rematc.compile(gradient, *given).memory().temp_bytes // 5
    whole: Any = rematc.jax.jit(jax.value_and_grad(attention), budget=8 * budget.budget)
    assert whole.report(*given).slices is None
    assert whole.report(*given).budget.plan.slices is None


def test_a_budget_that_no_plan_meets_is_refused_with_the_slices_that_meet_it() -> None:
    given = attention_arguments(512)
    for run in WITHIN:
        with pytest.raises(CompileError, match=r"With slices=\d+ a plan is predicted to fit") as caught:
            run(given, budget="1MiB", slices="off")
    found = re.search(r"slices=(\d+)", caught.value.message)
    assert found is not None
    step: Any = rematc.jax.jit(jax.value_and_grad(attention), budget="1MiB", slices=int(found[1]))
    assert step.report(*given).figures.temp_bytes <= 2**20


# -- what others write -------------------------------------------------------------------------------------------------


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32))


def normalized_convolution(w: Any, x: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean, spread = y.mean((0, 1, 2)), y.var((0, 1, 2))
    return jnp.sum(jax.nn.relu((y - mean) / jnp.sqrt(spread + 1e-3)) ** 2)


def routed(w: Any, x: Any) -> Any:
    """The two best of eight experts."""
    best, where = jax.lax.top_k(jax.nn.softmax(x @ w[:, :8], -1), 2)
    every = jnp.einsum("td,de->te", x, w)[:, :, None] * jnp.arange(1.0, 17)
    return jnp.sum(jnp.sin(jnp.take_along_axis(every, where[:, :, None], 1)) * best[:, :, None])


def dropped(w: Any, x: Any) -> Any:
    queries, keys, values = jnp.split(x @ w[:, :48] / 8, 3, -1)
    weights = jax.nn.softmax(queries @ keys.T, -1)
    kept = jax.random.bernoulli(jax.random.key(1), 0.9, weights.shape)
    return jnp.sum(jnp.sin((weights * kept / 0.9) @ values))


def distances(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.exp(-jnp.sum((x[:, None] - w.T[None]) ** 2, -1)))


def penalty(w: Any, x: Any) -> Any:
    slopes = jax.vmap(jax.grad(lambda row: jnp.sum(jnp.tanh(row @ w) ** 2)))(x)
    return jnp.mean((jnp.linalg.norm(slopes, axis=-1) - 1) ** 2)


def running(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.cumsum(jnp.tanh(x @ w), 0) ** 2)


def masked(w: Any, x: Any) -> Any:
    y = x @ w
    return jnp.sum(jax.nn.softmax(jnp.where(y > 5, -jnp.inf, jnp.log(jnp.where(y > 0, y, 1))), -1) * y)


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("slices", "policy"),
    [
        (2, None),
        ("auto", "dots"),
        *[pytest.param(*case, marks=pytest.mark.slow) for case in ((4, "nothing"), (2, "dots"), ("auto", None))],
    ],
)
@pytest.mark.parametrize(
    "function", [normalized_convolution, routed, dropped, distances, penalty, running, masked], ids=lambda f: f.__name__
)
def test_models_of_all_kinds_give_what_they_give_whole(
    function: Callable[..., Any], slices: int | str, policy: str | None
) -> None:
    """Or are refused, where slices save nothing of them."""
    given = (
        (drawn(3, 3, 4, 16), drawn(8, 8, 8, 4))
        if function is normalized_convolution
        else (drawn(16, 64), drawn(96, 16))
    )
    expected = jax.jit(jax.value_and_grad(function, argnums=(0, 1)))(*given)
    step = jax.jit(rematc.jax.value_and_grad(function, argnums=(0, 1), policy=policy, slices=slices))
    try:
        assert_near(step(*given), expected, 2e-5)
    except CompileError as error:
        assert "save nothing" in error.message
