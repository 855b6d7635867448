"""Checkpoints under JAX's transformations other than `vmap`: derivatives are JAX's, and so is what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from jax.interpreters import partial_eval as pe

import rematc.jax
from tests.support.many_devices import said_by

RANDOM = np.random.default_rng(0)
W, X = RANDOM.normal(size=(4, 4, 4)), RANDOM.normal(size=(3, 4))
DOTS = jax.checkpoint_policies.dots_saveable
TABLE = RANDOM.normal(size=(4, 4))
#: Too large to be written out in a program.
LARGE = RANDOM.normal(size=(4, 4096)) / 64

Function = Callable[..., Any]


def pushed(f: Function, x: Any) -> Any:
    return jax.jvp(f, (x,), (x,))[1]


# -- derivatives inside of derivatives -----------------------------------------------------------------------------


def in_turn(layer: Function) -> Function:
    def run(w: Any, x: Any) -> Any:
        for one in w:
            x = layer(x, one)
        return x

    return run


def layers(checkpoint: Function) -> Function:
    layer = checkpoint(lambda x, w: x + jnp.tanh(jnp.tanh(x @ w) @ w.T))
    return in_turn(layer)


def layers_of_rules(checkpoint: Function) -> Function:
    @jax.custom_jvp
    def own(x: Any) -> Any:
        return jnp.tanh(x)

    own.defjvp(lambda primals, tangents: (own(primals[0]), (1 - own(primals[0]) ** 2) * tangents[0]))
    layer = checkpoint(lambda x, w: x + own(own(x @ w) @ w.T))
    return in_turn(layer)


def scanned(checkpoint: Function) -> Function:
    layer = checkpoint(lambda x, w: (x + jnp.tanh(jnp.tanh(x @ w) @ w.T), jnp.argmax(x)))
    return lambda w, x: lax.scan(layer, x, w)[0]


def of_rules(checkpoint: Function) -> Function:
    """With rules of the user's for each derivative."""

    @jax.custom_jvp
    def own(x: Any) -> Any:
        return jnp.sin(x)

    @own.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return own(primals[0]), 2 * jnp.cos(primals[0]) * tangents[0]

    @jax.custom_vjp
    def other(x: Any) -> Any:
        return jnp.exp(-x * x)

    other.defvjp(lambda x: (other(x), x), lambda x, ct: (3 * x * ct,))
    layer = checkpoint(lambda x, w: own(x @ w) + x)
    return lambda w, x: layer(layer(x, w[0]), w[1])


def with_constants(checkpoint: Function) -> Function:
    layer = checkpoint(lambda x, w: jax.jit(lambda x: jnp.sin(x @ LARGE) @ LARGE.T)(x) @ w)
    return lambda w, x: layer(layer(x, w[0]), w[1])


def of_integers_and_keys(checkpoint: Function) -> Function:
    layer = checkpoint(lambda x, w, key, i: (jnp.sin(x[i] @ w) * jax.random.uniform(key, (3, 4)), i + 1))

    def run(w: Any, x: Any) -> Any:
        x, i = layer(x, w[0], jax.random.key(0), jnp.arange(3))
        return layer(x, w[1], jax.random.key(1), i % 3)[0]

    return run


def of_branches(checkpoint: Function) -> Function:
    layer = checkpoint(lambda x, w: lax.cond(w[0, 0] > 0, lambda x: jnp.sin(x @ w), lambda x: jnp.cos(x) @ w, x))
    return lambda w, x: layer(layer(x, w[0]), w[1])


MODELS = (layers, scanned, of_rules, with_constants, of_integers_and_keys, of_branches)


def grad_of_jvp(f: Function, w: Any, x: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(pushed(lambda x: f(w, x), x) ** 2))(w)


def grad_of_jvp_of_jvp(f: Function, w: Any, x: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(pushed(lambda x: pushed(lambda x: f(w, x), x), x) ** 2))(w)


def grad_of_vmap_of_jvp(f: Function, w: Any, x: Any) -> Any:
    """Of directions, which alone are batched."""

    def along(x: Any, direction: Any) -> Any:
        return jax.jvp(lambda x: f(w, x), (x,), (direction,))[1]

    return jax.grad(lambda x: jnp.sum(jax.vmap(along, (None, 0))(x, jnp.stack([x, 2 * x])) ** 2))(x)


