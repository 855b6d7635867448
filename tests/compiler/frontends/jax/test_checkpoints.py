"""`jax.checkpoint` on the way in: the same values, and what its policy says is what is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import pytest
from jax import lax

import rematc
from rematc.compiler.frontends.jax.policies import AskedPolicy, policy_of
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.passes import policies
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
# JAX leaves it without annotations.
checkpoint_name: Any = jax.ad_checkpoint.checkpoint_name

X = jnp.asarray([[0.5, -1.2], [2.0, 0.3]], jnp.float32)
given = jax.checkpoint_policies


def layers(x: Any) -> Any:
    hidden = checkpoint_name(jnp.sin(x @ x), "hidden")
    return jnp.exp(checkpoint_name(hidden @ x, "out")).sum(1)


def saved(policy: Any, function: Callable[..., Any] = layers) -> list[str]:
    """Where the residuals that are no arguments come from, in the forward pass of a checkpoint under a policy."""
    region = from_jax(jax.checkpoint(function, policy=policy))
    rows = [row for row in rematc.saved_residuals(region, X) if not row.is_argument]
    return [row.label or row.provenance.split()[2] for row in rows]


BUILTIN: dict[str, Any] = {
    "everything": given.everything_saveable,
    "nothing": given.nothing_saveable,
    "dots": given.dots_saveable,
    "dots-no-batch": given.dots_with_no_batch_dims_saveable,
    "names=a,b": given.save_only_these_names("b", "a"),
    "any-names-but=a": given.save_any_names_but_these("a"),
    "offload-dots-no-batch": given.offload_dot_with_no_batch_dims("device", "pinned_host"),
    "names=a+offload=b": given.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"],
        names_which_can_be_offloaded=["b"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
    "dots+names=a": given.save_from_both_policies(given.dots_saveable, given.save_only_these_names("a")),
}


@pytest.mark.parametrize("spec", BUILTIN)
def test_policies_of_jax_become_ours(spec: str) -> None:
    found = policy_of(BUILTIN[spec])
    if spec == "dots+names=a" and isinstance(found, AskedPolicy):
        return  # jax 0.12 hides what it combined, where one of both saves nothing
    assert found == policies.parse_policy(spec)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "nothing": jax.checkpoint(layers),
    "dots": jax.checkpoint(layers, policy=given.dots_saveable, prevent_cse=False),
    "names": jax.checkpoint(layers, policy=given.save_only_these_names("out")),
    "asked": jax.checkpoint(layers, policy=lambda prim, *_, **__: prim.name == "sin"),
    "nested": jax.checkpoint(lambda x: jax.checkpoint(layers, policy=given.dots_saveable)(jnp.tanh(x))),
    "asked in asked": jax.checkpoint(
        lambda x: jax.checkpoint(layers, policy=lambda prim, *_, **__: prim.name == "exp")(jnp.tanh(x)),
        policy=lambda prim, *_, **__: prim.name == "tanh",
    ),
    "in a scan": lambda x: lax.scan(jax.checkpoint(lambda c, a: (jnp.sin(c * a), c)), x[0], x),
    "of a scan": jax.checkpoint(
        lambda x: lax.scan(lambda c, a: (jnp.sin(c * a), c), x[0], x), policy=lambda prim, *_, **__: prim.name == "cos"
    ),
    "of branches": jax.checkpoint(lambda x: lax.cond(x[0, 0] > 0, layers, lambda x: x[0], x)),
    "derivative": jax.grad(lambda x: jax.checkpoint(layers)(x).sum()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_gradients_and_batches_are_those_of_jax(name: str) -> None:
    assert_like_jax(PROGRAMS[name], X)


def test_a_callable_is_asked_with_the_primitive_and_its_parameters() -> None:
    asked: list[tuple[str, int, list[str]]] = []

    def policy(prim: Any, *avals: Any, **params: Any) -> bool:
        asked.append((prim.name, len(avals), sorted(params)))
        return False

    rematc.trace(from_jax(jax.checkpoint(lambda x: checkpoint_name(x @ x, "a"), policy=policy)), X)
    names = {name: (count, params) for name, count, params in asked}
    assert names["dot_general"][0] == 2
    assert "dimension_numbers" in names["dot_general"][1]
    assert names["name"] == (1, ["name"])


def test_what_a_callable_says_is_saved() -> None:
    assert saved(lambda prim, *_, **__: prim.name == "tanh", lambda x: jnp.tanh(jnp.exp(x))) == ["tanh"]
    assert saved(lambda prim, *_, **__: False) == []
    assert saved(lambda prim, *_, **params: params.get("name") == "hidden") == ["hidden"]


def test_a_callable_is_asked_about_what_derivatives_add() -> None:
    """The cosine is in the derivative alone."""
    assert saved(lambda prim, *_, **__: prim.name == "cos") == ["cosine"]


def test_a_parameter_called_as_the_callable_calls_the_primitive_is_left_out() -> None:
    policy = AskedPolicy(lambda prim, *_, **__: True, "policy", "@policy0")
    assert policy._ask(lax.sin_p, [], {"prim": 1}) == rematc.policies.SAVE


def test_another_answer_is_an_error_with_the_line() -> None:
    checkpoint: Any = jax.checkpoint
    function: Any = from_jax(checkpoint(jnp.sin, policy=lambda *_, **__: "yes"))
    with pytest.raises(CompileError, match="returned 'yes' for JAX's 'sin'") as caught:
        rematc.trace(function, X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize(("asked", "kept"), [(True, None), (False, False), ((True, False), (True, False))])
def test_prevent_cse_is_kept(asked: Any, kept: Any) -> None:
    function = jax.checkpoint(lambda x, y: jnp.sin(x) * y, prevent_cse=asked)
    graph = rematc.trace(from_jax(function), X, X)
    (region,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Checkpoint)]
    assert region.prevent_cse == kept


@pytest.mark.skipif(not hasattr(jax.config, "jax_remat3"), reason="this JAX has one implementation of checkpoint")
def test_regions_of_the_new_implementation_are_regions_with_their_policy() -> None:
    flag: Any = jax.config
    before = flag.jax_remat3
    flag.update("jax_remat3", True)
    try:
        function = jax.checkpoint(layers, policy=given.save_only_these_names("out"))
        graph = rematc.trace(from_jax(function), X)
        assert_like_jax(function, X, batched=False)
    finally:
        flag.update("jax_remat3", before)
    (region,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Checkpoint)]
    assert region.policy == policies.save_only_these_names("out")


def test_complex_values_are_saved() -> None:
    """JAX's own policies fail here: it reduces the precision of what they save, which complex numbers have not."""
    function = jax.checkpoint(lambda x: jnp.abs(jnp.exp(1j * x) @ x), policy=given.dots_saveable)
    graph = rematc.trace(rematc.grad(from_jax(lambda x: function(x).sum())), X)
    assert graph.result_types[0].shape == X.shape
