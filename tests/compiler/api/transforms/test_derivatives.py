"""Derivatives of NumPy functions through the public interface: values as JAX has them, errors that help."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc

# Results are trees, which tests know and types do not.
grad: Any = rematc.grad
value_and_grad: Any = rematc.value_and_grad
vjp: Any = rematc.vjp
jvp: Any = rematc.jvp
linearize: Any = rematc.linearize

# XLA fuses our program and JAX's differently: sums come in another order.
CLOSE: Any = {"rtol": 1e-12, "atol": 1e-14}


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """JAX as the oracle computes in float64."""
    with jax.enable_x64(True):
        yield


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(0.2, 0.6, shape) for shape in shapes]


def same_trees(found: Any, expected: Any) -> None:
    """Trees of one structure, whose arrays are close and of one element type."""
    assert str(jax.tree_util.tree_structure(found)) == str(jax.tree_util.tree_structure(expected))
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, **CLOSE)


def loss(w: Any, x: Any, b: Any) -> Any:
    """In NumPy or, of JAX's arrays, in JAX."""
    xp = np if not isinstance(w, jax.Array) else jnp
    return xp.sum(xp.tanh(w @ xp.sin(x) + b) ** 2)


ARGUMENTS = arrays((3, 4), (4,), (3,))


def in_jax(function: Callable[..., Any], *args: Any) -> Any:
    """`function` of the arguments as JAX's arrays, compiled."""
    return jax.jit(function)(*jax.tree_util.tree_map(jnp.asarray, args))


# -- argnums -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argnums", [0, 1, -1, (0,), (0, 2), (2, 0), (-1, 1), [1], np.int64(1)], ids=str)
def test_argnums(argnums: Any) -> None:
    same_as = argnums if isinstance(argnums, (list, tuple)) else int(argnums)
    expected = in_jax(jax.value_and_grad(loss, argnums=same_as), *ARGUMENTS)
    same_trees(value_and_grad(loss, argnums)(*ARGUMENTS), expected)
    same_trees(grad(loss, argnums)(*ARGUMENTS), expected[1])


@pytest.mark.parametrize("policy", ["none", "everything", "nothing", "dots", "dots-no-batch", "names=a", "except=a"])
def test_a_policy_on_the_whole_function_changes_no_gradient(policy: str) -> None:
    expected = in_jax(jax.grad(loss, argnums=(0, 1, 2)), *ARGUMENTS)
    same_trees(grad(loss, (0, 1, 2), policy=policy)(*ARGUMENTS), expected)


def test_aux_is_returned_beside() -> None:
    def with_aux(x: Any, y: Any) -> Any:
        squares = x * y
        return np.sum(squares * squares), {"squares": squares, "count": 3, "none": None}

    def jax_with_aux(x: Any, y: Any) -> Any:
        return jnp.sum((x * y) ** 2), {"squares": x * y, "count": 3, "none": None}

    x, y = arrays((3,), (3,))
    expected = in_jax(jax.value_and_grad(jax_with_aux, has_aux=True), x, y)
    same_trees(value_and_grad(with_aux, has_aux=True)(x, y), expected)
    gradient, aux = grad(with_aux, has_aux=True)(x, y)
    same_trees((gradient, aux), (expected[1], expected[0][1]))


def test_aux_saves_nothing() -> None:
    def with_aux(x: Any) -> Any:
        return np.sum(np.sin(x)), np.exp(np.exp(x))

    lowered = rematc.lower(value_and_grad(with_aux, has_aux=True), *arrays((3,)))
    (report,) = lowered.derivatives
    assert [row.provenance.split()[2] for row in report.residuals] == ["cosine"]


def test_keyword_arguments_are_not_differentiated() -> None:
    def scaled(x: Any, *, scale: Any, kind: str = "sin") -> Any:
        return np.sum((np.sin if kind == "sin" else np.cos)(x) * scale)

    (x,) = arrays((3,))
    for kind, derivative in (("sin", np.cos(x)), ("cos", -np.sin(x))):
        same_trees(grad(scaled)(x, scale=2.0, kind=kind), 2 * derivative)


# -- pytrees -----------------------------------------------------------------------------------------------------------


class Affine(NamedTuple):
    """A tuple with names."""

    weights: Any
    bias: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """A registered dataclass with a static field."""

    affine: Affine
    scale: Any
    activation: str = dataclasses.field(metadata={"static": True})


