"""`rematc.jax.value_and_grad` and its kin as JAX functions."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax as rjax
from rematc.lowering.target import Target

KEY = jax.random.key(0)
PARAMS = [jax.random.normal(jax.random.fold_in(KEY, i), (16, 16)) / 4 for i in range(4)]
X = jax.random.normal(KEY, (8, 16))


def loss(params: Any, x: Any) -> Any:
    for w in params:
        x = jnp.tanh(x @ w) + jax.nn.relu(x)
    return jnp.mean(x**2)


def assert_like(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance), found, expected)


@pytest.mark.parametrize("policy", [None, "nothing", "auto"])
def test_values_and_gradients_are_jax_s(policy: str | None) -> None:
    expected = jax.jit(jax.value_and_grad(loss, (0, 1)))(PARAMS, X)
    function = rjax.value_and_grad(loss, (0, 1), policy=policy)
    assert_like(function(PARAMS, X), expected)
    assert_like(jax.jit(function)(PARAMS, X), expected)
    assert_like(rjax.jit(function)(PARAMS, X), expected)


def test_under_vmap_and_differentiated_again() -> None:
    function = rjax.grad(loss, policy="nothing")
    batch = jnp.stack([X, X + 1])
    found, expected = (jax.jit(jax.vmap(one, (None, 0)))(PARAMS, batch) for one in (function, jax.grad(loss)))
    assert_like(found, expected)

    def slope(gradient: Any, scale: Any) -> Any:
        return jnp.sum(gradient([scale * w for w in PARAMS], X)[0] ** 2)

    for derivative in (jax.grad, jax.jacfwd):
        found, expected = (
            jax.jit(derivative(functools.partial(slope, one)))(1.0) for one in (function, jax.grad(loss))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_in_a_training_step_with_donation() -> None:
    optax = pytest.importorskip("optax")
    optimizer = optax.adam(1e-2)
    losses = []
    for value_and_grad in (jax.value_and_grad(loss), rjax.value_and_grad(loss, policy="dots")):

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(params: Any, state: Any, x: Any, value_and_grad: Any = value_and_grad) -> Any:
            value, gradient = value_and_grad(params, x)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, value

        params = [jnp.array(w) for w in PARAMS]
        state = optimizer.init(params)
        for _ in range(3):
            params, state, value = step(params, state, X)
        losses.append(value)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_is_traced_once_for_arguments_of_one_type() -> None:
    count = 0

    def counted(x: Any) -> Any:
        nonlocal count
        count += 1
        return jnp.sum(jnp.sin(x))

    function = rjax.value_and_grad(counted)
    for scale in range(3):
        function(scale * X)
    assert count == 1
    function(X[:2])
    assert count == 2


def test_what_is_no_array_stays_what_it_is() -> None:
    def function(tree: dict[str, Any], scale: float, flag: bool = False) -> Any:
        return jnp.sum(tree["activation"](tree["w"])) * (scale if flag else 1)

    tree = {"w": X, "activation": jnp.sin, "none": None}
    found = rjax.grad(function)(tree, 2.0, flag=True)
    np.testing.assert_allclose(found["w"], 2 * jnp.cos(X), rtol=1e-6)
    assert found["activation"] is None


def test_auxiliary_keys_and_integers() -> None:
    def function(w: Any, key: Any) -> Any:
        mask = jax.random.bernoulli(key, 0.5, w.shape)
        return jnp.sum(jnp.sin(w) * mask), {"key": jax.random.split(key)[0], "count": mask.sum()}

    (value, aux), gradient = rjax.value_and_grad(function, has_aux=True, policy="nothing")(X, KEY)
    (expected, wanted), slope = jax.value_and_grad(function, has_aux=True)(X, KEY)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6)
    assert aux["key"] == wanted["key"]
    assert aux["count"] == wanted["count"]


def test_vjp() -> None:
    value, pull = rjax.vjp(lambda x, i: {"y": jnp.sin(x) * i}, X, 3, policy="nothing")
    np.testing.assert_allclose(value["y"], 3 * jnp.sin(X), rtol=1e-6)
    along, none = pull({"y": jnp.ones_like(X)})
    np.testing.assert_allclose(along, 3 * jnp.cos(X), rtol=1e-6)
    assert none.dtype == jax.dtypes.float0


def test_errors_name_the_argument() -> None:
    with pytest.raises(rematc.CompileError, match="expected one floating-point scalar"):
        rjax.grad(jnp.sin)(X)
    with pytest.raises(rematc.CompileError, match=r"gradient with respect to i needs"):
        rjax.grad(lambda i: 1.0 * i)(jnp.arange(3))
    with pytest.raises(rematc.CompileError, match="argnums names argument 3"):
        rjax.grad(loss, 3)(PARAMS, X)


@pytest.mark.parametrize("wrong", ["nothing", 1.5, None, (0, "x")])
def test_a_policy_in_the_place_of_positions_is_an_error(wrong: Any) -> None:
    message = r"argnums is .*, which is no position .* passed by keyword: policy='dots'"
    for function in (rjax.value_and_grad, rjax.grad, rematc.value_and_grad, rematc.grad):
        with pytest.raises(rematc.CompileError, match=message):
            function(loss, wrong)


def test_recomputation_holds_in_programs_of_others() -> None:
    """A chain keeps one of its values in a few: in the caller's jit, whose options are not ours, and by itself."""

    def chain(x: Any) -> Any:
        for _ in range(16):
            x = jnp.sin(x @ jnp.eye(256, dtype=x.dtype) * 1.1)
        return jnp.sum(x)

    def temporary(function: Any) -> int:
        return int(function.lower(jnp.ones((256, 256))).compile().memory_analysis().temp_size_in_bytes)

    without = temporary(jax.jit(jax.grad(chain)))
    inside = temporary(jax.jit(rjax.grad(chain, policy="nothing")))
    alone = temporary(rjax.jit(rjax.grad(chain, policy="nothing")))
    assert inside < 0.75 * without
    assert alone < 0.75 * without
    if Target.of("cpu").barriers_hold:
        assert inside == alone