def grad_of_vmap_of_jvp_of_elements(f: Function, w: Any, x: Any) -> Any:
    def of_one(x: Any, w: Any) -> Any:
        return pushed(lambda x: f(w, x), x)

    return jax.grad(lambda w: jnp.sum(jax.vmap(of_one, (0, None))(jnp.stack([x, 2 * x]), w) ** 2))(w)


def grad_of_jvp_of_vmap(f: Function, w: Any, x: Any) -> Any:
    many = lambda w: jnp.sum(pushed(jax.vmap(lambda y: f(w, y)), jnp.stack([x, 2 * x])) ** 2)  # noqa: E731
    return jax.grad(many)(w)


def grad_of_jvp_in_a_checkpoint(f: Function, w: Any, x: Any) -> Any:
    inner = jax.checkpoint(lambda w, x: pushed(lambda x: f(w, x), x), policy=DOTS)
    return jax.grad(lambda w: jnp.sum(inner(w, x) ** 2))(w)


def grad_of_a_checkpoint_around(f: Function, w: Any, x: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(jax.checkpoint(f)(w, x) ** 2))(w)


def grad_where_something_is_known_around(f: Function, w: Any, x: Any) -> Any:
    """The outer checkpoint holds one call that nothing is differentiated of."""
    outer = jax.checkpoint(lambda w, v, x: f(w, x) * f(v, x), policy=DOTS)
    return jax.grad(lambda w: jnp.sum(outer(w, lax.stop_gradient(2 * w), x)))(w)


def grad_of_grad_of_a_jvp(f: Function, w: Any, x: Any) -> Any:
    inner = jax.grad(lambda x, w: jnp.sum(pushed(lambda x: f(w, x), x) ** 2))
    return jax.grad(lambda w: jnp.sum(inner(x, w) ** 2))(w)


def jvp_of_grad(f: Function, w: Any, x: Any) -> Any:
    return pushed(jax.grad(lambda w: jnp.sum(f(w, x) ** 2)), w)


def jvp_of_compiled_jvp(f: Function, w: Any, x: Any) -> Any:
    return pushed(jax.jit(lambda w: pushed(lambda x: f(w, x), x)), w)


def linearized(f: Function, w: Any, x: Any) -> Any:
    results, push = jax.linearize(lambda x: pushed(lambda x: f(w, x), x), x)
    return results, push(2 * x)


def pulled_back_in_a_loop(f: Function, w: Any, x: Any) -> Any:
    def steps(w: Any) -> Any:
        return lax.scan(lambda x, _: (pushed(lambda x: f(w, x), x), None), x, None, length=2)[0]

    return jax.vjp(steps, w)[1](x)[0]


def pulled_back_step_by_step(f: Function, w: Any, x: Any) -> Any:
    """The same without the loop, in which JAX forgets rules before 0.12."""
    return jax.vjp(lambda w: pushed(lambda x: f(w, x), pushed(lambda x: f(w, x), x)), w)[1](x)[0]


DERIVATIVES = (
    *(grad_of_jvp, grad_of_jvp_of_jvp, grad_of_vmap_of_jvp, grad_of_vmap_of_jvp_of_elements, grad_of_jvp_of_vmap),
    *(
        grad_of_jvp_in_a_checkpoint,
        grad_of_a_checkpoint_around,
        grad_where_something_is_known_around,
        grad_of_grad_of_a_jvp,
        jvp_of_grad,
    ),
    *(jvp_of_compiled_jvp, linearized, pulled_back_in_a_loop),
)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives_are_those_of_jax(derivative: Function, model: Function) -> None:
    with jax.enable_x64(True):
        w, x = jnp.asarray(W), jnp.asarray(X)
        found = jax.tree.leaves(jax.jit(lambda w, x: derivative(model(rematc.jax.checkpoint), w, x))(w, x))
        expected = jax.tree.leaves(derivative(model(jax.checkpoint), w, x))
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_they_are_without_jit(model: Function) -> None:
    with jax.enable_x64(True):
        w, x = jnp.asarray(W), jnp.asarray(X)
        found, expected = [grad_of_jvp(model(one), w, x) for one in (rematc.jax.checkpoint, jax.checkpoint)]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def in_a_rule(checkpoint: Function) -> Function:
    """The rule of the user's is the derivative of the checkpoint."""
    inner = checkpoint(lambda x, w: jnp.sin(jnp.sin(x @ w)))

    @jax.custom_jvp
    def own(x: Any, w: Any) -> Any:
        return inner(x, w)

    own.defjvp(lambda primals, tangents: jax.jvp(inner, primals, tangents))
    return lambda w, x: own(own(x, w[0]), w[1])