def test_gradients_have_the_trees_of_the_arguments() -> None:
    w, b, x = arrays((3, 4), (3,), (4,))
    params = {"layers": [Layer(Affine(w, b), (2.0, None), "sin")], "empty": ()}

    def model(xp: Any) -> Callable[..., Any]:
        def of(params: Any, x: Any) -> Any:
            (layer,) = params["layers"]
            return xp.sum(getattr(xp, layer.activation)(layer.affine.weights @ x + layer.affine.bias) * layer.scale[0])

        return of

    expected = in_jax(jax.grad(model(jnp), argnums=(0, 1)), params, x)
    same_trees(grad(model(np), argnums=(0, 1))(params, x), expected)


def test_python_numbers_have_gradients() -> None:
    same_trees(grad(lambda x: x * x * 3)(2.0), np.float64(12.0))
    same_trees(grad(lambda x, n: x * n)(np.float32(2.0), 3), np.float32(3.0))


def test_arguments_without_influence_have_zero_gradients() -> None:
    x, y = arrays((3,), (2, 2))
    same_trees(grad(lambda x, y: np.sum(x), argnums=(0, 1))(x, y), (np.ones(3), np.zeros((2, 2))))
    same_trees(grad(lambda x: np.float64(1.0))(x), np.zeros(3))
    same_trees(grad(lambda x: np.sum(np.floor(x)))(x), np.zeros(3))
    same_trees(grad(lambda x: np.sum((x > 0) * 1.0))(x), np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, jnp.bfloat16], ids=str)
def test_gradients_have_the_element_type_of_the_argument(dtype: Any) -> None:
    x = np.asarray([0.5, 1.0, 2.0], dtype)
    value, gradient = value_and_grad(lambda x: np.sum(x * x))(x)
    assert np.asarray(value).dtype == np.asarray(gradient).dtype == dtype
    np.testing.assert_array_equal(np.asarray(gradient), 2 * x)


# -- closures ----------------------------------------------------------------------------------------------------------


def test_an_inner_derivative_closes_over_an_outer_argument() -> None:
    def outer(xp: Any, gradient: Any) -> Callable[..., Any]:
        def of(x: Any, y: Any) -> Any:
            inner = gradient(lambda y: xp.sum(xp.sin(x * y) * y))
            return xp.sum(inner(y) ** 2)

        return of

    x, y = arrays((3,), (3,))
    expected = in_jax(jax.grad(outer(jnp, jax.grad), argnums=(0, 1)), x, y)
    same_trees(grad(outer(np, grad), argnums=(0, 1))(x, y), expected)


def test_closed_over_arrays_of_any_size() -> None:
    small, large, x = arrays((4,), (100, 4), (4,))
    same_trees(grad(lambda x: np.sum((large @ (x * small)) ** 2))(x), 2 * (large * small).T @ (large @ (x * small)))


# -- derivatives of derivatives ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_second_and_third_derivatives(policy: str | None) -> None:
    def first(x: Any) -> Any:
        return rematc.checkpoint(lambda x: np.sin(x) * np.exp(x), policy=policy)(x)

    derivative: Any = first
    expected: Any = lambda x: jnp.sin(x) * jnp.exp(x)  # noqa: E731  # differentiated in turn
    for _ in range(3):
        derivative, expected = grad(derivative, policy=policy), jax.grad(expected)
        same_trees(derivative(0.7), np.float64(in_jax(expected, 0.7)))


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_products_with_the_hessian_in_every_order(is_checkpointed: bool) -> None:
    def function(w: Any) -> Any:
        return np.sum(np.tanh(w @ np.sin(w)) ** 2)

    def jax_function(w: Any) -> Any:
        return jnp.sum(jnp.tanh(w @ jnp.sin(w)) ** 2)

    f = rematc.checkpoint(function) if is_checkpointed else function
    w, t = arrays((3, 3), (3, 3))
    expected = in_jax(lambda w, t: jax.jvp(jax.grad(jax_function), (w,), (t,))[1], w, t)
    forward_over_reverse = jvp(grad(f), (w,), (t,))[1]
    reverse_over_forward = grad(lambda w: jvp(f, (w,), (t,))[1])(w)
    reverse_over_reverse = grad(lambda w: np.sum(grad(f)(w) * t))(w)
    through_vjp = vjp(grad(f), w)[1](t)[0]
    through_linearize = linearize(grad(f), w)[1](t)
    for found in (forward_over_reverse, reverse_over_forward, reverse_over_reverse, through_vjp, through_linearize):
        same_trees(found, expected)


# -- vjp, jvp, linearize -----------------------------------------------------------------------------------------------


