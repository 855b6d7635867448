"""`rematc.jax.checkpoint` of what is more than a function of arrays: JAX differentiates it, under the same policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import rematc
import rematc.jax

rjax: Any = rematc.jax
lax: Any = jax.lax
checkpoint_name: Any = rematc.jax.checkpoint_name
partition: Any = PartitionSpec
X = jnp.linspace(0.1, 1.2, 9).reshape(3, 3)


def one_device() -> jax.sharding.Mesh:
    return jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))


def over_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    mapped: Callable[..., Any] = jax.shard_map(
        function, mesh=one_device(), in_specs=partition("devices"), out_specs=partition("devices")
    )
    return mapped


def residuals(function: Callable[..., Any], *args: Any) -> int:
    """How many arrays JAX saves for the backward pass."""
    return len(jax.tree.leaves(jax.vjp(function, *args)[1]))


def product_and_sine(x: Any) -> Any:
    return jnp.sin(checkpoint_name(jnp.sin(x), "sine") @ x)


@pytest.mark.parametrize(
    ("policy", "same"),
    [
        (None, None),
        ("dots", jax.checkpoint_policies.dots_saveable),
        ("everything", jax.checkpoint_policies.everything_saveable),
        (rematc.policies.save_only_these_names("sine"), jax.checkpoint_policies.save_only_these_names("sine")),
        (lambda op, types, name: op.name == "sine", lambda prim, *_, **__: prim.name == "sin"),
    ],
    ids=["nothing", "dots", "everything", "names", "of ops"],
)
def test_policies_of_ours_decide_as_those_of_jax(policy: Any, same: Any) -> None:
    function = over_devices(product_and_sine)
    ours, theirs = rjax.checkpoint(function, policy=policy), jax.checkpoint(function, policy=same)
    found, expected = (jax.jit(jax.grad(lambda x, f=f: f(x).sum()))(X) for f in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert residuals(ours, X) == residuals(theirs, X)


def test_references_that_the_function_makes_takes_and_closes_over() -> None:
    outside = jax.new_ref(jnp.zeros(()))

    def function(x: Any, given: Any) -> Any:
        own = jax.new_ref(x)
        own[...] = jnp.sin(own[...])
        given[...] += 1.0
        outside[...] += 2.0
        return own[...] * 3

    def gradient(function: Callable[..., Any]) -> tuple[Any, Any]:
        given = jax.new_ref(jnp.zeros(()))
        return jax.grad(lambda x: function(x, given))(0.5), given[...]

    found, counted = gradient(rjax.checkpoint(function))
    expected, also = gradient(jax.checkpoint(function))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert counted == also
    assert outside[...] == 2 * 2 * counted


def test_a_part_of_a_reference_is_an_argument() -> None:
    @jax.jit
    def function() -> Any:
        whole = jax.new_ref(jnp.zeros(4))
        rjax.checkpoint(lambda part: part.__setitem__(..., jnp.ones_like(part)))(whole.at[1:3])
        return whole[...]

    np.testing.assert_array_equal(function(), [0, 1, 1, 0])


def test_what_is_printed_is_printed_as_often_as_by_jax(capfd: pytest.CaptureFixture[str]) -> None:
    def printed(checkpoint: Callable[..., Any]) -> str:
        def function(x: Any) -> Any:
            jax.debug.print("x is {}", x)
            return jnp.sin(x)

        jax.block_until_ready(jax.grad(checkpoint(function))(0.5))  # type: ignore[no-untyped-call]  # JAX's
        jax.effects_barrier()  # type: ignore[no-untyped-call]  # as above
        return capfd.readouterr().out

    assert printed(rjax.checkpoint) == printed(jax.checkpoint) != ""


def test_what_is_remembered_holds_no_values_of_a_call() -> None:
    function = rjax.checkpoint(over_devices(jnp.sin))
    with jax.checking_leaks():
        np.testing.assert_allclose(jax.jit(lambda x: function(x) + 1)(X), jnp.sin(X) + 1, rtol=1e-6)


def test_sums_over_devices_of_a_rule_keep_their_types() -> None:
    @jax.custom_vjp
    def summed(x: Any) -> Any:
        return jnp.tan(x)

    summed.defvjp(lambda x: (lax.psum(x, "devices"), x), lambda x, ct: (jnp.cos(x) * ct,))

    def gradient(checkpoint: Callable[..., Any]) -> Any:
        mapped: Any = jax.shard_map(
            lambda x: checkpoint(summed)(x) ** 2, mesh=one_device(), in_specs=partition(), out_specs=partition()
        )
        return jax.grad(lambda x: mapped(x).sum())(X)

    np.testing.assert_allclose(gradient(rjax.checkpoint), gradient(jax.checkpoint), rtol=1e-6)


def test_types_that_say_how_arrays_lie_over_devices_are_kept() -> None:
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Explicit,))

    def product(x: Any) -> Any:
        return jnp.sin(jnp.dot(x, x.T, out_sharding=partition("devices")))

    with jax.set_mesh(mesh):
        x = jax.device_put(X, partition(None, "devices"))
        gradients = [
            jax.jit(jax.grad(lambda x, f=f: f(x).sum()))(x) for f in (rjax.checkpoint(product), jax.checkpoint(product))
        ]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-6)
    assert jax.typeof(gradients[0]) == jax.typeof(gradients[1]) == jax.typeof(x)


def test_there_are_no_segments_of_it() -> None:
    with pytest.raises(rematc.CompileError, match="into segments: it maps over devices"):
        rjax.checkpoint(over_devices(jnp.sin), segments=True)(X)


def test_what_has_no_values_is_saved_with_everything(capfd: pytest.CaptureFixture[str]) -> None:
    """A print is not made again; where JAX checks its own programs, it would fail over one that is half saved."""

    def layer(x: Any) -> Any:
        y = jnp.sin(x)
        jax.debug.print("y is {}", y)
        return jnp.exp(y)

    def printed(checkpoint: Callable[..., Any], policy: Any) -> tuple[Any, int]:
        with jax.enable_checks(True):
            found = jax.grad(checkpoint(layer, policy=policy))(1.0)
        jax.effects_barrier()  # type: ignore[no-untyped-call]  # jax
        return found, capfd.readouterr().out.count("y is ")

    found, count = printed(rematc.jax.checkpoint, "everything")
    expected, by_jax = printed(jax.checkpoint, jax.checkpoint_policies.everything_saveable)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert count == by_jax == 1