_ON_FOUR_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import rematc.jax as rjax

mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
w, x = jnp.linspace(-1, 1, 64).reshape(8, 8), jnp.linspace(0, 1, 64).reshape(8, 8)

def layer(w, x):
    return jnp.tanh(x @ w) + jax.nn.relu(x)

def loss(w, x, layer=layer):
    def step(carry, _):
        return layer(w, carry), jnp.sum(carry)
    last, sums = jax.lax.scan(step, x, None, length=3)
    return jnp.mean(last**2) + jnp.sum(sums)

def averaged(gradient, checks):
    def body(w, x):
        value, slope = gradient(w, x)
        return jax.lax.pmean(value, "d"), slope
    specs = dict(mesh=mesh, in_specs=(P(), P("d")), out_specs=(P(), P() if checks else P("d")))
    return jax.jit(jax.shard_map(body, check_vma=checks, **specs))(w, x)

def assert_like(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)

for checks in (True, False):
    expected = averaged(jax.value_and_grad(loss), checks)
    checkpointed = jax.value_and_grad(lambda w, x: loss(w, x, rjax.checkpoint(layer, policy="dots")))
    for gradient in (rjax.value_and_grad(loss, policy="nothing"), checkpointed):
        assert_like(averaged(gradient, checks), expected)

def plain(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2), x + 1

explicit = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    split = jax.device_put(x, P("d"))
    (value, aux), slope = rjax.value_and_grad(plain, (0, 1), has_aux=True, policy="nothing")(w, split)
assert jax.typeof(aux).sharding.spec == jax.typeof(slope[1]).sharding.spec == jax.typeof(split).sharding.spec
assert_like(((value, aux), slope), jax.value_and_grad(plain, (0, 1), has_aux=True)(w, x))

