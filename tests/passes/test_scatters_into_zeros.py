"""What JAX's derivatives add to zeros is chosen by its place: nothing writes zeros as large as the logits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.gather_scatter import ScatterDimensions
from rematc.ir.ops.indexing import ScatterAdd
from rematc.ir.types import F32, I8, I32, U8, DType, TensorType
from rematc.passes.dce import DeadCode
from rematc.passes.simplify import Simplify
from tests.passes.test_batched_gathers import FORMS, LABELS, LOGITS, MANY, WEIGHTS
from tests.support.random_graphs import same_bits

#: Those in which a dimension has one element: a scatter skips what is not at its 0.
ONE_ROW = {"one row"}
OF_ROWS = {name: form for name, form in FORMS.items() if name not in ONE_ROW}
ONCE = OF_ROWS | {name: MANY[name] for name in ("both along one dimension",)}


@pytest.mark.parametrize("form", ONCE)
def test_a_gradient_that_jax_took_has_no_scatter(form: str) -> None:
    gradient = jax.grad(lambda x, at: jnp.sum(jnp.sin(ONCE[form](x, at)) * WEIGHTS))
    lowered = rematc.lower(rematc.from_jax(gradient), LOGITS, LABELS)
    assert "stablehlo.scatter" not in lowered.stablehlo()
    ours: Any = lowered.compile()(LOGITS, LABELS)
    np.testing.assert_allclose(ours, jax.jit(gradient)(LOGITS, LABELS), rtol=1e-6)


@pytest.mark.parametrize("form", [form for form in MANY | FORMS if form not in ONCE])
def test_one_that_may_meet_an_element_twice_keeps_it(form: str) -> None:
    gradient = jax.grad(lambda x, at: jnp.sum((MANY | FORMS)[form](jnp.sin(x), at)))
    lowered = rematc.lower(rematc.from_jax(gradient), LOGITS, LABELS)
    assert "stablehlo.scatter" in lowered.stablehlo()
    ours: Any = lowered.compile()(LOGITS, LABELS)
    np.testing.assert_allclose(ours, jax.jit(gradient)(LOGITS, LABELS), rtol=1e-5)


def scattered(zero: float, integers: DType, reduced: str = "") -> Graph:
    """Of each of four rows of three, what is added at one place; or the sums of the rows."""
    b = Builder()
    at, updates = b.parameter(TensorType(integers, (4, 1))), b.parameter(TensorType(F32, (4, 1)))
    rows = b.broadcast_in_dim(b.full(TensorType(F32, ()), zero), (4, 3), ())
    dims = ScatterDimensions((), (1,), (1,), 1, (0,), (0,))
    added = b.emit1(ScatterAdd(dims), rows, at, b.reshape(updates, (4,)))
    if reduced:
        added = b.reduce_sum(b.negate(added) if reduced == "negated" else added, (1,))
    return b.build(added)


@pytest.mark.parametrize("reduced", ["", "sums", "negated"])
@pytest.mark.parametrize("integers", [I32, I8, U8], ids=str)
def test_special_values_and_places_outside(integers: DType, reduced: str) -> None:
    before = scattered(0.0, integers, reduced)
    after = Simplify().run(before)
    assert not {"scatter_add", "reduce_sum"} & {eqn.op.name for eqn in DeadCode().run(after).equations}
    places = np.array([[0], [2], [3], [-1]]).astype(integers.numpy)
    arguments = [places, np.array([[-0.0], [np.nan], [np.inf], [1]], np.float32)]
    assert same_bits(evaluate(after, arguments), evaluate(before, arguments))


def test_what_is_added_to_negative_zeros_stays() -> None:
    before = scattered(-0.0, I32)
    assert Simplify().run(before) is before


VOCABULARY, TOKENS = 4096, 256


def _step(ws: Any, x: Any, at: Any) -> Any:
    def loss(ws: Any) -> Any:
        logits = jnp.tanh(x @ ws[0]) @ ws[1]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, at[:, None], -1)[:, 0])

    value, gradients = jax.value_and_grad(loss)(ws)
    return value, [w - gradient for w, gradient in zip(ws, gradients, strict=True)]


def test_a_step_of_a_cross_entropy_takes_its_logits_once() -> None:
    """Beside the gradients. Nothing is computed again for it: the step is ordered and arranged otherwise."""
    ws = np.ones((64, 64), np.float32), np.ones((64, VOCABULARY), np.float32)
    args = ws, np.ones((TOKENS, 64), np.float32), np.zeros(TOKENS, np.int32)
    logits = TOKENS * VOCABULARY * 4
    step: Any = rematc.jax.jit(_step, budget=int(1.5 * logits), donate_argnums=0)
    planned = step.report(*args).budget
    assert planned is not None and planned.measured is not None
    assert logits <= planned.measured <= 1.5 * logits
    assert planned.plan.extra_flops == 0
