"""`rematc.jax.checkpoint` in the place of `jax.checkpoint`: what JAX computes, and what it saves."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax

#: Any: what is given lambdas, whose types cannot be inferred, and what JAX leaves without annotations.
rjax: Any = rematc.jax
checkpoint_name: Any = rematc.jax.checkpoint_name
lax: Any = jax.lax
X = jnp.linspace(0.1, 1.2, 6).reshape(2, 3)
W = jnp.linspace(-1, 1, 9).reshape(3, 3)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w) + jax.nn.relu(x)


def loss(w: Any, x: Any, layer: Callable[..., Any] = layer) -> Any:
    return jnp.sum(layer(w, layer(w, x)) ** 2)


def two(x: Any) -> Any:
    """A loss that does not depend on its argument."""
    return jnp.sum(jnp.full_like(x, 2))


def backward(function: Callable[..., Any], *args: Any) -> str:
    """JAX's text of the backward pass."""
    out, pull = jax.vjp(function, *args)
    return str(jax.make_jaxpr(pull)(out))


def residuals(function: Callable[..., Any], *args: Any) -> list[tuple[int, ...]]:
    """The shapes of what JAX saves for the backward pass."""
    return [leaf.shape for leaf in jax.tree.leaves(jax.vjp(function, *args)[1]) if hasattr(leaf, "shape")]


POLICIES: dict[str, Any] = {
    "default": None,
    "name": "dots",
    "everything": "everything",
    "least": "auto",
    "ours": rematc.policies.dots_with_no_batch_dims_saveable,
    "jax's": jax.checkpoint_policies.dots_saveable,
    "jax's names": jax.checkpoint_policies.save_only_these_names("a"),
    "a user's, of primitives": lambda prim, *_, **__: str(prim) == "tanh",
    "a user's, of ops": lambda op, types, name: op.name == "tanh",
}


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_those_without_it(name: str) -> None:
    checkpointed = rjax.checkpoint(layer, policy=POLICIES[name])
    expected = jax.jit(jax.value_and_grad(loss, (0, 1)))(W, X)
    found = jax.jit(jax.value_and_grad(lambda w, x: loss(w, x, checkpointed), (0, 1)))(W, X)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), found, expected)


def test_both_modes_batches_and_second_derivatives() -> None:
    checkpointed = rjax.checkpoint(loss)
    np.testing.assert_allclose(jax.jvp(checkpointed, (W, X), (W, X))[1], jax.jvp(loss, (W, X), (W, X))[1], rtol=1e-5)
    batch = jnp.stack([X, X + 1])
    np.testing.assert_allclose(
        jax.vmap(jax.grad(checkpointed), (None, 0))(W, batch), jax.vmap(jax.grad(loss), (None, 0))(W, batch), rtol=1e-5
    )
    found, expected = (jax.jit(jax.hessian(one, 1))(W, X) for one in (checkpointed, loss))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_in_a_scan_jax_stacks_the_residuals_of_the_policy() -> None:
    ws = jnp.stack([W, W / 2])

    def run(ws: Any, checkpointed: Callable[..., Any]) -> Any:
        return jnp.sum(jax.lax.scan(lambda x, w: (checkpointed(w, x), None), X, ws)[0] ** 2)

    expected = jax.grad(run)(ws, layer)
    for policy, count in ((None, 0), ("dots", 1)):
        taken = functools.partial(run, checkpointed=rjax.checkpoint(layer, policy=policy))
        np.testing.assert_allclose(jax.jit(jax.grad(taken))(ws), expected, rtol=1e-5)
        # Beside the carries that enter the steps, which are saved anyway.
        assert residuals(taken, ws).count((2, 2, 3)) == 1 + count


def test_names_decide_what_is_saved() -> None:
    def function(x: Any) -> Any:
        y = checkpoint_name(jnp.exp(x), "y")
        z = checkpoint_name(jnp.exp(y * x), "z")
        return jnp.sum(jnp.sin(z) * y)

    policies = jax.checkpoint_policies
    for policy, again in (
        (policies.save_only_these_names("y", "z"), 0),
        (policies.save_only_these_names("z"), 1),
        (policies.save_any_names_but_these("y"), 1),
        (policies.save_any_names_but_these("y", "z"), 2),
        ("names=y,z", 0),
        ("names=y", 1),
    ):
        assert backward(rjax.checkpoint(function, policy=policy), X).count(" exp ") == again