def polar(xp: Any) -> Callable[..., Any]:
    """Two arguments to a dict of two results."""

    def of(r: Any, point: Any) -> Any:
        return {"x": r * xp.cos(point["angle"]), "y": (r * xp.sin(point["angle"]) + point["shift"], r * r)}

    return of


def polar_arguments() -> tuple[Any, Any]:
    r, angle, shift = arrays((3,), (3,), ())
    return r, {"angle": angle, "shift": shift}


def test_vjp_of_trees() -> None:
    arguments = polar_arguments()
    outputs, pull_back = vjp(polar(np), *arguments)
    cts = jax.tree_util.tree_map(lambda x: np.cos(np.asarray(x)), outputs)

    def in_both(r: Any, point: Any, cts: Any) -> Any:
        outputs, pull_back = jax.vjp(polar(jnp), r, point)
        return outputs, pull_back(cts)

    same_trees((outputs, pull_back(cts)), in_jax(in_both, *arguments, cts))


def test_jvp_and_linearize_of_trees() -> None:
    arguments = polar_arguments()
    tangents = jax.tree_util.tree_map(lambda x: np.asarray(x + 0.5), arguments)
    expected = in_jax(lambda p, t: jax.jvp(polar(jnp), p, t), arguments, tangents)
    same_trees(jvp(polar(np), arguments, tangents), expected)
    outputs, linear = linearize(polar(np), *arguments)
    same_trees((outputs, linear(*tangents)), expected)
    doubled = linear(*jax.tree_util.tree_map(lambda x: 2 * x, tangents))
    same_trees(doubled, jax.tree_util.tree_map(lambda x: 2 * x, expected[1]))


def test_vjp_with_aux() -> None:
    (x,) = arrays((3,))
    output, pull_back, aux = vjp(lambda x: (np.sin(x), {"cube": x**3}), x, has_aux=True)
    same_trees(output, np.sin(x))
    same_trees(aux, {"cube": x**3})
    same_trees(pull_back(np.ones(3)), (np.cos(x),))


def test_vjp_and_linearize_inside_a_trace() -> None:
    def twice(x: Any) -> Any:
        outputs, pull_back = vjp(lambda x: np.sin(x) * x, x)
        _, linear = linearize(np.exp, x)
        return np.sum(pull_back(outputs)[0] + linear(x))

    def jax_twice(x: Any) -> Any:
        outputs, pull_back = jax.vjp(lambda x: jnp.sin(x) * x, x)
        _, linear = jax.linearize(jnp.exp, x)
        return jnp.sum(pull_back(outputs)[0] + linear(x))

    (x,) = arrays((3,))
    same_trees(grad(twice)(x), in_jax(jax.grad(jax_twice), x))