@pytest.mark.parametrize("derivative", [grad_of_jvp, grad_of_jvp_of_jvp, grad_of_vmap_of_jvp, pulled_back_in_a_loop])
@pytest.mark.parametrize("model", [layers, scanned, of_rules, with_constants, in_a_rule])
def test_rematc_differentiates_them(derivative: Function, model: Function) -> None:
    """`rematc.jax.value_and_grad` of what has forward derivatives of checkpoints in it."""

    def loss(derivative: Function, w: Any, x: Any, checkpoint: Function) -> Any:
        return jnp.sum(derivative(model(checkpoint), w, x) ** 2)

    in_jax = pulled_back_step_by_step if derivative is pulled_back_in_a_loop else derivative

    with jax.enable_x64(True):
        w, x = jnp.asarray(W), jnp.asarray(X)
        _, found = rematc.jax.value_and_grad(lambda w, x: loss(derivative, w, x, rematc.jax.checkpoint))(w, x)
        expected = jax.grad(lambda w, x: loss(in_jax, w, x, jax.checkpoint))(w, x)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("model", [layers, scanned])
@pytest.mark.parametrize("derivative", [grad_of_jvp, grad_of_vmap_of_jvp, grad_of_jvp_in_a_checkpoint])
def test_a_forward_derivative_in_a_loss_is_computed_again(derivative: Function, model: Function) -> None:
    """It takes no more than under `jax.checkpoint`."""

    def temporary(checkpoint: Function) -> int:
        w, x = jnp.ones((6, 64, 64)), jnp.ones((1024, 64))
        lowered = jax.jit(lambda w, x: derivative(model(checkpoint), w, x)).lower(w, x)
        return int(lowered.compile().memory_analysis().temp_size_in_bytes)  # type: ignore[union-attr]  # CPUs have it

    assert temporary(rematc.jax.checkpoint) <= 1.05 * temporary(jax.checkpoint)


@pytest.mark.parametrize("derivative", [grad_of_vmap_of_jvp_of_elements, grad_of_jvp_of_vmap])
def test_rules_for_batches_bring_arrays_along(derivative: Function) -> None:
    with jax.enable_x64(True):
        w, x = jnp.asarray(W), jnp.asarray(X)
        found = derivative(with_a_rule_for_batches(rematc.jax.checkpoint), w, x)
        expected = derivative(with_a_rule_for_batches(lambda f: f), w, x)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def with_a_rule_for_batches(checkpoint: Function) -> Function:
    """Which brings an array along, and without which JAX has no derivative backwards."""

    @jax.custom_batching.custom_vmap
    def own(x: Any) -> Any:
        return jnp.sin(x)

    @own.def_vmap
    def rule(size: int, is_batched: Any, x: Any) -> Any:
        return jnp.sin(x) + 0 * jnp.asarray(TABLE)[:1], True

    layer = checkpoint(lambda x, w: own(x @ w) + x)
    return lambda w, x: layer(layer(x, w[0]), w[1])


def of_symbolic_zeros(checkpoint: Function) -> Function:
    """A rule without a tangent for one of the results, which has zeros for one where JAX batches it."""

    @jax.custom_jvp
    def own(x: Any) -> Any:
        return jnp.sin(x), jnp.cos(x)

    def rule(primals: Any, tangents: Any) -> Any:
        (x,) = primals
        none = jax.custom_derivatives.SymbolicZero(jax.typeof(x).to_tangent_aval())
        return own(x), (tangents[0] * jnp.cos(x), none)

    own.defjvp(rule, symbolic_zeros=True)
    layer = checkpoint(lambda x, w: own(x @ w))
    return lambda w, x: layer(*layer(x, w[0])[:1], w[1])


