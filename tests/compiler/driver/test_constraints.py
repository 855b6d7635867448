"""What a budget's plan must not do: values that are kept, and ops that do not run again."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.compiler.driver.lowered import Lowered
from rematc.ir.errors import CompileError
from rematc.passes.accounting import flat_equations, total_work
from rematc.passes.planning.plan import Plan

LAYERS, WIDTH, BATCH = 6, 64, 512
WEIGHTS = [np.eye(WIDTH, dtype=np.float32) / 2] * LAYERS
STACKED = np.stack(WEIGHTS)
X = np.ones((BATCH, WIDTH), np.float32)


def chain(weights: Any, x: Any) -> Any:
    for place, weight in enumerate(weights):
        x = np.tanh(x @ weight)
        if place % 2:
            # It could be fused into what reads it.
            x = rematc.checkpoint_name(x * 2, "scaled")
    return np.sum(x * x)


def loop(weights: Any, x: Any) -> Any:
    def step(x: Any, w: Any) -> Any:
        h = rematc.checkpoint_name(np.tanh(x @ w), "hidden")
        return x + np.sin(h @ w), None

    scan: Any = rematc.scan
    return np.sum(scan(step, x, weights)[0] ** 2)


def again(lowered: Lowered) -> set[str]:
    assert lowered.plan is not None
    return {one.what for one in lowered.plan.computed_again}


CASES = [(chain, WEIGHTS, "scaled", "45%"), (loop, STACKED, "hidden", "70%")]


@pytest.mark.parametrize(("loss", "weights", "name", "amount"), CASES)
def test_named_values_are_not_computed_again(loss: Any, weights: Any, name: str, amount: str) -> None:
    step = rematc.value_and_grad(loss)
    free = rematc.lower(step, weights, X, budget=amount)
    # What is fused into its readers is computed again with them.
    assert f"named '{name}'" in again(free) or loss is chain
    kept = rematc.lower(step, weights, X, budget=rematc.Budget("85%", keep=[name]))
    plan = kept.plan
    assert plan is not None
    assert plan.recomputes
    assert f"named '{name}'" not in again(kept)
    assert any(f"named '{name}'" in str(one) for one in plan.kept)
    with pytest.raises(CompileError, match="no plan was found"):
        rematc.lower(step, weights, X, budget=rematc.Budget("12%", keep=[name]))


@pytest.mark.parametrize(("loss", "weights", "op"), [(chain, WEIGHTS, "dot_general"), (loop, STACKED, "tanh")])
def test_ops_that_do_not_run_again(loss: Any, weights: Any, op: str) -> None:
    def count(lowered: Lowered) -> int:
        return total_work(eqn for eqn in flat_equations(lowered.graph) if eqn.op.name == op).equations

    step = rematc.value_and_grad(loss)
    least = count(rematc.lower(step, weights, X))
    assert count(rematc.lower(step, weights, X, budget="60%")) > least
    never = rematc.lower(step, weights, X, budget=rematc.Budget("88%", never_repeat=[op]))
    assert never.plan is not None
    assert never.plan.recomputes
    assert count(never) == least
    with pytest.raises(CompileError, match="no plan was found"):
        rematc.lower(step, weights, X, budget=rematc.Budget("60%", never_repeat=[op]))


@pytest.mark.parametrize(("loss", "weights", "name", "amount"), CASES)
def test_a_plan_holds_its_constraints(loss: Any, weights: Any, name: str, amount: str) -> None:
    step = rematc.value_and_grad(loss)
    lowered = rematc.lower(step, weights, X, budget=rematc.Budget("85%", keep=(name,), never_repeat=("sine",)))
    plan = lowered.plan
    assert plan is not None
    read = Plan.from_json(plan.to_json())
    assert read == plan
    assert read.constraints.keep == (name,)
    assert rematc.lower(step, weights, X, plan=read).stablehlo() == lowered.stablehlo()
    assert f"keeps {name}; never repeats sine" in str(plan)


def test_derivatives_take_constraints() -> None:
    budget = rematc.Budget("90%", keep=["scaled"])
    for one in (rematc, rematc.jax):
        wrong = rematc.Budget("90%", keep=["scale"])
        planned: Any = one.value_and_grad(chain if one is rematc else jax_chain, budget=budget)
        value, _ = planned(WEIGHTS, X)
        np.testing.assert_allclose(value, chain(WEIGHTS, X), rtol=1e-5)
        misspelled: Any = one.grad(chain if one is rematc else jax_chain, budget=wrong)
        with pytest.warns(UserWarning, match=r"keeps scale: no value has the name 'scale' \(did you mean 'scaled'"):
            misspelled(WEIGHTS, X)


def jax_chain(weights: Any, x: Any) -> Any:
    for weight in weights:
        named: Any = jax.ad_checkpoint.checkpoint_name
        x = named(jax.numpy.tanh(x @ weight) * 2, "scaled")
    x = x * 0
    return chain(WEIGHTS, X) + jax.numpy.sum(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": "attn"}, r"keep is a list of names, got 'attn'"),
        ({"never_repeat": ["dot_genral"]}, r"no op is called so; did you mean 'dot_general'\?"),
        ({"amount": "much"}, "'much' is no budget"),
    ],
)
def test_what_is_no_budget(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        rematc.Budget(**{"amount": "50%", **arguments})


def test_the_pass_takes_constraints() -> None:
    passes = "inline,simplify,cse,dce,plan{budget=700000%s},barriers"
    step = rematc.value_and_grad(chain)
    free = rematc.lower(step, WEIGHTS, X, passes=passes % "").stablehlo()
    assert "optimization_barrier" in free
    assert rematc.lower(step, WEIGHTS, X, passes=passes % ",keep=other+scaled").stablehlo() != free
    with pytest.raises(CompileError, match="no plan was found that needs 700000 bytes"):
        rematc.lower(step, WEIGHTS, X, passes=passes % ",never_repeat=sort+dot_general")
    with pytest.raises(CompileError, match="about a budget; add budget"):
        rematc.lower(step, WEIGHTS, X, passes="plan{keep=a}")
