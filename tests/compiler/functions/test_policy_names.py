"""A policy that speaks of a name that no value has: it would mean `nothing`, silently."""

from __future__ import annotations

import warnings
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

name: Any = jax.ad_checkpoint.checkpoint_name
W, X = jnp.full((2, 2), 0.25), jnp.ones((3, 2))


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(name(jnp.exp(x @ w), "hidden")))


def numpy_loss(w: Any, x: Any) -> Any:
    return np.sum(np.tanh(rematc.checkpoint_name(np.exp(x @ w), "hidden")))


ENTRIES: dict[str, Callable[[Any], Any]] = {
    "value_and_grad": lambda policy: rematc.lower(rematc.value_and_grad(numpy_loss, policy=policy), W, X),
    "jacrev": lambda policy: rematc.lower(rematc.jacrev(numpy_loss, policy=policy), W, X),
    "checkpoint": lambda policy: rematc.trace(rematc.checkpoint(numpy_loss, policy=policy), W, X),
    "jax.grad": lambda policy: jax.eval_shape(rematc.jax.grad(loss, policy=policy), W, X),
    "jax.vjp": lambda policy: jax.eval_shape(lambda *a: rematc.jax.vjp(loss, *a, policy=policy)[0], W, X),
    "jax.checkpoint": lambda policy: jax.eval_shape(jax.grad(rematc.jax.checkpoint(loss, policy=policy)), W, X),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_user_is_warned_at_their_line(entry: str) -> None:
    for policy in ("names=hiden", jax.checkpoint_policies.save_only_these_names("hiden"), "dots+except=hiden"):
        with pytest.warns(
            UserWarning, match=r"has the name 'hiden' \(did you mean 'hidden'\?\); names there"
        ) as caught:
            ENTRIES[entry](policy)
        assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("entry", ENTRIES)
def test_names_that_are_there_are_no_news(entry: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for policy in ("names=hidden", "except=hidden", "any-names", "dots"):
            ENTRIES[entry](policy)


def test_checkpoints_may_share_a_policy_that_speaks_of_names_that_one_lacks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ENTRIES["checkpoint"]("names=hidden,attention")
    with pytest.warns(UserWarning, match="no value has the name 'attention'; names there: hidden"):
        ENTRIES["value_and_grad"]("names=hidden,attention")
    with pytest.warns(UserWarning, match="no value has the names 'attention', 'mlp'; names there: hidden"):
        ENTRIES["checkpoint"]("names=attention,mlp")


def test_to_the_command_it_is_an_error(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import numpy as np, rematc\n"
        "def loss(x):\n    return np.sum(np.sin(rematc.checkpoint_name(np.exp(x), 'hidden')))\n"
        "def example_args():\n    return (np.ones(3),)\n"
    )
    result = CliRunner().invoke(main, [str(model), "--policy", "names=hiden", "-q"])
    assert result.exit_code == 1
    assert "no value has the name 'hiden' (did you mean 'hidden'?); names there: hidden" in result.stderr
