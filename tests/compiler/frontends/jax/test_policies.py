"""Policies that are JAX's, or written for JAX, wherever a policy is taken: they save what JAX saves under them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import rematc
import rematc.jax
from rematc.cli.main import main
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.printer import print_graph

given = jax.checkpoint_policies
# JAX leaves these without annotations.
name: Any = jax.ad_checkpoint.checkpoint_name
shown: Any = jax.ad_checkpoint.print_saved_residuals
W, X = jnp.full((4, 4), 0.25), jnp.ones((3, 4))


def loss(w: Any, x: Any) -> Any:
    hidden = name(jnp.exp(jnp.sin(x @ w)), "hidden")
    return jnp.sum(jnp.tanh(hidden @ w))


def first_product(prim: Any, *avals: Any, **params: Any) -> bool:
    """One that reads everything that JAX gives it."""
    is_plain = params.get("dimension_numbers") == (((1,), (0,)), ((), ()))
    return bool(prim is jax.lax.dot_general_p and is_plain and avals[0].shape == (3, 4) and len(avals) == 2)


POLICIES: dict[str, Any] = {
    "dots": given.dots_saveable,
    "dots without batches": given.dots_with_no_batch_dims_saveable,
    "nothing": given.nothing_saveable,
    "names": given.save_only_these_names("hidden"),
    "any names but": given.save_any_names_but_these("other"),
    "both": given.save_from_both_policies(given.dots_saveable, given.save_only_these_names("hidden")),
    "a function": lambda prim, *_, **__: prim.name == "dot_general",
    "what derivatives add": lambda prim, *_, **__: prim.name in ("cos", "tanh"),
    "parameters": first_product,
    "both functions": given.save_from_both_policies(given.dots_saveable, lambda prim, *_, **__: prim.name == "cos"),
}


def types_in_jax(policy: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    shown(jax.checkpoint(loss, policy=policy), W, X)
    lines = [line for line in capsys.readouterr().out.splitlines() if "from the argument" not in line]
    return sorted(line.split()[0] for line in lines)


def types_of(rows: list[Any]) -> list[str]:
    return sorted(str(row.type) for row in rows if not row.is_argument)


@pytest.mark.parametrize("which", POLICIES)
def test_the_residuals_are_those_of_jax(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the function's own lines, not their number alone: one matrix product has the shape of every value here."""
    policy = POLICIES[which]
    expected = types_in_jax(policy, capsys)
    imported = rematc.from_jax(loss)
    assert types_of(rematc.saved_residuals(rematc.checkpoint(imported, policy=policy), W, X)) == expected
    lowered = rematc.lower(rematc.value_and_grad(imported, policy=policy), W, X)
    assert types_of(list(lowered.derivatives[0].residuals)) == expected


def sources(policy: Any, function: Callable[..., Any]) -> list[str]:
    rows = rematc.saved_residuals(rematc.checkpoint(function, policy=policy), W, X)
    return [row.label or row.provenance.split()[2] for row in rows if not row.is_argument]


@pytest.mark.parametrize("which", ["names", "a function", "what derivatives add", "parameters", "both functions"])
def test_a_model_in_numpy_is_described_in_primitives(which: str) -> None:
    """The policy is told of each op what JAX would do in its place."""

    def numpy_loss(w: Any, x: Any) -> Any:
        hidden = rematc.checkpoint_name(np.exp(np.sin(x @ w)), "hidden")
        return np.sum(np.tanh(hidden @ w))

    assert sources(POLICIES[which], numpy_loss) == sources(POLICIES[which], rematc.from_jax(loss))


