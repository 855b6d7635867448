"""The derivative of a softmax needs its result alone; quotients that look like one keep the rules of their ops.

That of a gelu's tanh shares nothing with the gelu.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.verifier import verify
from rematc.passes.inline import inline_recognized
from rematc.passes.jvp import jvp
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.recognize import Recognize

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


SOFTMAX_AND_TANH = parse(
    """graph @f(%x: f32[4], %w: f32[4]) -> (f32[4], f32[4]) {
      %0: f32[4] = exponential %w
      %1: f32[] = reduce_sum %0 {dimensions=[0]}
      %2: f32[4] = broadcast_in_dim %1 {shape=[4], dimensions=[]}
      %3: f32[4] = divide %0, %2
      %4: f32[4] = tanh %x
      return %3, %4
    }"""
)


def _names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def test_what_is_recognised_has_a_rule_of_its_own() -> None:
    recognized = Recognize().run(SOFTMAX_AND_TANH)
    assert _names(recognized) == ["exponential", "reduce_sum", "broadcast_in_dim", "custom_jvp", "tanh"]
    verify(recognized)
    assert inline_recognized(recognized) == SOFTMAX_AND_TANH


def test_what_no_tangent_comes_to_is_as_it_was() -> None:
    assert "custom_jvp" not in _names(jvp(SOFTMAX_AND_TANH, [True, False]).graph)
    assert _names(jvp(SOFTMAX_AND_TANH, [False, False]).graph) == _names(SOFTMAX_AND_TANH)


@pytest.mark.parametrize(
    ("line", "is_shared"), [("add %one, %y", False), ("add %y, %one", False), ("add %y, %x", True)]
)
def test_the_derivative_of_tanh_shares_nothing_with_a_gelu(line: str, is_shared: bool) -> None:
    """What both compute would be held from the one to the other."""
    graph = parse(
        f"""graph @f(%x: f32[4]) -> (f32[4]) {{
          %c: f32[] = constant {{type=f32[], data=1.0}}
          %one: f32[4] = broadcast_in_dim %c {{shape=[4], dimensions=[]}}
          %y: f32[4] = tanh %x
          %z: f32[4] = {line}
          return %z
        }}"""
    )
    joint = PassManager(parse_pipeline("simplify,cse")).run(jvp(graph, [True]).graph).graph
    assert len([eqn for eqn in joint.equations if eqn.op.name == "subtract"]) == (1 if is_shared else 2)
    (total,) = [eqn for eqn in joint.equations if eqn.results == joint.results[:1]]
    assert not any(total.results[0] in eqn.operands for eqn in joint.equations)
