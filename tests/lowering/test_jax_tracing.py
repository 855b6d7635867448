"""What rematc.jax uses of JAX beyond its documented API: each use by itself, to say what broke when JAX moves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from rematc.lowering.jax_internals.jaxprs import captured_as_inputs
from rematc.lowering.jax_internals.keys import keys_of_words
from rematc.lowering.jax_internals.settings import trace_context
from rematc.lowering.jax_internals.shardings import varying_axes_of, with_varying_axes
from rematc.lowering.jax_internals.types import weakly_typed


def test_trace_context_tells_settings_apart() -> None:
    plain = trace_context()
    assert plain == trace_context()
    assert hash(plain) == hash(trace_context())
    with jax.enable_x64(True):
        assert trace_context() != plain


def test_captured_arrays_become_the_last_inputs() -> None:
    captured = jnp.arange(3.0)
    found: list[Any] = []

    def outer(w: Any) -> Any:
        jaxpr = jax.make_jaxpr(lambda x: x * w + captured)(captured)
        found.append(captured_as_inputs(jaxpr))
        closed, constants = found[0]
        return jaxpr_as_fun(closed)(captured + 1, *constants)[0]

    np.testing.assert_allclose(jax.jit(outer)(2.0), np.arange(3.0) + 2 * (np.arange(3.0) + 1))
    closed, constants = found[0]
    assert len(constants) == len(closed.jaxpr.invars) - 1 > 0
    assert not closed.consts


def test_keys_are_made_of_words() -> None:
    key = jax.random.key(7, impl="rbg")
    assert keys_of_words(jax.random.key_data(key), key.dtype) == key


def test_weak_types_can_be_given() -> None:
    assert weakly_typed(jnp.float32(1)).weak_type
    assert weakly_typed(jnp.float32(1)).dtype == np.float32


def test_values_say_along_which_axes_of_shard_map_they_differ() -> None:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    seen: list[Any] = []

    def body(x: Any, w: Any) -> Any:
        seen.extend(varying_axes_of(jax.typeof(value)) for value in (x, w))
        like = with_varying_axes(jax.core.ShapedArray((2, 2), np.float32), jax.typeof(x))
        seen.append(varying_axes_of(like))
        return x

    specs = jax.sharding.PartitionSpec("d"), jax.sharding.PartitionSpec()  # type: ignore[no-untyped-call]  # JAX
    jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=specs[0]))(jnp.ones(2), jnp.ones(2))
    assert seen == [{"d"}, frozenset(), {"d"}]