def test_a_saved_value_serves_whoever_reads_it_by_another_name() -> None:
    def function(x: Any) -> Any:
        e = jnp.exp(x)
        return jnp.sum(jnp.sin(checkpoint_name(e, "e")) + jnp.cos(e))

    assert backward(rjax.checkpoint(function, policy="names=e"), X).count(" exp ") == 0


def test_is_traced_and_compiled_once() -> None:
    count = 0

    @rjax.checkpoint  # type: ignore[untyped-decorator]  # Any, as said
    def function(x: Any) -> Any:
        nonlocal count
        count += 1
        return jnp.sin(x)

    for _ in range(5):
        jax.grad(lambda x: jnp.sum(function(x)))(X)
    assert count == 1
    function(X[0])
    assert count == 2


def test_what_is_computed_again_is_marked() -> None:
    function = rjax.checkpoint(lambda x: jnp.sum(jnp.sin(jnp.sin(x))))
    text = jax.jit(jax.grad(function)).lower(X).as_text(debug_info=True)
    assert "rematted_computation" in text
    assert text.count("stablehlo.optimization_barrier") == 1


def test_residuals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="rematc.residuals"):
        jax.grad(rjax.checkpoint(lambda x: jnp.sum(jnp.sin(jnp.cos(x))), policy="everything"))(X)
    assert "saves for its backward pass" in caplog.text
    assert "cosine" in caplog.text


def test_nested_checkpoints_compute_again_within_each_other() -> None:
    """Of sin(sin(x)), the inner sine twice: for the outer region's recomputation, and as the input of the cosine."""
    inner = rjax.checkpoint(jnp.sin)
    outer = rjax.checkpoint(lambda x: jnp.sum(jnp.sin(inner(x))))
    text = backward(outer, X)
    assert (text.count(" sin "), text.count(" cos ")) == (1, 2)


def test_saved_values_are_those_of_the_forward_pass() -> None:
    """XLA computes in float32 inside of fusions; a saved bfloat16 is rounded before the forward pass reads it, too."""
    function = rjax.checkpoint(lambda x: jnp.sum(jnp.sin(x @ x).astype(jnp.float32)), policy="dots")
    text = str(jax.make_jaxpr(lambda x: jax.vjp(function, x)[0])(W.astype(jnp.bfloat16)))
    product, rounding, sine = (text.index(f" {name}") for name in ("dot_general", "reduce_precision", "sin "))
    assert product < rounding < sine


def test_cotangents_have_the_type_of_their_primals() -> None:
    """Whatever a rule gives for them."""

    @jax.custom_vjp
    def widened(x: Any) -> Any:
        return x.astype(jnp.float32)

    widened.defvjp(lambda x: (widened(x), x), lambda x, _: (2 * x.astype(jnp.float32),))
    x = X.astype(jnp.bfloat16)
    found = jax.grad(rjax.checkpoint(lambda x: jnp.sum(widened(x))))(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, 2 * x)


def _rule_calls_itself() -> Callable[..., Any]:
    function = jax.custom_vjp(lambda x: checkpoint_name(x @ x, "product"))
    function.defvjp(lambda x: (function(x), None), lambda _, ct: (ct,))
    return function


def _rule_computes() -> Callable[..., Any]:
    function = jax.custom_vjp(lambda x: x @ x)
    function.defvjp(lambda x: (x @ x, checkpoint_name(jnp.sin(x) @ x, "product")), lambda kept, ct: (ct * kept,))
    return function


@pytest.mark.parametrize("make", [_rule_calls_itself, _rule_computes])
@pytest.mark.parametrize("name", ["dots", "product"])
def test_policies_see_of_rules_what_those_of_jax_see(make: Callable[[], Callable[..., Any]], name: str) -> None:
    function, given = make(), jax.checkpoint_policies
    policy = given.dots_saveable if name == "dots" else given.save_only_these_names(name)
    products = [
        backward(checkpoint(lambda x: jnp.sin(function(x)), policy=policy), jnp.eye(2)).count("dot_general")
        for checkpoint in (rjax.checkpoint, jax.checkpoint)
    ]
    assert products[0] == products[1]


def test_static_arguments_by_position_name_and_keyword() -> None:
    @functools.partial(rjax.checkpoint, static_argnums=(1,), static_argnames=("mode",))
    def function(x: Any, names: list[str], *, mode: str = "sin") -> Any:
        return getattr(jnp, mode)(x) * len(names)

    np.testing.assert_allclose(jax.grad(function)(1.0, ["a", "b"]), 2 * np.cos(1.0), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: function(x, names=["a"]))(1.0), np.cos(1.0), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: function(x, [""], mode="cos"))(1.0), -np.sin(1.0), rtol=1e-6)


