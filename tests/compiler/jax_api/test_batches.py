"""Checkpoints under `jax.vmap`: policies are about what JAX's are about, and derivatives are JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc.jax

NO_BATCH = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
RANDOM = np.random.default_rng(0)
X, W = RANDOM.normal(size=(5, 3, 4)), RANDOM.normal(size=(5, 4, 4))
INDEX = np.arange(5) % 3

Function = Callable[..., Any]


def total(tree: Any) -> Any:
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(tree))


# -- what policies are asked about ---------------------------------------------------------------------------------


def asked_about(derivative: Callable[[Function], Function]) -> set[int]:
    """The ranks of the first factors of products that a policy is asked about."""
    ranks = set[int]()

    def policy(op: Any, operands: Sequence[Any], name: str | None) -> bool:
        if op.name == "dot_general":
            ranks.add(operands[0].rank)
        return False

    layer = rematc.jax.checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w), policy=policy)
    jax.make_jaxpr(derivative(layer))(W, X)
    return ranks


def grad_of_vmap(layer: Function) -> Function:
    return jax.grad(lambda w, x: total(jax.vmap(layer)(w, x)))


def vmap_of_grad(layer: Function) -> Function:
    return jax.vmap(jax.grad(lambda w, x: total(layer(w, x))))


def vmap_of_jvp(layer: Function) -> Function:
    return jax.vmap(lambda w, x: jax.jvp(layer, (w, x), (w, x)))


def grad_of_vmap_of_vmap(layer: Function) -> Function:
    return jax.grad(lambda w, x: total(jax.vmap(lambda x: jax.vmap(layer)(w, x))(jnp.stack([x, x]))))


def grad_of_vmap_of_grad_of_vmap(layer: Function) -> Function:
    """The inner derivative is of one batch, of which there are two."""
    inner = jax.grad(lambda w, x: total(jax.vmap(layer)(w, x)))
    return jax.grad(lambda w, x: total(jax.vmap(lambda x: inner(w, x))(jnp.stack([x, x]))))


def grad_of_vmap_of_scan(layer: Function) -> Function:
    def steps(w: Any, x: Any) -> Any:
        return lax.scan(lambda x, _: (layer(w, x), None), x, None, length=2)[0]

    return jax.grad(lambda w, x: total(jax.vmap(steps)(w, x)))


def grad_of_vmap_of_jit(layer: Function) -> Function:
    return jax.grad(lambda w, x: total(jax.vmap(jax.jit(layer))(w, x)))


def grad_of_vmap_of_cond(layer: Function) -> Function:
    def branch(w: Any, x: Any) -> Any:
        return lax.cond(w[0, 0, 0] > 0, jax.vmap(layer), lambda w, x: x, w, x)

    return jax.grad(lambda w, x: total(jax.vmap(branch, (None, 0))(w, jnp.stack([x, x]))))


def vmap_of_grad_of_scan(layer: Function) -> Function:
    """What is outside of the derivative reaches into the loop, too."""

    def steps(w: Any, x: Any) -> Any:
        return lax.scan(lambda x, _: (layer(w, x), None), x, None, length=2)[0]

    return jax.vmap(jax.grad(lambda w, x: total(steps(w, x))))


@pytest.mark.parametrize(
    ("derivative", "ranks"),
    [
        *[(grad_of_vmap, {3}), (vmap_of_grad, {2}), (vmap_of_jvp, {2}), (grad_of_vmap_of_vmap, {4})],
        *[(grad_of_vmap_of_scan, {3}), (grad_of_vmap_of_jit, {3}), (grad_of_vmap_of_cond, {4})],
        (vmap_of_grad_of_scan, {2}),
    ],
)
def test_policies_are_asked_about_batches_where_they_are_inside_of_the_derivative(
    derivative: Callable[[Function], Function], ranks: set[int]
) -> None:
    assert asked_about(derivative) == ranks


def test_a_batch_that_is_outside_of_one_derivative_and_inside_of_another_is_of_the_other_alone() -> None:
    assert asked_about(grad_of_vmap_of_grad_of_vmap) == {3, 4}


def test_functions_of_primitives_of_jax_are_asked_about_batches() -> None:
    ranks = set[int]()

    def policy(primitive: Any, *avals: Any, **params: Any) -> bool:
        if primitive is lax.dot_general_p:
            ranks.add(avals[0].ndim)
        return True

    layer = rematc.jax.checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w), policy=policy)
    jax.make_jaxpr(grad_of_vmap_of_scan(layer))(W, X)
    assert ranks == {3}


def test_products_of_two_batches_are_not_saved_as_products_without_batches() -> None:
    def temporary(checkpoint: Function) -> int:
        layer = checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w), policy=NO_BATCH)

        def loss(w: Any, x: Any) -> Any:
            return jnp.sum(jax.vmap(lambda w, x: layer(w, layer(w, layer(w, layer(w, x)))))(w, x))

        compiled = jax.jit(jax.grad(loss)).lower(jnp.ones((8, 8, 8)), jnp.ones((8, 4096, 8))).compile()
        return int(compiled.memory_analysis().temp_size_in_bytes)  # type: ignore[union-attr]  # CPUs have it

    assert temporary(rematc.jax.checkpoint) <= 1.1 * temporary(jax.checkpoint)


# -- derivatives ---------------------------------------------------------------------------------------------------


def of_shared_weights(checkpoint: Function, w: Any, x: Any) -> Any:
    return jax.vmap(checkpoint(lambda w, x: jnp.tanh(x @ w) @ w.T, policy=NO_BATCH), (None, 0))(w[0], x)


def along_other_axes(checkpoint: Function, w: Any, x: Any) -> Any:
    layer = checkpoint(lambda w, x: jnp.tanh(x @ w), policy=NO_BATCH)
    return jax.vmap(layer, (2, 1), out_axes=1)(jnp.moveaxis(w, 0, 2), jnp.moveaxis(x, 0, 1))


def of_two_batches(checkpoint: Function, w: Any, x: Any) -> Any:
    layer = checkpoint(lambda w, x: jnp.tanh(x @ w), policy=NO_BATCH)
    return jax.vmap(lambda w: jax.vmap(lambda x: layer(w, x))(x))(w)


def of_a_derivative_of_a_batch(checkpoint: Function, w: Any, x: Any) -> Any:
    layer = checkpoint(lambda w, x: jnp.tanh(x @ w), policy=NO_BATCH)
    inner = jax.grad(lambda w, x: total(jax.vmap(layer)(w, x)))
    return jax.vmap(lambda x: inner(w, x))(jnp.stack([x, 2 * x]))


def of_indices_and_constants(checkpoint: Function, w: Any, x: Any) -> Any:
    """With integers, results that the batch does not reach, and some without a derivative."""
    layer = checkpoint(lambda w, x, i: (x[i] @ w, w @ w, jnp.argmax(x), 2.0), policy=NO_BATCH)
    return jax.vmap(layer, (None, 0, 0), out_axes=(0, None, 0, 0))(w[0], x, INDEX)


def of_keys(checkpoint: Function, w: Any, x: Any) -> Any:
    drop = checkpoint(lambda w, x, key: (x @ w) * jax.random.bernoulli(key, 0.5, (3, 4)), policy=NO_BATCH)
    return jax.vmap(drop)(w, x, jax.random.split(jax.random.key(0), 5))


def of_what_is_captured(checkpoint: Function, w: Any, x: Any) -> Any:
    return jax.vmap(lambda w, x: checkpoint(lambda x: jnp.tanh(x @ w), policy=NO_BATCH)(x))(w, x)


def in_a_loop(checkpoint: Function, w: Any, x: Any) -> Any:
    layer = checkpoint(lambda w, x: jnp.tanh(x @ w), policy=NO_BATCH)
    return jax.vmap(lambda w, x: lax.scan(lambda x, _: (layer(w, x), x.sum()), x, None, length=3))(w, x)


def in_a_compiled_function(checkpoint: Function, w: Any, x: Any) -> Any:
    return jax.vmap(jax.jit(checkpoint(lambda w, x: (jnp.tanh(x @ w), x.sum()), policy=NO_BATCH)))(w, x)


def with_a_constant_of_the_batch(checkpoint: Function, w: Any, x: Any) -> Any:
    """Which its rule for batches brings along."""

    @jax.custom_batching.custom_vmap
    def own(x: Any) -> Any:
        return jnp.sin(x)

    @own.def_vmap
    def rule(size: int, is_batched: Any, x: Any) -> Any:
        return jnp.sin(x) + 0 * jnp.asarray(W)[:1, :1], True

    layer = checkpoint(lambda w, x: own(x @ w), policy=NO_BATCH)
    return jax.vmap(layer)(w, x)


def of_what_is_not_used(checkpoint: Function, w: Any, x: Any) -> Any:
    """A result of a loop's steps, and with it an argument of the checkpoint."""
    layer = checkpoint(lambda w, x, y: (jnp.tanh(x @ w), y * y), policy=NO_BATCH)

    def step(x: Any, y: Any) -> Any:
        x, _ = layer(w[0], x, y)
        return x, None

    return jax.vmap(lambda x: lax.scan(step, x, jnp.stack([x, x]))[0])(x)


