"""Reading one element of each row: no derivative writes it into zeros as large as all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_dtypes import bfloat16

import rematc
from rematc.ir.core import Graph
from rematc.passes.recognize import Recognize

ROWS, LENGTH, CLASSES = 3, 4, 7
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(ROWS, LENGTH, CLASSES)).astype(np.float32)
LABELS = RANDOM.integers(-CLASSES, CLASSES, (ROWS, LENGTH)).astype(np.int32)
WEIGHTS = RANDOM.normal(size=(ROWS, LENGTH)).astype(np.float32)

FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "take_along_axis": lambda x, at: jnp.take_along_axis(x, at[..., None], -1)[..., 0],
    "take_along_axis, clipped": lambda x, at: jnp.take_along_axis(x, at[..., None], -1, mode="clip")[..., 0],
    "indices of each dimension": lambda x, at: x[jnp.arange(ROWS)[:, None], jnp.arange(LENGTH)[None], at],
    "NumPy's indices": lambda x, at: x[np.arange(ROWS)[:, None], np.arange(LENGTH)[None], at],
    "flat rows": lambda x, at: x.reshape(-1, CLASSES)[jnp.arange(ROWS * LENGTH), at.reshape(-1)].reshape(ROWS, LENGTH),
    "vmap": jax.vmap(jax.vmap(lambda row, label: row[label])),
    "another dimension": lambda x, at: x[jnp.arange(ROWS), at[:, 0] % LENGTH][:, :LENGTH],
    "the diagonal": lambda x, at: x[jnp.arange(ROWS), jnp.arange(ROWS)][:, :LENGTH],
    "one row": lambda x, at: x[:1][jnp.arange(1)[:, None], jnp.arange(LENGTH)[None], at[:1]],
}


def _loss(form: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, at: jnp.sum(jnp.sin(form(x, at)) * WEIGHTS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8])
def test_its_gradient_is_jaxs_and_takes_no_scatter(form: str, dtype: Any) -> None:
    loss, at = _loss(FORMS[form]), (LABELS % CLASSES if dtype is np.uint8 else LABELS).astype(dtype)
    gradient = rematc.grad(rematc.from_jax(loss))
    np.testing.assert_array_equal(gradient(LOGITS, at), jax.grad(loss)(LOGITS, at))
    assert "stablehlo.scatter" not in rematc.lower(gradient, LOGITS, at).stablehlo()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_rows_longer_than_an_index_can_say(dtype: Any) -> None:
    x, at = RANDOM.normal(size=(4, 300)).astype(np.float32), np.array([0, 127, 5, 100], dtype)

    def loss(x: Any, at: Any) -> Any:
        return jnp.sum(jnp.take_along_axis(x, at[:, None], 1) ** 2)

    np.testing.assert_array_equal(rematc.grad(rematc.from_jax(loss))(x, at), jax.grad(loss)(x, at))


MANY: dict[str, Callable[[Any, Any], Any]] = {
    "several of a row": lambda x, at: jnp.take_along_axis(x, at[..., None].repeat(2, -1), -1)[..., 0].sum(),
    "rows in another order": lambda x, at: x[jnp.arange(ROWS)[::-1, None], jnp.arange(LENGTH)[None], at].sum(),
    "some of the rows": lambda x, at: x[jnp.arange(ROWS - 1)[:, None], jnp.arange(LENGTH)[None], at[1:]].sum(),
    "from another row on": lambda x, at: x[1 + jnp.arange(ROWS - 1)[:, None], jnp.arange(LENGTH)[None], at[1:]].sum(),
    "one of all rows": lambda x, at: x[0][jnp.arange(LENGTH)[None], at].sum(),
    "both along one dimension": lambda x, at: x[:, :ROWS, :ROWS][:, jnp.arange(ROWS), jnp.arange(ROWS)].sum(),
    "parts of rows": lambda x, at: jax.vmap(lambda row, i: jax.lax.dynamic_slice(row, (i, i), (2, 3)))(
        x, at[:, 0]
    ).sum(),
}


@pytest.mark.parametrize("form", MANY)
def test_what_may_fall_on_one_element_twice_or_is_no_single_element(form: str) -> None:
    def loss(x: Any, at: Any) -> Any:
        return jnp.sin(MANY[form](jnp.sin(x), at))

    ours: Any = rematc.grad(rematc.from_jax(loss))(LOGITS, LABELS)
    np.testing.assert_allclose(ours, jax.grad(loss)(LOGITS, LABELS), rtol=1e-5)


def _gathers(graph: Graph) -> list[Any]:
    return [eqn.op for eqn in graph.equations if eqn.op.name == "gather"]


def test_indices_that_count_rows_become_batching_dimensions() -> None:
    graph = rematc.trace(rematc.from_jax(FORMS["indices of each dimension"]), LOGITS, LABELS)
    (before,), (after,) = _gathers(graph), _gathers(Recognize().run(graph))
    assert before.dimension_numbers.start_index_map == (0, 1, 2)
    assert after.dimension_numbers.start_index_map == (2,)
    assert after.dimension_numbers.operand_batching_dims == (0, 1)


def test_derivatives_of_derivatives() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(jnp.take_along_axis(jnp.sin(x), LABELS[..., None] % CLASSES, -1) ** 3)

    ours: Any = rematc.hessian(rematc.from_jax(loss))(LOGITS)
    np.testing.assert_allclose(ours, jax.hessian(loss)(LOGITS), rtol=1e-5, atol=1e-6)


TOKENS, VOCABULARY = 256, 4096


def _mean(x: Any, at: Any) -> Any:
    return jnp.mean(jax.nn.logsumexp(x, axis=-1) - jnp.take_along_axis(x, at[:, None], -1)[:, 0])


def _by_log_softmax(x: Any, at: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), at[:, None], -1))


def _by_rows(x: Any, at: Any) -> Any:
    return jnp.mean(jax.nn.logsumexp(x, axis=-1) - x[jnp.arange(TOKENS), at])


@pytest.mark.parametrize(
    ("head", "dtype", "arrays"), [(_by_log_softmax, np.float32, 2.1), (_mean, bfloat16, 2.3), (_by_rows, bfloat16, 2.3)]
)
def test_a_cross_entropy_writes_no_zeros_as_large_as_its_logits(
    head: Callable[[Any, Any], Any], dtype: Any, arrays: float
) -> None:
    def loss(w: Any, h: Any, at: Any) -> Any:
        return head((h @ w).astype(np.float32), at)

    arguments = np.ones((64, VOCABULARY), dtype), np.ones((TOKENS, 64), dtype), np.zeros(TOKENS, np.int32)
    taken = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss), (0, 1)), *arguments).compile().memory().temp_bytes
    assert taken < arrays * TOKENS * VOCABULARY * 4