def test_trees_keys_weak_types_and_float0() -> None:
    def function(tree: dict[str, Any], key: Any) -> Any:
        noise = jax.random.normal(key, tree["a"].shape)
        return jnp.sum(jnp.sin(tree["a"] * noise)), jax.random.split(key)[1]

    tree, key = {"a": X, "none": None}, jax.random.key(3)
    checkpointed = rjax.checkpoint(function)
    found, following = jax.jit(jax.grad(checkpointed, has_aux=True))(tree, key)
    expected, wanted = jax.jit(jax.grad(function, has_aux=True))(tree, key)
    np.testing.assert_allclose(found["a"], expected["a"], rtol=1e-5)
    assert found["none"] is None
    assert following == wanted

    value, pull = jax.vjp(rjax.checkpoint(lambda x, i: x * i), 2.0, 3)
    assert value.weak_type
    assert pull(jnp.float32(1))[1].dtype == jax.dtypes.float0


@pytest.mark.parametrize(
    "function", [lambda x: jnp.ones(3), lambda x: np.ones(3, np.float32), lambda x: rjax.grad(two)(x[0])]
)
def test_results_that_depend_on_nothing_are_arrays(function: Any) -> None:
    checkpointed = rjax.checkpoint(function)

    def picked(x: Any, index: Any) -> Any:
        given = checkpointed(x)
        assert isinstance(given, jax.Array)
        return given.at[index].add(x[0, 0])[index]

    places = jnp.arange(3)
    expected = function(X)[0] + X[0, 0]
    for found in (
        picked(X, 0),
        jax.value_and_grad(picked)(X, 0)[0],
        jax.jit(jax.value_and_grad(picked))(X, 0)[0],
        jax.vmap(picked, (None, 0))(X, places)[1],
        lax.scan(lambda carry, index: (picked(X, index), None), expected, places)[0],
    ):
        assert found == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_element_types_are_kept(dtype: str) -> None:
    def function(x: Any) -> Any:
        return jnp.sum(jnp.abs(jnp.sin(x) * x))

    x = X.astype(dtype)
    found, expected = jax.grad(rjax.checkpoint(function))(x), jax.grad(function)(x)
    assert found.dtype == expected.dtype
    tolerance = 2e-2 if found.dtype.itemsize == 2 else 1e-5
    np.testing.assert_allclose(
        np.asarray(found, np.complex128), np.asarray(expected, np.complex128), tolerance, tolerance
    )


def test_double_precision() -> None:
    with jax.enable_x64(True):
        x = np.asarray(X, np.float64)
        found = jax.grad(rjax.checkpoint(lambda x: jnp.sum(jnp.sin(x) @ x.T)))(x)
        expected = jax.grad(lambda x: jnp.sum(jnp.sin(x) @ x.T))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_prevent_cse_says_what_the_barrier_holds() -> None:
    def function(a: Any, b: Any) -> Any:
        return jnp.sum(jnp.sin(a) * jnp.sin(b["c"]))

    def barriers(prevent_cse: object) -> list[int]:
        gradient = jax.grad(rjax.checkpoint(function, prevent_cse=prevent_cse))
        text = jax.jit(gradient).lower(X, {"c": X + 1}).as_text()
        lines = [line for line in text.splitlines() if "optimization_barrier" in line]
        return [line.split(" : ")[0].count("%") - 1 for line in lines]

    assert barriers(True) == [3]  # both arguments, and the cotangent
    assert barriers((True, False)) == [2]
    assert barriers((False, {"c": True})) == [2]
    assert barriers(False) == []


def test_recomputation_holds_in_a_program_that_jax_compiles() -> None:
    # XLA drops barriers on the CPU before jaxlib 0.12, and merges what stood behind them with the forward evaluation.
    def block(w: Any, x: Any) -> Any:
        return x + jax.nn.silu(x @ w) @ w

    def chain(block: Callable[..., Any]) -> Any:
        return jax.jit(
            jax.value_and_grad(lambda w, x: jnp.sum(functools.reduce(lambda x, _: block(w, x), range(6), x)))
        )

    w, x = jnp.full((64, 64), 1e-3), jnp.ones((2048, 64))
    plain, ours = chain(block), chain(rjax.checkpoint(block))
    kept, recomputed = (f.lower(w, x).compile().memory_analysis().temp_size_in_bytes for f in (plain, ours))
    assert recomputed < 0.6 * kept
    np.testing.assert_array_equal(plain(w, x)[1], ours(w, x)[1])


