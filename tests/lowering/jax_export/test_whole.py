"""A gradient as one equation of JAX's: on one CPU it is written as that holds least, elsewhere as it stands."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params

import rematc
import rematc.jax as rjax
from rematc.lowering.jax_export.whole import NAME
from rematc.lowering.targeting import current_target
from tests.support.many_devices import said_by

W, X = jnp.sin(jnp.arange(32.0 * 512).reshape(32, 512)), jnp.cos(jnp.arange(4 * 64 * 32.0).reshape(4, 64, 32))
LABELS = jnp.arange(4 * 64).reshape(4, 64)


def loss(w: Any, x: Any, labels: Any) -> Any:
    """A head whose logits have three dimensions."""
    logits = jnp.log1p(jnp.tanh(x) + 2) @ w
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))


def primitives(function: Any, *arguments: Any) -> set[str]:
    found: set[str] = set()

    def collect(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            found.add(eqn.primitive.name)
            for inner in jaxprs_in_params(eqn.params):
                collect(inner)

    collect(jax.make_jaxpr(function)(*arguments).jaxpr)
    return found


def assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert jnp.allclose(one, other, atol=1e-6), (one, other)


pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="arranged for the CPU")


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_inside_of_jit_it_takes_no_more_than_by_itself(policy: str) -> None:
    w, logits = jnp.tile(W, 8), 4 * 64 * 4096 * 4
    gradient = rjax.value_and_grad(loss, (0, 1), policy=policy)
    compiled = jax.jit(gradient).lower(w, X, LABELS).compile()
    alone = rematc.compile(rematc.value_and_grad(rematc.from_jax(loss), (0, 1), policy=policy), w, X, LABELS)
    memory: Any = compiled.memory_analysis()
    taken = memory.temp_size_in_bytes
    if current_target().barriers_hold:
        assert taken <= alone.memory().temp_bytes + logits / 16
    assert taken < (1.3 if current_target().shares_behind_barriers else 3.3) * logits
    assert_close(compiled(w, X, LABELS), jax.value_and_grad(loss, (0, 1))(w, X, LABELS))


def test_what_needs_no_other_shape_is_what_it_was() -> None:
    plain = primitives(rjax.grad(lambda w, x: jnp.sum(jnp.tanh(x[0] @ w))), W, X)
    assert NAME not in plain and "dot_general" in plain
    assert NAME in primitives(rjax.grad(loss), W, X, LABELS)


@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "vmap of grad"])
def test_under_transformations(transform: str) -> None:
    def of(value_and_grad: Any) -> Any:
        def norm(w: Any) -> Any:
            value, slope = value_and_grad(loss)(w, X, LABELS)
            return value + jnp.sum(slope**2)

        match transform:
            case "vmap":
                return jax.vmap(norm)(jnp.stack([W, 2 * W]))
            case "grad":
                return jax.grad(norm)(W)
            case "jvp":
                return jax.jvp(norm, (W,), (jnp.ones_like(W),))
            case _:
                return jax.jit(jax.vmap(jax.grad(norm)))(jnp.stack([W, 2 * W]))

    assert_close(of(rjax.value_and_grad), of(jax.value_and_grad))


def test_some_operands_of_a_batch_are_alike_and_axes_have_names() -> None:
    gradient = rjax.value_and_grad(loss, (0, 1))
    batched = jax.jit(jax.vmap(gradient, in_axes=(None, 1, 1), out_axes=(0, 1), axis_name="rows"))
    expected = jax.vmap(jax.value_and_grad(loss, (0, 1)), in_axes=(None, 1, 1), out_axes=(0, 1))
    arguments = W, jnp.stack([X, -X], 1), jnp.stack([LABELS, LABELS + 1], 1)
    assert_close(batched(*arguments), expected(*arguments))


def test_it_comes_in_again() -> None:
    def step(w: Any) -> Any:
        return w - 0.1 * rjax.grad(loss)(w, X, LABELS)

    assert_close(rematc.jit(rematc.from_jax(step))(W), W - 0.1 * jax.grad(loss)(W, X, LABELS))
    assert_close(rjax.jit(step, budget="100%")(W), W - 0.1 * jax.grad(loss)(W, X, LABELS))


def test_in_32_bit_mode_with_64_bit_parts() -> None:
    def wide(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2) + jnp.sum(jax.scipy.special.digamma(x + 2))

    assert_close(jax.jit(rjax.grad(wide))(W, X), jax.grad(wide)(W, X))


def test_without_jit() -> None:
    with jax.disable_jit():
        assert_close(rjax.grad(loss)(W, X, LABELS), jax.grad(loss)(W, X, LABELS))


def test_lowered_for_another_platform_it_stands_as_it_was() -> None:
    gradient = jax.jit(rjax.value_and_grad(loss, policy="nothing"))
    for platform in ("cpu", "tpu"):
        text = gradient.trace(W, X, LABELS).lower(lowering_platforms=(platform,)).as_text()
        assert ("tensor<256x512xf32>" in text) == (platform == current_target().platform)
    exported: Any = jax.export.export(gradient, platforms=("cpu", "cuda"))(W, X, LABELS)
    assert "tensor<256x512xf32>" not in exported.mlir_module()
    assert_close(exported.call(W, X, LABELS), jax.value_and_grad(loss)(W, X, LABELS))


_ON_FOUR = """
import json, re
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import rematc.jax as rjax
from tests.lowering.jax_export.test_whole import LABELS, W, X, loss

mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
tokens = NamedSharding(mesh, P(None, "d")), NamedSharding(mesh, P(None, "d"))
whole = NamedSharding(mesh, P())
found = {}
for name, gradient in (("ours", rjax.value_and_grad(loss, policy="nothing")), ("theirs", jax.value_and_grad(loss))):
    def step(w, x, labels):
        return gradient(w, x, labels)

    compiled = jax.jit(step, in_shardings=(whole, *tokens)).lower(W, X, LABELS).compile()
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute")
    text = compiled.as_text()
    found[name] = {kind: len(re.findall(kind + r"(?:-start)?\\(", text)) for kind in kinds}
    value, slope = compiled(*[jax.device_put(a, s) for a, s in zip((W, X, LABELS), (whole, *tokens))])
    found[name]["value"] = float(value)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_no_dimension_is_joined_that_lies_on_several_devices() -> None:
    """The tokens, which a flat product has joined with the batch, are spread by the user's own `jax.jit`."""
    found = said_by(_ON_FOUR, 4)
    ours, theirs = found["ours"], found["theirs"]
    assert abs(ours.pop("value") - theirs.pop("value")) < 1e-5
    assert ours["all-gather"] == ours["all-to-all"] == ours["collective-permute"] == 0
    assert ours["all-reduce"] <= theirs["all-reduce"] + 1