@pytest.mark.parametrize("which", ["dots", "names", "parameters", "both functions"])
def test_functions_of_jax_take_them(which: str) -> None:
    policy, expected = POLICIES[which], jax.grad(loss)(W, X)
    np.testing.assert_allclose(rematc.jax.grad(loss, policy=policy)(W, X), expected, rtol=1e-5)
    np.testing.assert_allclose(rematc.jax.vjp(loss, W, X, policy=policy)[1](jnp.ones(()))[0], expected, rtol=1e-5)
    for segments in (False, True):
        region = rematc.jax.checkpoint(loss, policy=policy, segments=segments)
        np.testing.assert_allclose(jax.grad(region)(W, X), expected, rtol=1e-5)


def products(function: Callable[..., Any]) -> int:
    return str(jax.make_jaxpr(function)(W, X)).count("dot_general[")


def test_a_function_written_for_jax_saves_products_under_value_and_grad() -> None:
    """It was asked about our ops, and saved nothing."""
    plain, nothing = products(rematc.jax.grad(loss)), products(rematc.jax.grad(loss, policy="nothing"))
    assert plain < nothing
    for policy in (given.dots_saveable, lambda prim, *_, **__: prim.name == "dot_general"):
        assert products(rematc.jax.grad(loss, policy=policy)) == plain


def test_it_combines_with_ours() -> None:
    policy = rematc.policies.save_from_both_policies("names=hidden", lambda prim, *_, **__: prim.name == "cos")
    assert sources(policy, rematc.from_jax(loss)) == ["cosine", "hidden"]
    assert products(rematc.jax.grad(loss, policy=policy)) < products(rematc.jax.grad(loss, policy="names=hidden"))


def test_nested_functions_of_one_name_are_told_apart() -> None:
    def saving(*names: str) -> Any:
        return lambda prim, *_, **__: prim.name in names

    inner = rematc.checkpoint(rematc.from_jax(loss), policy=saving("cos", "dot_general"))
    assert sources(saving("cos"), inner) == ["cosine"], "both decide"
    assert sources(saving("cos", "dot_general"), inner) == sources(saving("cos", "dot_general"), rematc.from_jax(loss))


MODEL = """
import jax.numpy as jnp

def loss(w, x):
    return jnp.sum(jnp.tanh(jnp.sin(x @ w) @ w))

def example_args():
    return jnp.ones((4, 4)), jnp.ones((3, 4))

def products(prim, *avals, **params):
    return prim.name == "dot_general"
"""


def test_the_command_takes_one_in_a_file(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    outputs = [
        CliRunner().invoke(main, [str(model), "--policy", policy, "-q"]) for policy in (f"{model}:products", "dots")
    ]
    assert [one.exit_code for one in outputs] == [0, 0], outputs[0].output
    listed = [[line for line in one.output.splitlines() if "dot_general" in line] for one in outputs]
    assert listed[0] == listed[1]
    (products,) = [line for line in listed[0] if "output of" in line]
    assert " 2 x 48 B " in products


def test_the_text_of_a_graph_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    graph = rematc.trace(rematc.checkpoint(rematc.from_jax(loss), policy=f"{file}:products"), W, X)
    text = print_graph(graph)
    again = rematc.parse(text)
    assert print_graph(again) == text
    (policy,) = [eqn.op.policy for eqn in again.equations if isinstance(eqn.op, Checkpoint)]
    assert type(policy).__name__ == "AskedPolicy"


@pytest.mark.parametrize("relu", [jax.nn.relu, lambda x: jnp.maximum(x, 0)], ids=["custom_jvp", "plain"])
def test_auto_saves_the_same_of_a_function_with_a_derivative_of_its_own(relu: Any) -> None:
    """The sum before a relu, not its result and a mask: a function that XLA fuses takes no time, whoever wrote it."""

    def layers(w: Any, x: Any) -> Any:
        for _ in range(2):
            x = relu(x @ w + 1.0)
        return jnp.sum(jnp.sin(x))

    saved = rematc.saved_residuals(rematc.checkpoint(rematc.from_jax(layers), policy="auto"), W, X)
    assert types_of(saved) == ["f32[3,4]", "f32[3,4]"]
