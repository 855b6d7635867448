"""Models as people write them around loops: values and gradients are JAX's, under every policy.

Each model is written once, for the namespace and the loops that it is given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc

RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape) / 2


class Library(NamedTuple):
    """What a model takes from rematc or JAX."""

    np: Any
    scan: Any
    fori_loop: Any
    associative_scan: Any
    checkpoint: Any


OURS = Library(np, rematc.scan, rematc.fori_loop, rematc.associative_scan, rematc.checkpoint)
THEIRS = Library(jnp, jax.lax.scan, jax.lax.fori_loop, jax.lax.associative_scan, jax.checkpoint)


def lstm(lib: Library, params: Any, xs: Any) -> Any:
    """A roll-out over time; gates in one product."""

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + lib.np.exp(-x))

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        gates = x @ params["in"] + h @ params["hidden"] + params["bias"]
        i, f, g, o = lib.np.split(gates, 4, axis=-1)
        c = sigmoid(f + 1) * c + sigmoid(i) * lib.np.tanh(g)
        h = sigmoid(o) * lib.np.tanh(c)
        return (h, c), h

    zeros = lib.np.zeros((xs.shape[1], 3))
    (h, c), hs = lib.scan(step, (zeros, zeros), xs)
    return (hs * hs).sum() + (h * c).sum()


def attention_layers(lib: Library, params: Any, x: Any) -> Any:
    """Layers of causal attention with stacked weights, scanned."""
    length = x.shape[0]
    mask = lib.np.tril(lib.np.ones((length, length), bool))

    def layer(x: Any, weights: Any) -> Any:
        q, k, v = (x @ weights[name] for name in "qkv")
        scores = lib.np.where(mask, q @ k.T / 2, -1e9)
        chances = lib.np.exp(scores - lib.np.max(scores, axis=-1, keepdims=True))
        mixed = (chances / lib.np.sum(chances, axis=-1, keepdims=True)) @ v
        return x + lib.np.tanh(mixed), lib.np.mean(mixed)

    x, means = lib.scan(lib.checkpoint(layer), x, params)
    return (x * x).sum() + means.sum()


def convolutions(lib: Library, params: Any, x: Any) -> Any:
    """A convolutional recurrence: shifted rows times weights, and a window's maximum, in every step."""

    def convolved(x: Any, kernel: Any) -> Any:
        padded = lib.np.pad(x, ((0, 0), (1, 1)))
        return sum(kernel[:, :, d] @ padded[:, d : d + x.shape[1]] for d in range(3))

    def step(state: Any, kernel: Any) -> Any:
        pre = convolved(state, kernel)
        pooled = lib.np.maximum(pre[:, ::2], pre[:, 1::2])
        return state + lib.np.tanh(pre), pooled.sum()

    state, sums = lib.scan(step, x, params)
    return (state * state).sum() + (sums * sums).sum()


def neural_ode(lib: Library, params: Any, y: Any) -> Any:
    """Runge-Kutta steps of fixed size, of a field that a small network gives; the steps are numbered."""

    def field(y: Any, t: Any) -> Any:
        return lib.np.tanh(y @ params["a"] + t * params["t"]) @ params["b"]

    def step(i: Any, y: Any) -> Any:
        t, size = i * 0.1, 0.1
        k1 = field(y, t)
        k2 = field(y + size / 2 * k1, t + size / 2)
        k3 = field(y + size / 2 * k2, t + size / 2)
        k4 = field(y + size * k3, t + size)
        return y + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    end = lib.fori_loop(0, 8, step, y)
    return (end * end).sum()


def state_space(lib: Library, params: Any, xs: Any) -> Any:
    """A diagonal linear recurrence as an associative scan, between products: h[t] = a[t] h[t-1] + b[t]."""

    def combine(x: Any, y: Any) -> Any:
        return x[0] * y[0], y[0] * x[1] + y[1]

    decay = lib.np.exp(-lib.np.exp(params["rate"]) * lib.np.logaddexp(xs @ params["step"], 0.0))
    _, hs = lib.associative_scan(combine, (decay, xs @ params["in"]))
    ys = lib.np.sin(hs) @ params["out"]
    return (ys * xs).sum()


SQUARE = {name: normal(3, 4, 4) for name in "qkv"}
MODELS = {
    "lstm": (lstm, ({"in": normal(2, 12), "hidden": normal(3, 12), "bias": normal(12)}, normal(5, 4, 2))),
    "attention": (attention_layers, (SQUARE, normal(6, 4))),
    "convolutions": (convolutions, (normal(4, 3, 3, 3), normal(3, 8))),
    "neural ODE": (neural_ode, ({"a": normal(3, 5), "t": normal(5), "b": normal(5, 3)}, normal(4, 3))),
    "state space": (
        state_space,
        ({"rate": normal(4), "step": normal(2, 4), "in": normal(2, 4), "out": normal(4, 2)}, normal(7, 2)),
    ),
}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """Value and gradients of each model by JAX, and a second derivative."""
    with jax.enable_x64(True):
        return {
            name: (
                jax.jit(jax.value_and_grad(lambda *args, model=model: model(THEIRS, *args), (0, 1)))(*args),
                jax.jit(jax.grad(lambda *args, model=model: curved(THEIRS, jax.grad, model, *args), 1))(*args),
            )
            for name, (model, args) in MODELS.items()
        }


def curved(lib: Library, grad: Any, model: Any, params: Any, x: Any) -> Any:
    """The sum of squares of a gradient."""
    slope = grad(lambda x: model(lib, params, x))(x)
    return (slope * slope).sum()


def close(found: Any, wanted: Any) -> None:
    """Equal trees but for the order of sums, in float64."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for one, other in pairs:
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_jax_s(name: str, policy: str | None, expected: dict[str, Any]) -> None:
    model, args = MODELS[name]
    found = rematc.value_and_grad(lambda *args: model(OURS, *args), (0, 1), policy=policy)(*args)
    close(found, expected[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("policy", [None, "dots"])
@pytest.mark.parametrize("name", MODELS)
def test_second_derivatives_are_jax_s(name: str, policy: str | None, expected: dict[str, Any]) -> None:
    model, args = MODELS[name]

    def grad(function: Any) -> Any:
        return rematc.grad(function, policy=policy)

    found = rematc.jit(rematc.grad(lambda x: curved(OURS, grad, model, args[0], x)))(args[1])
    close(found, expected[name][1])


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_each_example_are_those_of_a_loop(name: str) -> None:
    """vmap of the gradient under a policy, over three inputs that share the parameters."""
    model, (params, x) = MODELS[name]
    batch = np.stack([x, x * 0.5, x - 1])

    def slope(x: Any) -> Any:
        return rematc.grad(lambda params: model(OURS, params, x), policy="dots")(params)

    of_one = rematc.jit(slope)
    each = [of_one(one) for one in batch]
    stacked = jax.tree.map(lambda *rows: np.stack(rows), *each)
    close(rematc.vmap(slope)(batch), stacked)