@pytest.mark.parametrize("of", [0, 1])
def test_results_without_tangents_have_none_in_batches(of: int) -> None:
    def pushed_many(checkpoint: Function) -> Any:
        f = of_symbolic_zeros(checkpoint)
        both = jax.jit(jax.vmap(lambda x: jax.jvp(lambda x: f(W, x), (x,), (x,))))(jnp.stack([X, 2 * X]))
        return both[1][of]

    np.testing.assert_allclose(pushed_many(rematc.jax.checkpoint), pushed_many(lambda f: f), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", [layers, layers_of_rules, scanned])
def test_a_derivative_around_a_derivative_computes_again_what_the_first_computes(model: Function) -> None:
    """As of a gradient penalty, of which `jax.checkpoint` saves what its forward part computes."""

    def temporary(checkpoint: Function) -> int:
        f, w, x = model(checkpoint), jnp.ones((6, 64, 64)), jnp.ones((1024, 64))
        penalty = jax.grad(lambda w, x: jnp.sum(jax.grad(lambda x: jnp.sum(f(w, x) ** 2))(x) ** 2))
        return int(jax.jit(penalty).lower(w, x).compile().memory_analysis().temp_size_in_bytes)  # type: ignore[union-attr]

    assert temporary(rematc.jax.checkpoint) <= 0.75 * temporary(jax.checkpoint)


def test_a_function_of_primitives_around_is_asked_about_what_is_inside() -> None:
    asked = set[str]()

    def policy(primitive: Any, *_: Any, **params: Any) -> bool:
        asked.add(primitive.name)
        return False

    inner = rematc.jax.checkpoint(lambda x, w: jnp.sin(x @ w))
    outer = rematc.jax.checkpoint(lambda w, x: inner(inner(x, w), w), policy=policy)
    jax.make_jaxpr(jax.grad(lambda w, x: jnp.sum(outer(w, x))))(W[0], X)
    assert asked >= {"dot_general", "sin"}
    assert "rematc_checkpoint" not in asked


def test_a_policy_around_that_saves_everything_saves_what_is_known() -> None:
    """Nothing is differentiated of one of two calls: neither is computed again."""

    def sines(checkpoint: Function) -> int:
        layer = checkpoint(lambda x, w: jnp.sin(x @ w))
        outer = jax.checkpoint(lambda w, v, x: layer(x, w) * layer(x, v), policy=lambda *_, **__: True)
        gradient = jax.grad(lambda w, x: jnp.sum(outer(w, lax.stop_gradient(2 * w), x) ** 2))
        return str(jax.jit(gradient).lower(W[0], X).as_text()).count("stablehlo.sine")

    assert sines(rematc.jax.checkpoint) <= sines(jax.checkpoint)


# -- many devices ---------------------------------------------------------------------------------------------------

ON_DEVICES = r"""
import json
import jax, jax.numpy as jnp, numpy as np, rematc.jax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

random = np.random.default_rng(0)
w = random.normal(0, 0.3, (3, 8, 8)).astype(np.float32)
x = random.normal(0, 1, (4, 2, 8)).astype(np.float32)

def layers(checkpoint):
    # A loop whose first carry lies elsewhere than a batch's.
    steps = lambda x, w: lax.scan(lambda c, row: (jnp.tanh(c + row @ w), c), jnp.zeros(8), x)[1]
    layer = checkpoint(lambda x, w: x + jnp.tanh(jnp.tanh(x @ w) @ w.T) + steps(x, w))
    return lambda w, x: lax.scan(lambda x, w: (layer(x, w), None), x, w)[0]

def pushed(f, x):
    return jax.jvp(f, (x,), (x,))[1]

def of_batch(checkpoint, name):
    f = layers(checkpoint)
    return lambda w, x: jnp.sum(jax.vmap(lambda x: f(w, x), spmd_axis_name=name)(x) ** 2)

def of_pushed_batch(checkpoint, name):
    f = layers(checkpoint)
    return lambda w, x: jnp.sum(jax.vmap(lambda x: pushed(lambda x: f(w, x), x), spmd_axis_name=name)(x) ** 2)

def flat(checkpoint):
    layer = checkpoint(lambda x, w: x + jnp.tanh(jnp.tanh(x @ w) @ w.T))
    return lambda w, x: lax.scan(lambda x, w: (layer(x, w), None), x, w)[0]

def mapped(checkpoint, mesh, checked):
    f = flat(checkpoint)
    body = lambda w, x: lax.psum(jnp.sum(f(w, x) ** 2) + jnp.sum(pushed(lambda x: f(w, x), x) ** 2), "d")
    return jax.shard_map(body, mesh=mesh, in_specs=(P(), P("d")), out_specs=P(), check_vma=checked)

said, placed = {}, {}
for kind in ("Auto", "Explicit"):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(getattr(AxisType, kind),))
    with jax.set_mesh(mesh):
        args = jax.device_put(w, NamedSharding(mesh, P())), jax.device_put(x, NamedSharding(mesh, P("d")))
        for name in (None, "d") if kind == "Auto" else (None,):
            for of in (of_batch, of_pushed_batch):
                for way in (jax, rematc.jax):
                    found = jax.jit(jax.grad(of(way.checkpoint, name), (0, 1)))(*args)
                    at = f"{way.__name__} {kind} {name} {of.__name__}"
                    said[at] = [np.asarray(one).tolist() for one in found]
                    placed[at] = [str(one.sharding.spec) for one in found]
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
for checked in (True, False):
    for way in (jax, rematc.jax):
        found = jax.jit(jax.grad(mapped(way.checkpoint, mesh, checked)))(w, x)
        said[f"{way.__name__} shard_map {checked}"] = [np.asarray(found).tolist()]
print(json.dumps({"said": said, "placed": placed}))
"""


@pytest.mark.slow
def test_batches_and_forward_derivatives_on_devices_are_those_of_jax() -> None:
    """Where batches lie over an axis of the mesh, whatever its type, and inside of `shard_map`."""
    parts = said_by(ON_DEVICES, 4)
    said, placed = parts["said"], parts["placed"]
    ways = {name.partition(" ")[2] for name in said}
    assert len(ways) == 8
    for way in ways:
        for found, expected in zip(said[f"rematc.jax {way}"], said[f"jax {way}"], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=way)
        assert placed.get(f"rematc.jax {way}") == placed.get(f"jax {way}"), way


@pytest.mark.parametrize("model", [layers, layers_of_rules])
def test_a_forward_derivative_is_computed_again_in_a_loss_of_rematc(model: Function) -> None:
    def temporary(checkpoint: Function) -> int:
        f, w, x = model(checkpoint), jnp.ones((6, 64, 64)), jnp.ones((1024, 64))
        loss = rematc.jax.value_and_grad(lambda w, x: jnp.sum(pushed(lambda x: f(w, x), x) ** 2))
        return int(jax.jit(loss).lower(w, x).compile().memory_analysis().temp_size_in_bytes)  # type: ignore[union-attr]

    assert temporary(rematc.jax.checkpoint) <= 0.6 * temporary(lambda f: f)


# -- other transformations -----------------------------------------------------------------------------------------


def test_a_linear_region_is_transposed() -> None:
    layer = rematc.jax.checkpoint(lambda w, x: (x @ w, 2 * x, w))
    (found,) = jax.linear_transpose(lambda x: layer(W[0], x)[:2], X[0])((X[1], X[2]))
    np.testing.assert_allclose(found, X[1] @ W[0].T + 2 * X[2], rtol=1e-5)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_what_is_checked_inside_of_a_region_is_found(is_wrong: bool) -> None:
    def layer(x: Any) -> Any:
        checkify.check(jnp.sum(x) > 0, "not above zero")
        return jnp.sqrt(x)

    def layer_without_effects(x: Any) -> Any:
        return jnp.log(x)

    x = jnp.asarray([-1.0 if is_wrong else 1.0])
    for function, kinds in ((layer, checkify.user_checks), (layer_without_effects, checkify.nan_checks)):
        checked = checkify.checkify(rematc.jax.checkpoint(function), errors=kinds)
        error, result = jax.jit(checked)(x)
        assert bool(error.get()) == is_wrong
        np.testing.assert_array_equal(result, function(x) if function is layer_without_effects else jnp.sqrt(x))


def test_a_checked_region_keeps_its_policy() -> None:
    """Its derivative holds what it holds without the check."""
    layer = rematc.jax.checkpoint(lambda x: jnp.sin(jnp.sin(jnp.sin(x))))

    def residuals(of: Function) -> int:
        _, pull = jax.vjp(of, jnp.ones(7))
        return sum(leaf.size for leaf in jax.tree.leaves(pull))

    checked = checkify.checkify(layer, errors=checkify.nan_checks)
    assert residuals(lambda x: checked(x)[1]) == residuals(layer) == 7


def test_a_result_that_nobody_needs_takes_its_operands_along() -> None:
    """Where the function is not differentiated: dead code of loops is found before XLA sees it."""
    layer = rematc.jax.checkpoint(lambda x, y: (jnp.sin(x), jnp.exp(y)))
    jaxpr = jax.make_jaxpr(lambda x, y: layer(x, y)[0])(X, X)
    found, used = pe.dce_jaxpr(jaxpr.jaxpr, [True])
    assert used == [True, False]
    (eqn,) = found.eqns
    assert (len(eqn.invars), len(eqn.outvars)) == (1, 1)
    np.testing.assert_allclose(jax.core.eval_jaxpr(found, jaxpr.consts, jnp.asarray(X))[0], np.sin(X), rtol=1e-6)
    none, used = pe.dce_jaxpr(jaxpr.jaxpr, [False])
    assert (used, none.eqns) == ([False, False], [])
