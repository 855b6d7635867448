"""The check: no alarm where XLA keeps the plan, an alarm where it undoes it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.compiler.check_jax.placing import placed_well
from rematc.compiler.reports.check import KEPT, NOTHING, UNDONE, UNKNOWN, judge
from rematc.compiler.reports.comparison import compare_modules
from rematc.ir.errors import CompileError
from rematc.ir.units import format_bytes
from rematc.lowering.jax_internals.settings import is_jaxlib_before

LAYERS, WIDTH, BATCH = 6, 64, 256
DROPS_BARRIERS = jax.default_backend() == "cpu" and is_jaxlib_before(0, 12)


def chain_loss(xp: Any, wrap: Callable[..., Any]) -> Callable[..., Any]:
    layer = wrap(lambda w, x: x + xp.sin(xp.sin(x @ w) @ w))

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = layer(w, x)
        return xp.mean(x * x)

    return loss


def chain_arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    weights = [random.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    return weights, random.normal(0, 1, (BATCH, WIDTH)).astype(np.float32)


def same(function: Any) -> Any:
    return function


# -- our programs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "nothing", "dots", "dots-no-batch", "everything"])
def test_no_alarm_on_a_policy_of_the_whole(policy: str | None) -> None:
    step = rematc.value_and_grad(chain_loss(np, same), policy=policy)
    check = rematc.compile(step, *chain_arguments()).check()
    assert not check.is_broken
    assert check.verdict == (KEPT if policy == "nothing" else NOTHING)
    if policy == "nothing":
        assert check.comparison.recomputed >= LAYERS
        assert check.comparison.merged == 0


def test_no_alarm_on_checkpointed_layers() -> None:
    loss = chain_loss(np, rematc.checkpoint)
    compiled = rematc.compile(rematc.value_and_grad(loss), *chain_arguments())
    check = compiled.check()
    assert check.verdict == KEPT
    assert str(check).startswith(f"kept: {2 * LAYERS} recomputed products, {8 * LAYERS - 1} executed in all")
    assert check.temp_bytes == compiled.memory().temp_bytes
    assert check.as_dict()["verdict"] == "kept"


def test_no_alarm_in_loops() -> None:
    def loss(w: Any, x: Any) -> Any:
        step = rematc.checkpoint(lambda c, _: (np.sin(c @ w), None))
        return rematc.scan(step, x, None, 6)[0].sum()  # type: ignore[attr-defined]

    weights, x = chain_arguments()
    check = rematc.compile(rematc.value_and_grad(loss), weights[0], x).check()
    assert check.verdict == KEPT
    assert "in loops" in check.message


def test_products_with_vectors_are_no_alarm() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(np.sin(w @ np.sin(w @ np.sin(w @ x))))

    weights, x = chain_arguments()
    check = rematc.compile(rematc.value_and_grad(loss, policy="nothing"), weights[0], x[0]).check()
    assert not check.is_broken


@pytest.mark.parametrize("passes", ["simplify,cse,dce", "simplify", "cse,dce"])
def test_a_plan_without_barriers_is_an_alarm(passes: str) -> None:
    """Also where our own passes merge some of it, and XLA the rest."""
    step = rematc.value_and_grad(chain_loss(np, rematc.checkpoint))
    lowered = rematc.lower(step, *chain_arguments(), passes=f"barriers{{strategy=none}},{passes}")
    check = lowered.compile().check()
    assert check.verdict == UNDONE
    assert check.message == f"{2 * LAYERS} recomputed products merged with the forward pass: nothing keeps them apart"
    assert "strategy" in check.way_out


@pytest.mark.parametrize(("example", "policy"), [("mlp", "nothing"), ("convnet", "dots"), ("transformer", "nothing")])
def test_no_alarm_on_the_examples(example: str, policy: str) -> None:
    namespace: dict[str, Any] = {"__name__": example}
    path = Path(__file__).parents[3] / "examples" / f"{example}.py"
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    step = rematc.value_and_grad(namespace["loss"], policy=policy)
    check = rematc.compile(step, *namespace["example_args"]()).check()
    assert not check.is_broken, str(check)


def test_the_report_has_the_check() -> None:
    step = rematc.value_and_grad(chain_loss(np, same), policy="nothing")
    report = rematc.compile(step, *chain_arguments()).report()
    assert report.check is not None
    assert report.as_dict()["check"] == report.check.as_dict()


# -- verdicts --------------------------------------------------------------------------------------------------------


def squares(name: str, count: int) -> str:
    """So many products in a row, each of the one before with itself; `name`0 is the first operand."""
    return "".join(
        f"  %{name}{index + 1} = f32[8,8]{{1,0}} dot(%{name}{index}, %{name}{index}), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        for index in range(count)
    )


def modules(forward: int, again: int, found: int) -> tuple[str, str]:
    """A module with `forward` distinct products of one size, `again` of them repeated behind a barrier; and the module
    that runs, with `found` of them.
    """
    head = "HloModule m\n\nENTRY %main {\n  %d0 = f32[8,8]{1,0} parameter(0)\n"
    barrier = (
        "  %t = (f32[8,8]{1,0}) tuple(%d0)\n"
        "  %b = (f32[8,8]{1,0}) opt-barrier(%t)\n"
        "  %e0 = f32[8,8]{1,0} get-tuple-element(%b), index=0\n"
    )
    before = head + squares("d", forward) + barrier + squares("e", again)
    after = head + squares("d", found)
    return (
        f"{before}  ROOT %r = f32[8,8]{{1,0}} add(%d{forward}, %e{again})\n}}\n",
        f"{after}  ROOT %r = f32[8,8]{{1,0}} add(%d{found}, %d0)\n}}\n",
    )


@pytest.mark.parametrize(
    ("found", "merged", "verdict"), [(9, 0, KEPT), (8, 0, KEPT), (7, 1, UNDONE), (5, 3, UNDONE), (4, 0, UNKNOWN)]
)
def test_verdicts_by_count(found: int, merged: int, verdict: str) -> None:
    comparison = compare_modules(*modules(forward=5, again=3, found=found))
    assert (comparison.planned, comparison.recomputed, comparison.merged) == (8, 3, merged)
    assert judge(comparison)[0] == verdict


def test_text_that_is_not_understood_gives_no_alarm() -> None:
    before, after = modules(forward=5, again=3, found=5)
    garbled = after.replace("ENTRY %main {", "ENTRY %main {\n  something new")
    comparison = compare_modules(before, garbled)
    assert "unknown here" in comparison.unread
    assert judge(comparison)[0] == UNKNOWN
    assert judge(compare_modules("", ""))[0] == UNKNOWN


def test_a_prediction_is_shown() -> None:
    compiled = rematc.compile(rematc.value_and_grad(chain_loss(np, same)), *chain_arguments())
    check = compiled.check()
    assert check.predicted_bytes == compiled.lowered.predicted_peak() == compiled.report().figures.predicted_bytes
    half = dataclasses.replace(check, predicted_bytes=2**21, temp_bytes=2**22)
    assert str(half).endswith("temporary memory 4.0 MiB, predicted 2.0 MiB (0.50 of it)")
    assert "predicted" not in str(dataclasses.replace(check, predicted_bytes=None))


# -- JAX functions ---------------------------------------------------------------------------------------------------


def test_jax_without_checkpoints() -> None:
    check = rematc.check_jax(jax.jit(jax.value_and_grad(chain_loss(jnp, same))), *chain_arguments())
    assert check.verdict == NOTHING
    assert check.barriers == 0
    assert check.is_effective is None


def test_jax_with_checkpointed_layers() -> None:
    step = jax.jit(jax.value_and_grad(chain_loss(jnp, jax.checkpoint)))
    check = rematc.check_jax(step, *chain_arguments())
    assert check.comparison.recomputed == 2 * LAYERS
    assert check.without_bytes is not None
    if DROPS_BARRIERS:
        assert check.verdict == UNDONE
        assert check.held_bytes is not None
        assert check.held_bytes < 0.7 * check.temp_bytes
        assert "cse_barrier_expander" in check.way_out
        assert all(row.source is not None and row.source.file == __file__ for row in check.comparison.where)
    else:
        assert check.verdict == KEPT
        assert check.is_effective
        assert check.held_bytes is None


def test_jax_with_one_checkpoint_around_all() -> None:
    loss = jax.checkpoint(chain_loss(jnp, same))
    check = rematc.check_jax(jax.value_and_grad(loss), *chain_arguments())
    assert check.verdict == UNDONE
    assert not check.is_effective
    assert "wrap smaller parts" in check.way_out


def test_jax_with_a_policy_around_all() -> None:
    loss = jax.checkpoint(chain_loss(jnp, same), policy=jax.checkpoint_policies.dots_saveable)
    check = rematc.check_jax(jax.value_and_grad(loss), *chain_arguments())
    assert check.verdict == UNDONE
    assert check.message.startswith("1 barrier, and the checkpoints ")
    assert re.search(r"(save no|cost) memory: .* with the barriers taken out; no product is recomputed", check.message)
    assert check.placed is not None and check.placed.policy == "dots"
    assert f"'dots', placed by rematc {format_bytes(check.placed.temp_bytes)}" in str(check)


def rolled(policy: Any = None) -> Callable[..., Any]:
    def loss(w: Any, x: Any) -> Any:
        step = jax.checkpoint(lambda c, _: (jnp.sin(c @ w), None), policy=policy)
        return jax.lax.scan(step, x, None, 6)[0].sum()

    return loss


def test_jax_in_loops() -> None:
    weights, x = chain_arguments()
    shape: Any = jax.ShapeDtypeStruct
    check = rematc.check_jax(jax.jit(jax.value_and_grad(rolled())), weights[0], shape(x.shape, x.dtype))
    assert check.verdict == KEPT
    assert check.message.startswith("6 products are recomputed, all in loops")
    assert check.without_bytes is None
    assert check.as_dict()["verdict"] == "kept"
    saved = rematc.check_jax(jax.value_and_grad(rolled(jax.checkpoint_policies.dots_saveable)), weights[0], x)
    assert saved.verdict == KEPT
    assert "no product is recomputed" in saved.message
    assert (check.comparison.looped, saved.comparison.looped) == (6, 0)


@pytest.mark.parametrize(
    ("derivative", "argnums", "has_aux"),
    [(jax.value_and_grad, 0, False), (jax.grad, 1, False), (jax.grad, (0, 1), True), (jax.value_and_grad, 1, True)],
)
def test_what_it_would_cost_placed_well(derivative: Any, argnums: Any, has_aux: bool) -> None:
    loss, (weights, x) = chain_loss(jnp, same), chain_arguments()
    arguments = (weights[:2], x)

    def with_aux(weights: Any, x: Any) -> Any:
        return loss(weights, x), {"rows": x.sum(axis=1)}

    step = jax.jit(derivative(jax.checkpoint(with_aux if has_aux else loss), argnums=argnums, has_aux=has_aux))
    placed = placed_well(step, arguments, step.lower(*arguments).out_info)
    assert placed is not None
    assert placed.policy == "nothing"
    ours = rematc.value_and_grad(chain_loss(np, same), argnums, policy="nothing")
    expected = rematc.compile(ours, *arguments).memory().temp_bytes
    assert abs(placed.temp_bytes - expected) <= 0.1 * expected


def test_what_is_no_gradient_is_not_placed() -> None:
    """A whole training step is not taken apart, and neither is what cannot be imported."""

    def train(weights: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(chain_loss(jnp, jax.checkpoint))(weights, x)
        return value, [w - 0.1 * gradient for w, gradient in zip(weights, gradients, strict=True)], value

    step = jax.jit(train)
    assert placed_well(step, chain_arguments(), step.lower(*chain_arguments()).out_info) is None


def test_jax_takes_functions() -> None:
    with pytest.raises(CompileError, match=r"pass jax\.jit\(f\)"):
        rematc.check_jax(3)  # type: ignore[arg-type]
