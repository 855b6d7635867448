"""What models do, on a mesh as `jax.make_mesh` makes it: all types say where values lie. JAX beside it is the law.

Eight devices of the host's have to be asked for before JAX starts, so one other process runs all of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support.many_devices import said_by

PROGRAM = r"""
import json
import jax, jax.numpy as jnp, numpy as np, rematc, rematc.jax as rjax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
random = np.random.default_rng(0)
BATCH = P("data", None, None)

def put(*shape, spec=P()):
    return jax.device_put(random.normal(size=shape), NamedSharding(mesh, spec))

def keep(key):
    return jax.random.bernoulli(key, 0.7, (8, 16, 32), out_sharding=BATCH)

def dropout(x, w):
    return jnp.sum(jnp.where(keep(jax.random.key(1)), jnp.tanh(x @ w), 0) ** 2)

def dropout_in_loop(x, w):
    step = lambda x, key: (jnp.where(keep(key), jnp.tanh(x @ w), 0), None)
    return jnp.sum(lax.scan(step, x, jax.random.split(jax.random.key(0), 3))[0] ** 2)

def keys_of_devices(x, w):
    keys = jax.reshard(jax.random.split(jax.random.key(0), 8), P("data"))
    return jnp.sum(jnp.tanh(x @ w) * jax.vmap(lambda key: jax.random.normal(key, (16, 32)))(keys))

def looked_up(x, w):
    tokens = jnp.argmax(lax.stop_gradient(x), axis=-1)
    return jnp.sum(jnp.tanh(w.at[tokens].get(out_sharding=BATCH)) * x)

def shifted(x, w):
    logits = jax.nn.log_softmax((x @ w)[:, :-1])
    return jnp.sum(logits * jax.nn.one_hot(jnp.argmax(x[:, 1:], axis=-1), 32))

def joined(x, w):
    wide = jnp.concatenate([jnp.flip(x @ w, 1), x], axis=-1)
    return jnp.sum(jnp.tanh(jnp.pad(wide, ((0, 0), (1, 1), (0, 0)))[:, 2:, 8:40] - x) ** 2)

def run_through(x, w):
    combine = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
    return jnp.sum(lax.associative_scan(combine, (jax.nn.sigmoid(x @ w), x), axis=1)[1] ** 2)

def attended(x, w):
    heads = (x @ w).reshape(8, 16, 4, 8)
    scores = jnp.where(jnp.tri(16, dtype=bool), jnp.einsum("bshd,bthd->bhst", heads, heads) / 9, -jnp.inf)
    return jnp.sum(jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores), heads) ** 2)

def transformed(x, w):
    return jnp.sum(jnp.fft.irfft(jnp.fft.rfft(x, axis=1) * jnp.fft.rfft(x @ w, axis=1), axis=1) ** 2)

def over_devices(x, w):
    inside = lambda x, w: lax.psum(jnp.tanh(x @ w), "model")
    return jnp.sum(jax.shard_map(inside, in_specs=(P("data"), P()), out_specs=P("data"))(x, w) ** 2)

def in_parallel(x, w):
    wide = jnp.tanh(jnp.einsum("bte,ef->btf", x, w, out_sharding=P("data", None, "model")))
    return jnp.sum(jnp.einsum("btf,ef->bte", wide, w, out_sharding=BATCH) ** 2)

def difference(found, expected):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / np.max(np.abs(np.asarray(b)))) for a, b in pairs)

def ways(function):
    both = (0, 1)
    yield "value_and_grad", lambda x, w: jax.jit(rjax.value_and_grad(function, both, policy="nothing"))(x, w)
    yield "checkpoint", lambda x, w: jax.jit(jax.value_and_grad(rjax.checkpoint(function, policy="dots"), both))(x, w)
    yield "budget", lambda x, w: rjax.jit(jax.value_and_grad(function, both), budget="4MiB")(x, w)
    own = rematc.value_and_grad(rematc.from_jax(function), argnums=both, policy="nothing")
    yield "compile", lambda x, w: rematc.compile(own, x, w)(x, w)

def twice(function, outer, inner):
    return lambda x: outer(lambda x: jnp.sum(jnp.sin(inner(function)(x))))(x)

def under_a_policy(function):
    return rjax.grad(function, policy="nothing")

said = {}
functions = (
    dropout, dropout_in_loop, keys_of_devices, looked_up, shifted, joined, run_through, attended, transformed,
    over_devices, in_parallel,
)
with jax.set_mesh(mesh):
    x, w = put(8, 16, 32, spec=P("data")), put(32, 32)
    for function in functions:
        expected = jax.jit(jax.value_and_grad(function, (0, 1)))(x, w)
        one = said[function.__name__] = {name: difference(way(x, w), expected) for name, way in ways(function)}
        for name, of_one, argument in (("x", lambda x: function(x, w), x), ("w", lambda w: function(x, w), w)):
            pairs = ((rjax.grad, under_a_policy), (jax.grad, jax.grad))
            one[f"second by {name}"] = difference(*[jax.jit(twice(of_one, *pair))(argument) for pair in pairs])
    # Where policies are asked in another arithmetic than the program's: all of theirs is in 64 bits.
    jax.config.update("jax_enable_x64", False)
    x, w = x.astype(jnp.float32), w.astype(jnp.float32)
    narrow = lambda x: dropout_in_loop(x, w)
    said["in single precision"] = difference(
        jax.jit(twice(narrow, rjax.grad, under_a_policy))(x), jax.jit(twice(narrow, jax.grad, jax.grad))(x)
    )
print(json.dumps(said))
"""

FUNCTIONS = (
    "dropout",
    "dropout_in_loop",
    "keys_of_devices",
    "looked_up",
    "shifted",
    "joined",
    "run_through",
    "attended",
    "transformed",
    "over_devices",
    "in_parallel",
)


@cache
def said() -> dict[str, Any]:
    return said_by(PROGRAM, 8, "--xla_backend_optimization_level=0")


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_those_of_jax(name: str) -> None:
    """Under a policy, a policy of ours in JAX's derivative, a budget, compiled ahead, and to second order."""
    found = said()[name]
    assert set(found) == {"value_and_grad", "checkpoint", "budget", "compile", "second by x", "second by w"}
    assert max(found.values()) < 1e-11, found


@pytest.mark.slow
def test_second_derivatives_of_loops_in_single_precision() -> None:
    assert said()["in single precision"] < 1e-3