with jax.set_mesh(explicit):
    # What crosses to the backward function lies as what it is computed from, in a trace and outside of one.
    for policy in (None, "nothing", "everything"):
        def pulled(w, x):
            (value, aux), pull = rjax.vjp(plain, w, x, policy=policy)
            return (value, aux), pull((jnp.ones_like(value), jnp.zeros_like(aux)))
        for way in (pulled, jax.jit(pulled)):
            (value, aux), slope = way(w, split)
            assert jax.typeof(aux).sharding == jax.typeof(slope[1]).sharding == jax.typeof(split).sharding
            assert_like(((value, aux), slope), jax.value_and_grad(plain, (0, 1), has_aux=True)(w, x))
    # The activations, [8, ...] of all, are never gathered.
    assert "all-gather" not in jax.jit(pulled).lower(w, split).compile().as_text()

rows = jax.device_put(x, NamedSharding(mesh, P("d")))
found = jax.jit(rjax.value_and_grad(loss, policy="nothing"))(w, rows)
assert_like(found, jax.value_and_grad(loss)(w, x))
"""


def test_on_several_devices() -> None:
    """Inside `shard_map`, with and without its checks, and on sharded arrays."""
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _ON_FOUR_DEVICES], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an option of XLA on the CPU")
@pytest.mark.parametrize("policy", [None, "nothing"])
def test_called_by_itself_without_recomputation_it_runs_depth_first(
    monkeypatch: pytest.MonkeyPatch, policy: str | None
) -> None:
    """Where that needs less, as of branches of which little is kept."""
    given: list[dict[str, Any]] = []
    jit: Any = jax.jit

    def recorded(*args: Any, **named: Any) -> Any:
        given.append(named.get("compiler_options") or {})
        return jit(*args, **named)

    def summed(w: Any, x: Any) -> Any:
        return sum(jnp.sum(jnp.tanh((x * (index + 1)) @ w) ** 2) for index in range(8))

    w, x = jnp.full((16, 64), 1e-3), jnp.ones((1024, 16))
    expected = jit(jax.grad(summed))(w, x)
    monkeypatch.setattr(jax, "jit", recorded)
    assert_like(rjax.grad(summed, policy=policy)(w, x), expected, 1e-3)
    assert any("xla_cpu_scheduler_type" in options for options in given) == (policy is None)


def test_a_policy_of_jit_that_no_derivative_takes_is_a_warning() -> None:
    def by(grad: Any) -> Any:
        return rjax.jit(lambda w: w - grad(lambda w: jnp.sum(jnp.tanh(w @ w)))(w), policy="nothing")

    w = jnp.ones((4, 4), jnp.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by(rjax.grad)(w)
    with pytest.warns(UserWarning, match="changes nothing: '<lambda>' takes no derivative by rematc.jax") as found:
        by(jax.grad)(w)
    assert found[0].filename == __file__


@pytest.mark.parametrize("policy", [None, "nothing"])
def test_integers_and_keys_have_gradients_of_float0_where_they_are_allowed(policy: str | None) -> None:
    def loss(params: Any, x: Any) -> Any:
        return jnp.sum(params["w"] * x * jax.random.normal(params["key"], (3,))) * params["count"]

    params = {"w": jnp.ones(3), "key": jax.random.key(0), "count": jnp.array(2), "is_on": jnp.array([True, False])}
    gradient = rjax.grad(loss, allow_int=True, policy=policy)
    for found in (gradient(params, 2.0), jax.jit(gradient)(params, 2.0)):
        expected = jax.grad(loss, allow_int=True)(params, 2.0)
        assert sorted(found) == sorted(expected)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-6)
    with pytest.raises(rematc.CompileError, match="needs floating-point values"):
        rjax.grad(loss)(params, 2.0)