def test_what_linearize_returns_computes_nothing_again() -> None:
    calls = 0

    def function(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return np.sin(x)

    _, linear = linearize(function, 0.5)
    for tangent in (1.0, 2.0):
        same_trees(linear(tangent), np.float64(tangent * np.cos(0.5)))
    assert calls == 1


def test_integer_and_flag_arguments_of_vjp_and_jvp() -> None:
    def picked(x: Any, index: Any, is_doubled: bool) -> Any:
        y = np.sin(x[index])
        return (2 * y if is_doubled else y), index + 1

    x, index = arrays((4,))[0], np.array([0, 2])
    (y, after), pull_back = vjp(lambda x, index: picked(x, index, True), x, index)
    x_ct, index_ct = pull_back((np.ones(2), np.zeros(2, np.int64)))
    same_trees(np.asarray(x_ct), np.where(np.isin(np.arange(4), index), 2 * np.cos(x), 0.0))
    assert np.asarray(index_ct).dtype == np.int64
    assert not np.asarray(index_ct).any()
    np.testing.assert_array_equal(after, index + 1)

    tangents = (np.ones(4), np.zeros(2, np.int64), False)
    (y, _), (dy, d_after) = jvp(picked, (x, index, True), tangents)
    same_trees(np.asarray(dy), 2 * np.cos(x[index]))
    assert not np.asarray(d_after).any()
    same_trees(np.asarray(y), 2 * np.sin(x[index]))


# -- jit ---------------------------------------------------------------------------------------------------------------


def test_jit_and_derivatives_of_each_other() -> None:
    expected = in_jax(jax.grad(loss), *ARGUMENTS)
    same_trees(rematc.jit(grad(loss))(*ARGUMENTS), expected)
    same_trees(grad(rematc.jit(loss))(*ARGUMENTS), expected)
    same_trees(grad(rematc.checkpoint(rematc.jit(loss)))(*ARGUMENTS), expected)


def test_what_functions_are_made_of_does_not_mix() -> None:
    """A wrapper must not take over the attributes of the compiled function in it."""
    squared = rematc.jit(lambda x: x * x)
    nested = rematc.jit(rematc.checkpoint(rematc.jit(rematc.checkpoint(squared))))
    same_trees(nested(3.0), np.float64(9.0))
    same_trees(
        value_and_grad(value_and_grad(squared), has_aux=True)(3.0),
        ((np.float64(9.0), np.float64(6.0)), np.float64(6.0)),
    )


def test_a_gradient_is_compiled_once_for_each_shape() -> None:
    count = 0

    def counted(x: Any) -> Any:
        nonlocal count
        count += 1
        return np.sum(x * x)

    gradient = grad(counted)
    for size in (2, 3, 2, 3, 3):
        gradient(np.ones(size))
    assert count == 2


def test_a_training_step_over_many_steps() -> None:
    """Gradient descent on a line: what a first user writes."""
    random = np.random.default_rng(1)
    x = random.normal(size=(50,))
    y = 3 * x - 1

    def error(params: Any, x: Any, y: Any) -> Any:
        return np.mean((params["a"] * x + params["b"] - y) ** 2)

    params: Any = {"a": np.float64(0.0), "b": np.float64(0.0)}
    step = value_and_grad(error, policy="nothing")
    for _ in range(100):
        _, gradient = step(params, x, y)
        params = jax.tree_util.tree_map(lambda p, g: np.asarray(p - 0.2 * g), params, gradient)
    np.testing.assert_allclose([params["a"], params["b"]], [3, -1], atol=1e-6)


# -- errors ------------------------------------------------------------------------------------------------------------


def _fails_here(message: str, function: Callable[[], Any]) -> None:
    """`function` fails with this text at a line of this file."""
    with pytest.raises(rematc.CompileError) as failure:
        function()
    assert message in failure.value.message
    assert failure.value.loc is not None
    assert failure.value.loc.file == __file__


def test_integers_have_no_gradient() -> None:
    _fails_here(
        "the gradient with respect to n needs floating-point values, got i64[]; leave it out of argnums",
        lambda: grad(_times, argnums=1)(1.0, 2),
    )
    _fails_here("with respect to x['n'] needs floating-point", lambda: grad(lambda x: x["y"])({"y": 1.0, "n": 1}))


def _times(x: Any, n: Any) -> Any:
    return x * n


def test_a_loss_is_one_floating_point_scalar() -> None:
    x = np.ones(3)
    _fails_here("'<lambda>' returns f64[3], expected one floating-point scalar; sum or average", lambda: grad(_same)(x))
    _fails_here("returns i64[], expected one floating-point scalar", lambda: grad(np.argmax)(x))
    _fails_here("expected one scalar; return the loss alone, or (loss, aux)", lambda: grad(lambda x: (x[0], x))(x))
    _fails_here("expected one scalar", lambda: grad(lambda x: None)(x))
    _fails_here("with has_aux '<lambda>' returns (value, aux)", lambda: grad(lambda x: x[0], has_aux=True)(x))
    _fails_here("with has_aux", lambda: grad(lambda x: {"a": x[0], "b": x}, has_aux=True)(x))
    _fails_here("with has_aux", lambda: vjp(lambda x: {"a": x[0], "b": x}, x, has_aux=True))


_same = lambda x: x  # noqa: E731  # the name that the error shows


def test_argnums_out_of_range() -> None:
    for argnums in (2, -3, (0, 2)):
        _fails_here(
            "but '_times' was called with 2 positional arguments; pass what is differentiated by position",
            lambda argnums=argnums: grad(_times, argnums)(1.0, 2.0),  # type: ignore[misc]  # bound now
        )
    _fails_here("argnums names argument 0", lambda: grad(_times)(x=1.0, n=2.0))


def test_cotangents_that_do_not_fit() -> None:
    x = np.ones(3)
    _, pull_back = vjp(lambda x: {"a": np.sin(x)}, x)
    _fails_here("the cotangents have the structure", lambda: pull_back(np.ones(3)))
    _fails_here("a cotangent has shape [2], expected f64[3]", lambda: pull_back({"a": np.ones(2)}))
    _fails_here("a cotangent is float32, expected f64[3]", lambda: pull_back({"a": np.ones(3, np.float32)}))


def test_tangents_that_do_not_fit() -> None:
    x = np.ones(3)
    _fails_here("the tangents have the structure", lambda: jvp(np.sin, (x,), (x, x)))
    _fails_here("a tangent has shape [2], expected f64[3]", lambda: jvp(np.sin, (x,), (np.ones(2),)))
    _fails_here("a tangent is float32, expected f64[3]", lambda: jvp(np.sin, (x,), (np.ones(3, np.float32),)))
    _, linear = linearize(np.sin, x)
    _fails_here("the tangents have the structure", lambda: linear(x, x))
    _fails_here("a tangent has shape [], expected f64[3]", lambda: linear(1.0))


def test_an_error_inside_the_loss_is_at_its_own_line() -> None:
    def wrong(x: Any) -> Any:
        return np.sum(x @ np.ones((2, 2)))

    with pytest.raises(rematc.CompileError) as failure:
        grad(wrong)(np.ones(3))
    assert failure.value.loc is not None
    assert failure.value.loc.line == wrong.__code__.co_firstlineno + 1


def test_a_policy_must_exist() -> None:
    _fails_here("unknown policy 'dot'; did you mean 'dots'?", lambda: grad(loss, policy="dot"))


# -- stop_gradient -----------------------------------------------------------------------------------------------------


def test_stop_gradient_is_a_constant_to_derivatives() -> None:
    def softmax(stop: Callable[[Any], Any], xp: Any, x: Any) -> Any:
        weights = xp.exp(x - stop({"max": xp.max(x)})["max"])
        return weights[0] / xp.sum(weights) * x[1]

    (x,) = arrays((5,))
    expected = in_jax(jax.grad(functools.partial(softmax, jax.lax.stop_gradient, jnp)), x)
    same_trees(grad(functools.partial(softmax, rematc.stop_gradient, np))(x), expected)
    lowered = rematc.lower(value_and_grad(functools.partial(softmax, rematc.stop_gradient, np)), x)
    assert "compare" not in lowered.ir()  # where the maximum is, is no matter
    assert "compare" in rematc.lower(value_and_grad(functools.partial(softmax, lambda x: x, np)), x).ir()


def test_stop_gradient_keeps_what_it_is_given() -> None:
    assert rematc.stop_gradient({"a": 1, "b": None}) == {"a": 1, "b": None}  # outside of all traces

    def loss(x: Any) -> Any:
        kept, whole = rematc.stop_gradient((2.0, np.argmax(x)))
        return np.sum(x * kept) + whole

    gradient = grad(loss)(arrays((3,))[0].astype(np.float32))
    assert gradient.dtype == np.float32  # a Python number stays weak
    assert list(gradient) == [2, 2, 2]


def test_a_product_that_is_only_transposed_is_computed_the_other_way_round() -> None:
    """Logits by a weight from the left, row by row, are one array, and their cotangent is one."""
    weight, rows = np.ones((96, 8), np.float32), np.ones((64, 8), np.float32)

    def loss(weight: Any, rows: Any) -> Any:
        logits = rematc.vmap(lambda row: weight @ row)(rows)
        return np.sum(np.log(np.sum(np.exp(logits), -1)))

    forward = rematc.lower(rematc.value_and_grad(loss), weight, rows).graph
    products = [eqn for eqn in forward.equations if eqn.op.is_product]
    assert str(products[0].results[0].type) == "f32[64,96]"


def test_derivatives_that_are_none_are_traced_zeros() -> None:
    """In a trace what indexes them may be traced, too: NumPy would ask it for its elements."""

    def constant(y: Any) -> Any:
        return np.sum(np.ones(3))

    def loss(x: Any, where: Any) -> Any:
        slope: Any = rematc.grad(constant)(x)
        tangent: Any = rematc.jvp(lambda y: np.ones(3), (x,), (np.ones(3),))[1]
        rows: Any = rematc.jacrev(lambda y: np.ones(3))(x)
        return np.sum(slope[where]) + np.sum(np.take(tangent, where)) + np.sum(rows[where]) + np.sum(x)

    x, where = np.arange(3.0), np.array([2, 0])
    assert rematc.jit(loss)(x, where) == 3.0


def test_gradients_of_python_numbers_yield_to_the_arrays_that_they_meet() -> None:
    """In a trace, too: a product with one keeps its element type, as the carry of a loop has to."""

    def square(a: Any) -> Any:
        return a * a

    def halved(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            value, slope = rematc.value_and_grad(square)(0.5)
            return carry * slope * value, row

        carry: Any = rematc.lax.scan(step, x, np.arange(3.0))[0]
        return np.sum(carry)

    x = np.ones(3, np.float32)
    with jax.enable_x64(True):
        found: Any = rematc.value_and_grad(halved)(x)
    assert [one.dtype for one in found] == [np.float32, np.float32]
    assert found[0] == 3 * 0.25**3