def test_segments_save_what_crosses_them() -> None:
    def deep(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.sin(jnp.tanh(x @ w) * 2)
        return jnp.sum(x)

    ws, x = [jnp.eye(64)] * 12, jnp.ones((64, 64))
    whole, cut = (rjax.checkpoint(deep, segments=is_set) for is_set in (False, True))
    np.testing.assert_allclose(jax.grad(cut)(ws, x)[0], jax.grad(deep)(ws, x)[0], rtol=1e-5, atol=1e-6)
    assert backward(whole, ws, x).count("remat2[") == 1
    assert backward(cut, ws, x).count("remat2[") > 1


def test_what_cannot_be_imported_is_an_error_at_its_line() -> None:
    def function(x: Any) -> Any:
        return lax.pbroadcast(x, "i", 0)

    with pytest.raises(rematc.CompileError, match="'pbroadcast' has no import rule") as caught:
        jax.vmap(jax.grad(lambda x: jnp.sum(rjax.checkpoint(function)(x))), axis_name="i")(X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(rematc.CompileError, match="takes a function"):
        rjax.checkpoint(3)
    with pytest.raises(rematc.CompileError, match="prevent_cse"):
        rjax.checkpoint(layer, prevent_cse=(True,))(W, X)
    with pytest.raises(rematc.CompileError, match="unknown policy"):
        rjax.checkpoint(layer, policy="dotz")


def test_places_that_several_updates_replace() -> None:
    def replaced(x: Any) -> Any:
        return jnp.sin((x[0, :, None] * x[0]).at[jnp.array([0, 0]), 1].set(x[1, :2] ** 2)).sum()

    expected = jax.grad(replaced)(X)
    np.testing.assert_allclose(jax.grad(rjax.checkpoint(replaced))(X), expected, rtol=1e-5)
    batched = jax.vmap(jax.grad(rjax.checkpoint(replaced)))(jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(batched[0], expected, rtol=1e-5)


def chain(ws: Any, x: Any) -> Any:
    for w in ws:
        hidden = x @ w
        x = x + hidden / (1 + jnp.exp(-hidden)) * jnp.tanh(hidden)
    return jnp.mean(x * x)


CHAIN = [jnp.full((64, 64), 1e-2)] * 8, jnp.linspace(-1, 1, 512 * 64).reshape(512, 64)


def temporary(step: Callable[..., Any], *args: Any) -> int:
    found = rjax.jit(step).lower(*args).compile().memory_analysis()
    assert found is not None
    return int(found.temp_size_in_bytes)


@pytest.mark.parametrize("policy", [None, "dots", "auto"])
@pytest.mark.parametrize("differentiate", [jax.grad, lambda f: lambda ws, x: jax.vjp(f, ws, x)[1](1.0)[0]])
def test_a_loss_that_jax_differentiates_is_cut(policy: str | None, differentiate: Any) -> None:
    """Memory as with the policy on the whole; the gradient is JAX's."""
    step = differentiate(rjax.checkpoint(chain, policy=policy))
    expected = temporary(rjax.grad(chain, policy=policy or "nothing"), *CHAIN)
    assert temporary(step, *CHAIN) <= 1.1 * expected < 0.8 * temporary(jax.grad(chain), *CHAIN)
    for found, theirs in zip(step(*CHAIN), jax.grad(chain)(*CHAIN), strict=True):
        np.testing.assert_allclose(found, theirs, rtol=1e-4, atol=1e-6)


def test_what_is_a_part_of_what_jax_differentiates_is_not_cut() -> None:
    """In a loop each step would save what crosses; of several losses each would."""
    region = rjax.checkpoint(chain)

    def looped(ws: Any, x: Any) -> Any:
        return lax.scan(lambda c, _: (c + region(ws, x), None), 0.0, None, length=4)[0]

    assert backward(region, *CHAIN).count("remat2[") > 1
    assert backward(rjax.checkpoint(chain, segments=False), *CHAIN).count("remat2[") == 1
    assert backward(rjax.checkpoint(chain, prevent_cse=False), *CHAIN).count("remat2[") == 1
    assert backward(looped, *CHAIN).count("remat2[") == 1
    assert backward(jax.jit(region), *CHAIN).count("remat2[") == 1
    assert (
        backward(lambda ws, x: jnp.sum(rjax.checkpoint(lambda ws, x: chain(ws, x) * x)(ws, x)), *CHAIN).count("remat2[")
        == 1
    )
    first, both = (
        backward(lambda ws, x, n=n: sum(region(ws, x * i) for i in range(n)), *CHAIN).count("remat2[") for n in (1, 3)
    )
    assert both == first + 2
