"""The derivative of a softmax needs its result alone; quotients that look like one keep the rules of their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import rematc

N = 6
X = np.random.default_rng(0).normal(size=(N, N, N))
Function = Callable[[Any, Any], Any]


def _last(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def _shifted(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def _middle_and_last(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e, axis=(1, 2))[:, None, None]


def _all(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e)


def _reshaped(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.reshape(xp.sum(e, axis=1), (N, 1, N))


def _of_elsewhere(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e, axis=0)[:, None, :]


def _other_order(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e, axis=(0, 1))[:, None, None]


def _split(xp: Any, x: Any) -> Any:
    e = xp.exp(xp.reshape(x, (N * N, N)))
    return e / xp.reshape(xp.reshape(xp.sum(e, axis=1), (N, N)), (N * N, 1))


def _of_more(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / (1 + xp.sum(e, axis=-1, keepdims=True))


def _of_another(xp: Any, x: Any) -> Any:
    return xp.exp(x) / xp.sum(xp.exp(2 * x), axis=-1, keepdims=True)


def _of_no_exponential(xp: Any, x: Any) -> Any:
    e = xp.sqrt(1 + x * x)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _twice(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    s = xp.sum(e, axis=-1, keepdims=True)
    return e / s + e * xp.log(s)


SOFTMAX = (_last, _middle_and_last, _all, _reshaped)
OTHERS = (_shifted, _of_elsewhere, _other_order, _split, _of_more, _of_another, _of_no_exponential, _twice)


def _loss(function: Function, xp: Any, x: Any, w: Any) -> Any:
    return xp.sum(xp.reshape(function(xp, x), (N, N, N)) * w)


@pytest.mark.parametrize("function", [*SOFTMAX, *OTHERS])
def test_gradients_and_their_derivatives_are_those_of_jax(function: Function) -> None:
    w, direction = np.cos(X), np.sin(3 * X)
    with jax.enable_x64(True):
        expected = jax.grad(lambda x: _loss(function, jnp, x, w))(X)
        second = jax.jvp(jax.grad(lambda x: _loss(function, jnp, x, w)), (X,), (direction,))[1]
    gradient: Callable[[Any], Any] = rematc.grad(lambda x: _loss(function, np, x, w))
    np.testing.assert_allclose(gradient(X), expected, rtol=1e-9, atol=1e-12)
    found: Any = rematc.jvp(gradient, (X,), (direction,))[1]
    np.testing.assert_allclose(found, second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", SOFTMAX)
def test_the_result_is_all_that_is_saved(function: Function) -> None:
    saved = rematc.saved_residuals(lambda x: function(np, x), X)
    assert [each.type.shape for each in saved if each.type.size > N * N] == [(N, N, N)]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_sums_in_a_wider_type(dtype: Any) -> None:
    """JAX adds numbers of 16 bits in 32."""
    x = jnp.asarray(X[0], dtype)

    def loss(x: Any) -> Any:
        return jnp.sum(jax.nn.softmax(x, axis=0).astype(jnp.float32) * jnp.cos(jnp.arange(N)))

    found = rematc.grad(rematc.from_jax(loss))(x)
    exact = jax.grad(loss)(x.astype(jnp.float32))
    eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]  # unannotated
    np.testing.assert_allclose(np.asarray(found, np.float32), exact, rtol=4 * eps, atol=eps)
    softmax: Callable[[Any], Any] = rematc.from_jax(lambda x: jax.nn.softmax(x, axis=0))
    saved = rematc.saved_residuals(softmax, x)
    assert len([each for each in saved if each.type.size == N * N]) == 1


def test_attention_takes_less_memory_than_in_jax() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (2, 128, heads, 8)) for key, heads in zip(keys, (8, 2, 2), strict=True))

    def loss(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(jax.nn.dot_product_attention(q, k, v) ** 2)

    ours = rematc.compile(rematc.value_and_grad(rematc.from_jax(loss), argnums=(0, 1, 2)), q, k, v)
    theirs: Any = jax.jit(jax.value_and_grad(loss, (0, 1, 2))).lower(q, k, v).compile().memory_analysis()
    assert ours.memory().temp_bytes < 0.85 * theirs.temp_size_in_bytes