def over_an_axis(checkpoint: Function, w: Any, x: Any) -> Any:
    psum: Function = lax.psum
    return jax.vmap(checkpoint(lambda x: psum(x @ w[0], "i") * x, policy=NO_BATCH), axis_name="i")(x)


def of_a_solution(checkpoint: Function, w: Any, x: Any) -> Any:
    """Which has a rule of JAX's own for each further derivative."""
    return jax.vmap(checkpoint(lambda w, x: jnp.linalg.solve(w + 5 * jnp.eye(4), x.T)))(w, x)


FUNCTIONS = (
    *(of_shared_weights, along_other_axes, of_two_batches, of_a_derivative_of_a_batch, of_indices_and_constants),
    *(of_keys, of_what_is_captured, in_a_loop, in_a_compiled_function, with_a_constant_of_the_batch),
    *(of_what_is_not_used, over_an_axis, of_a_solution),
)


def derivatives(of: Callable[[Any, Any], Any]) -> dict[str, Callable[[], Any]]:
    first = jax.grad(of, (0, 1))
    return {
        "grad": lambda: jax.jit(first)(W, X),
        "jvp of grad": lambda: jax.jvp(first, (W, X), (W, X))[1],
        "vmap of grad": lambda: jax.vmap(first, (None, 0))(W, jnp.stack([X, 2 * X])),
        "jvp": lambda: jax.jvp(of, (W, X), (W, X))[1],
    }


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", derivatives(lambda w, x: w))
def test_derivatives_are_those_of_jax(function: Function, kind: str) -> None:
    def of(checkpoint: Function) -> Sequence[Any]:
        return jax.tree.leaves(derivatives(lambda w, x: total(function(checkpoint, w, x)))[kind]())

    with jax.enable_x64(True):
        for found, expected in zip(of(rematc.jax.checkpoint), of(jax.checkpoint), strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_functions_of_others_are_batched_by_jax(method: str, outside: bool) -> None:
    """They are called with what JAX calls them with."""

    def called_with(checkpoint: Function) -> tuple[Any, set[tuple[Any, ...]]]:
        shapes = set[tuple[Any, ...]]()

        def scaled(x: Any, w: Any) -> Any:
            shapes.add((np.shape(x), np.shape(w)))
            return np.asarray(x) * np.asarray(w).flat[0]

        def layer(x: Any) -> Any:
            kind = jax.ShapeDtypeStruct(x.shape, x.dtype)  # type: ignore[no-untyped-call]  # jax
            return x * jax.pure_callback(scaled, kind, lax.stop_gradient(x), jnp.float32(2), vmap_method=method)

        checkpointed = checkpoint(layer)
        if outside:
            found = jax.vmap(jax.grad(lambda x: jnp.sum(checkpointed(x))))(X)
        else:
            found = jax.grad(lambda x: jnp.sum(jax.vmap(checkpointed)(x)))(X)
        return found, shapes

    (found, shapes), (expected, by_jax) = called_with(rematc.jax.checkpoint), called_with(jax.checkpoint)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert shapes == by_jax


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all"])
def test_foreign_calls_are_of_the_whole_batch(method: str) -> None:
    def layer(w: Any, x: Any) -> Any:
        kind = jax.ShapeDtypeStruct(x.shape, x.dtype)  # type: ignore[no-untyped-call]  # jax
        return jnp.tanh(x @ w) * jax.ffi.ffi_call("nothing", kind, vmap_method=method)(lax.stop_gradient(x))

    def calls(checkpoint: Function) -> tuple[int, int]:
        layers = jax.vmap(checkpoint(layer), (None, 0))
        lowered = jax.jit(jax.grad(lambda w, x: jnp.sum(layers(w, x)))).lower(W[0], X)
        return lowered.as_text().count("custom_call @nothing"), lowered.as_text().count("stablehlo.while")

    assert calls(rematc.jax.checkpoint) == calls(jax.checkpoint)
