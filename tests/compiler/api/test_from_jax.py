"""`from_jax`: the values, derivatives, types and lines of JAX functions survive the way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.scheduling_groups import xla_metadata_call

import rematc
from rematc.ir.errors import CompileError

#: Lambdas have no types of their own.
from_jax: Any = rematc.from_jax
config: Any = jax.config
RNG = np.random.RandomState(0)
LINES = Path(__file__).read_text().splitlines()


class Layer(NamedTuple):
    """Parameters in a node that is no dict."""

    w: Any
    b: Any
    scale: Any = None


def parameters() -> dict[str, Any]:
    numbers = np.random.RandomState(0)  # the same whichever tests ran before
    first = Layer(numbers.randn(4, 8).astype(np.float32), np.zeros(8, np.float32))
    second = Layer(numbers.randn(8, 3).astype(np.float32), np.zeros(3, np.float32))
    return {"first": first, "second": second, "unused": None}


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = jax.nn.gelu(x @ params["first"].w + params["first"].b)
    logits = hidden @ params["second"].w + params["second"].b
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def batch() -> tuple[Any, Any]:
    numbers = np.random.RandomState(1)
    return numbers.randn(5, 4).astype(np.float32), numbers.randint(0, 3, 5).astype(np.int32)


def assert_trees_close(found: Any, expected: Any) -> None:
    assert str(jax.tree_util.tree_structure(found)) == str(jax.tree_util.tree_structure(expected))
    leaves = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True)
    for one, other in leaves:
        # Both sum in float32; XLA fuses the two programs differently.
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.parametrize("policy", ["none", "dots", "nothing"])
def test_values_and_gradients_are_those_of_jax_under_every_policy(policy: str) -> None:
    params, (x, y) = parameters(), batch()
    found = rematc.value_and_grad(from_jax(loss), policy=policy)(params, x, y)
    # Compiled as a whole, as rematc's is: not optimized, that rounds otherwise than one operation after another.
    assert_trees_close(found, jax.jit(jax.value_and_grad(loss))(params, x, y))


def test_a_batched_function_is_that_of_jax() -> None:
    params, (x, y) = parameters(), batch()
    xs, ys = np.stack([x, x + 1]), np.stack([y, y])
    found = rematc.vmap(from_jax(loss), in_axes=(None, 0, 0))(params, xs, ys)
    assert_trees_close(found, jax.vmap(loss, in_axes=(None, 0, 0))(params, xs, ys))


def test_second_derivatives_are_those_of_jax() -> None:
    def function(x: Any) -> Any:
        return (jnp.sin(x) * jax.nn.softplus(x) ** 3).sum()

    x = RNG.randn(3).astype(np.float32)
    assert_trees_close(rematc.hessian(from_jax(function))(x), jax.hessian(function)(x))


def test_a_function_that_calls_numpy_and_an_imported_one_is_one_graph() -> None:
    params, (x, y) = parameters(), batch()
    imported = from_jax(loss)

    def whole(params: Any, x: Any, y: Any) -> Any:
        return np.square(imported(params, x, y)) + 1

    found = rematc.grad(whole)(params, x, y)
    assert_trees_close(found, jax.jit(jax.grad(lambda p: jnp.square(loss(p, x, y)) + 1))(params))


def test_saved_values_have_the_line_of_the_model() -> None:
    params, (x, y) = parameters(), batch()
    saved = rematc.saved_residuals(from_jax(loss), params, x, y)
    lines = {residual.loc.line for residual in saved if residual.loc is not None and residual.loc.file == __file__}
    hidden = next(number for number, line in enumerate(LINES, 1) if "hidden = jax.nn.gelu" in line)
    assert hidden in lines


def test_what_jax_defines_has_the_line_of_its_caller_not_of_the_first_one() -> None:
    def twice(x: Any) -> Any:
        first = jax.nn.silu(x)
        return jax.nn.silu(first)

    lowered = rematc.lower(from_jax(twice), np.ones(3, np.float32))
    calls = [number for number, line in enumerate(LINES, 1) if "jax.nn.silu(" in line and "LINES" not in line]
    located = [eqn.loc.line for eqn in lowered.graph.equations if eqn.op.name == "logistic" and eqn.loc is not None]
    assert located == calls


def test_large_constants_are_no_text_and_small_ones_are() -> None:
    large = jnp.asarray(RNG.randn(100, 3).astype(np.float32))
    small = jnp.asarray(np.array([1, 2, 4], np.float32))
    lowered = rematc.lower(from_jax(lambda x: (large * x).sum() + (small * x).sum()), np.ones(3, np.float32))
    assert len(lowered.stablehlo()) < 4000
    value = from_jax(lambda x: (large * x).sum() + (small * x).sum())(np.ones(3, np.float32))
    np.testing.assert_allclose(value, np.asarray(large).sum() + 7, rtol=1e-5)


def test_a_constant_of_two_functions_is_one_parameter() -> None:
    table = jnp.asarray(RNG.randn(100, 3).astype(np.float32))
    inner = jax.jit(lambda x: (table + x).sum())
    lowered = rematc.lower(from_jax(lambda x: inner(x) + (table * x).sum()), np.ones(3, np.float32))
    assert len(lowered.graph.params) == 2


def test_flags_and_static_arguments_reach_the_function_as_they_are() -> None:
    def function(x: Any, power: int, train: bool = False) -> Any:
        found = x
        for _ in range(power):
            found = found * x
        return found if train else found + 1

    imported = from_jax(function, static_argnums=1)
    x = np.full(2, 2, np.float32)
    np.testing.assert_array_equal(imported(x, 3), 17)
    np.testing.assert_array_equal(imported(x, 1, train=True), 4)
    np.testing.assert_array_equal(rematc.grad(lambda x: imported(x, 3).sum())(x), 32)


def test_weak_types_stay_weak() -> None:
    imported = from_jax(jnp.sin)
    half = np.ones(2, np.float16)
    assert rematc.jit(lambda x: imported(2.0) * x)(half).dtype == np.float16
    assert rematc.jit(lambda x: imported(np.float32(2)) * x)(half).dtype == np.float32


def test_element_types_follow_the_flag_of_jax() -> None:
    wide = np.arange(3, dtype=np.float64)
    found: Any = rematc.value_and_grad(from_jax(lambda x: jnp.sum(x * jnp.ones(3))))(wide)
    value, gradient = found
    assert (value.dtype, gradient.dtype) == (np.float32, np.float64)
    config.update("jax_enable_x64", True)
    try:
        assert from_jax(lambda x: x * jnp.ones(3))(wide).dtype == np.float64
    finally:
        config.update("jax_enable_x64", False)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.complex64, jnp.float8_e4m3fn], ids=str)
def test_narrow_and_complex_types_survive(dtype: Any) -> None:
    x = jnp.asarray([0.5, 1, 2], dtype)
    found = from_jax(lambda x: jnp.sin(x) if dtype is not jnp.float8_e4m3fn else x * 2)(x)
    expected = jnp.sin(x) if dtype is not jnp.float8_e4m3fn else x * 2
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_an_imported_function_works_under_jit_of_jax() -> None:
    params, (x, y) = parameters(), batch()
    step = rematc.value_and_grad(from_jax(loss), policy="dots")
    assert_trees_close(jax.jit(step)(params, x, y), jax.value_and_grad(loss)(params, x, y))


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(CompileError, match="takes a function, got a int"):
        from_jax(3)


def test_a_function_of_many_nested_calls_is_imported() -> None:
    def nested(depth: int) -> Any:
        function: Any = jnp.sin
        for _ in range(depth):
            function = jax.jit(lambda x, inner=function: inner(x) + 1)
        return function

    x = np.ones(2, np.float32)
    found = from_jax(nested(100))(x)
    np.testing.assert_allclose(found, np.sin(1) + 100, rtol=1e-6)


def test_a_large_constant_of_jax_is_not_copied() -> None:
    table = jnp.asarray(RNG.randn(300, 3).astype(np.float32))
    lowered = rematc.lower(from_jax(lambda x: (table * x).sum()), np.ones(3, np.float32))
    (constant,) = lowered.program.constants
    assert np.shares_memory(constant, np.asarray(table))
    assert not constant.flags.writeable


def test_named_scopes_tell_layers_of_one_line_apart() -> None:
    @jax.jit
    def layer(x: Any) -> Any:
        with jax.named_scope("attention"):
            return jnp.sin(x)

    def model(x: Any) -> Any:
        for index in range(2):
            with jax.named_scope(f"layer_{index}"):
                x = layer(x)
        return jax.lax.scan(lambda x, _: (jax.named_scope("step")(jnp.cos)(x), None), x, None, 2)[0]

    lowered = rematc.lower(from_jax(model), np.ones(3, np.float32))
    found = [eqn.loc.function for eqn in lowered.graph.equations if eqn.op.name == "sine" and eqn.loc is not None]
    name = "test_named_scopes_tell_layers_of_one_line_apart.<locals>.layer".rpartition("<locals>.")[2]
    assert found == [f"layer_0/attention/{name}", f"layer_1/attention/{name}"]


@pytest.mark.parametrize(
    "function", [lambda p: lambda q: (q * p).sum(), lambda p: lambda q: jnp.sum(jnp.multiply(p, q))], ids=["*", "jnp"]
)
def test_a_traced_value_from_outside_is_an_error_that_says_so(function: Any) -> None:
    with pytest.raises(CompileError, match="reads a value from outside that rematc traces; pass it as an argument"):
        rematc.grad(lambda p: from_jax(function(p))(p))(np.ones(3, np.float32))


def test_errors_of_jax_name_the_users_function() -> None:
    def branching(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"function branching at .*test_from_jax\.py"):
        from_jax(branching)(np.ones(3, np.float32))


def test_typed_keys_are_arguments() -> None:
    def noisy(x: Any, key: Any) -> Any:
        return (x * jax.random.normal(key, x.shape)).sum()

    x, key = np.ones(3, np.float32), jax.random.key(1)
    assert_trees_close(rematc.value_and_grad(from_jax(noisy))(x, key), jax.value_and_grad(noisy)(x, key))


def test_a_value_that_jax_traces_around_the_function_is_an_error_that_says_so() -> None:
    @jax.jit
    def step(p: Any, x: Any) -> Any:
        return rematc.grad(from_jax(lambda q: (q * x).sum()))(p)

    with pytest.raises(CompileError, match=r"that JAX traces around it; .* use rematc\.jax\.value_and_grad"):
        step(np.ones(3, np.float32), np.ones(3, np.float32))


def test_a_block_with_64_bit_types_is_a_part_of_the_signature() -> None:
    function = rematc.from_jax(lambda x: jnp.sin(x) * 2)
    outer = rematc.jit(lambda x: function(x) + 1)
    x = np.linspace(0, 1, 3)
    for _ in range(2):
        assert function(x).dtype == outer(x).dtype == np.float32
        with jax.enable_x64(True):
            assert function(x).dtype == outer(x).dtype == np.float64


def test_what_xla_is_told_of_a_function_is_no_part_of_its_value() -> None:
    told: Any = xla_metadata_call(inlineable="false")  # type: ignore[no-untyped-call]  # left unannotated
    step: Any = rematc.value_and_grad(from_jax(told(lambda x: jnp.sin(x) * 2)))
    np.testing.assert_allclose(step(np.float32(0.5)), (2 * np.sin(0.5), 2 * np.cos(0.5)), rtol=1e-6)
