"""Complex numbers through NumPy's functions: values, dtypes, and gradients by JAX's convention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.numpy as rnp
from tests.support.tracing import assert_as_numpy, run

RNG = np.random.default_rng(23)
Z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
W = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
R = RNG.normal(size=(3, 4))
SMALL = Z / 4
V = Z[0]
EDGES = np.array([complex(np.inf, 1), complex(1, np.nan), complex(np.nan, np.inf), 1j, 0, complex(-0.0, 2), -1])

UNARY = [np.absolute, np.conjugate, np.sign, np.square, np.reciprocal, np.sqrt, np.exp, np.exp2, np.expm1, np.log,
         np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan, np.tanh, np.sinh, np.cosh, np.arcsin, np.arccos,
         np.arctan, np.arcsinh, np.arccosh, np.arctanh, np.negative, np.positive, np.logical_not]  # fmt: skip
BINARY = [np.add, np.subtract, np.multiply, np.divide, np.power, np.float_power, np.equal, np.not_equal,
          np.logical_and, np.logical_or, np.logical_xor]  # fmt: skip


@pytest.mark.parametrize("ufunc", UNARY, ids=lambda f: f.__name__)
def test_unary_ufuncs(ufunc: np.ufunc) -> None:
    for dtype in (np.complex128, np.complex64):
        assert_as_numpy(ufunc, SMALL.astype(dtype))


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda f: f.__name__)
def test_binary_ufuncs_with_complex_and_real_operands(ufunc: np.ufunc) -> None:
    for other in (W, R, W.astype(np.complex64), 2, 1.5, 2j, Z):
        assert_as_numpy(ufunc, Z, other)
    assert_as_numpy(lambda x: [x + 1j, 2j * x, x**3, x**-1, x**0.5, x / 2, 1 / x, abs(x)], Z)
    assert_as_numpy(lambda x: [x + 1j, 2j * x, x.astype(complex), x * np.complex64(1j)], R)


@pytest.mark.parametrize("ufunc", [np.isnan, np.isinf, np.isfinite, np.conj, np.logical_not])
def test_what_is_special(ufunc: np.ufunc) -> None:
    assert_as_numpy(ufunc, EDGES)


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: [np.real(x), np.imag(x), x.real, x.imag, x.conj(), np.angle(x), np.angle(x, deg=True)],
    lambda x: [np.isreal(x), np.iscomplex(x), np.iscomplexobj(x), np.isrealobj(x)],
    lambda x: [np.sum(x), np.prod(x, 0), np.mean(x, 1), np.cumsum(x), np.all(x), np.any(x, 0), np.count_nonzero(x)],
    lambda x: [np.var(x), np.std(x, 0), np.var(x, 1, ddof=1), np.average(x, weights=R)],
    lambda x: [np.nansum(x), np.nanmean(x, 0), np.nanprod(x, 1), np.nancumsum(x, 0)],
    lambda x: [np.dot(x, x.T), np.vdot(x, W), np.inner(x, W), np.outer(x, W), np.matmul(x, W.T), np.kron(x, V)],
    lambda x: [np.vecdot(x, W), np.linalg.vecdot(x, W), np.einsum("ij,kj->ik", x, W), np.tensordot(x, W)],
    lambda x: [np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x, 1, axis=0), np.linalg.norm(x, np.inf)],
    lambda x: [np.linalg.vector_norm(x), np.linalg.matrix_norm(x), np.linalg.norm(x[0], 3), np.linalg.norm(x, "fro")],
    lambda x: [np.convolve(x[0], x[1]), np.correlate(x[0], W[1], "full")],
    lambda x: [np.isclose(x, x + 1e-9), np.allclose(x, W), np.array_equal(x, x)],
    lambda x: [np.where(R > 0, x, 0), np.concatenate([x, R]), np.stack([x, W]), x.T, x[::2, 1], np.pad(x, 1)],
    lambda x: [np.round(x, 2), np.nan_to_num(x), np.diff(x), np.trapezoid(x), np.polyval(x[0], R)],
    lambda x: [rnp.at_set(x, 0, 1j), rnp.at_add(x, (0, [0, 0]), 2), np.full_like(x, 1j), np.zeros_like(x)],
    lambda x: [np.cov(x), np.trace(x), np.sinc(x), np.unwrap(np.angle(x)), np.cross(x[:, :3], W[:, :3])],
    lambda x: [x.astype(np.complex64), x.real.astype(complex), x.mean(), x.std(), x.var(), x.sum(0)],
]


@pytest.mark.parametrize("case", range(len(FUNCTIONS)))
def test_functions(case: int) -> None:
    assert_as_numpy(FUNCTIONS[case], Z)


def test_literals_and_small_arrays_are_written_into_the_program() -> None:
    def function(x: Any) -> Any:
        return x * np.array([1j, 2, complex(-0.0, np.inf), -1j])[:2] + 3j, np.complex64(2j) * x

    for found, wanted in zip(rematc.jit(function)(Z[:, :2]), function(Z[:, :2]), strict=True):
        np.testing.assert_array_equal(found, wanted)


# -- derivatives -------------------------------------------------------------------------------------------------------

REAL_LOSSES: list[Callable[[Any, Any], Any]] = [
    lambda np, z: np.sum(np.abs(z) ** 2),
    lambda np, z: np.sum(np.real(z * z) + 2 * np.imag(z**3)),
    lambda np, z: np.sum(np.real(np.conj(z) * np.exp(z))),
    lambda np, z: np.sum(np.angle(z) * np.abs(z)),
    lambda np, z: np.real(np.vdot(z, z @ z.T @ z)),
    lambda np, z: np.linalg.norm(z) + np.std(z) + np.var(z),
    lambda np, z: np.sum(np.abs(np.fft.fft(z)) ** 3),
    lambda np, z: np.sum(np.real(z / (1 + z.imag))),
]


@pytest.mark.parametrize("case", range(len(REAL_LOSSES)))
def test_gradients_of_real_functions_are_jaxs(case: int) -> None:
    """The gradient of f(x + iy) is df/dx - i df/dy."""
    loss = REAL_LOSSES[case]
    with jax.enable_x64(True):
        expected = jax.grad(lambda z: loss(jnp, z))(Z)
    np.testing.assert_allclose(run(rematc.grad(lambda z: loss(np, z)), Z), expected, rtol=1e-9, atol=1e-9)


def test_the_gradient_of_a_complex_argument_is_two_partial_derivatives() -> None:
    def loss(z: Any) -> Any:
        return np.sum(np.abs(z) ** 3 + np.real(z) * np.imag(z))

    found, step = run(rematc.grad(loss), V), 1e-6
    for place in range(V.size):
        unit = np.eye(V.size)[place] * step
        by_x = (loss(V + unit) - loss(V - unit)) / (2 * step)
        by_y = (loss(V + 1j * unit) - loss(V - 1j * unit)) / (2 * step)
        np.testing.assert_allclose(found[place], by_x - 1j * by_y, rtol=1e-7)


def holomorphic(np: Any, z: Any) -> Any:
    return np.sum(z**3 * np.exp(z) / (2 + z)) + np.prod(np.sin(z))


def test_holomorphic_functions_have_complex_derivatives() -> None:
    with jax.enable_x64(True):
        expected = jax.grad(lambda z: holomorphic(jnp, z), holomorphic=True)(V)
    value, found = run(rematc.value_and_grad(lambda z: holomorphic(np, z), holomorphic=True), V)
    np.testing.assert_allclose(value, holomorphic(np, V), rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    step = 1e-6 * np.exp(0.7j)  # from any direction
    difference = (holomorphic(np, V + step * np.eye(4)[1]) - holomorphic(np, V - step * np.eye(4)[1])) / (2 * step)
    np.testing.assert_allclose(found[1], difference, rtol=1e-8)


def test_second_derivatives_of_holomorphic_functions() -> None:
    def slope(z: Any) -> Any:
        return rematc.grad(lambda w: w**4 * 1j, holomorphic=True)(z)

    np.testing.assert_allclose(run(rematc.grad(slope, holomorphic=True), 1 + 2j), 12j * (1 + 2j) ** 2, rtol=1e-14)


def test_forward_and_reverse_mode_of_complex_functions_are_jaxs() -> None:
    def function(numpy: Any) -> Callable[[Any], Any]:
        return lambda z: numpy.conj(z) * numpy.abs(z) + z @ W.T[:, :1] * numpy.real(z)

    tangent, ct = 1j * W, W[::-1] * 2
    with jax.enable_x64(True):
        outputs, outgoing = jax.jvp(function(jnp), (Z,), (tangent,))
        pulled_back = jax.vjp(function(jnp), Z)[1](jnp.asarray(ct))[0]
    found: Any = rematc.jvp(function(np), (Z,), (tangent,))
    np.testing.assert_allclose(found[0], outputs, rtol=1e-12)
    np.testing.assert_allclose(found[1], outgoing, rtol=1e-12)
    pull_back: Any = rematc.vjp(function(np), Z)[1]
    np.testing.assert_allclose(pull_back(ct)[0], pulled_back, rtol=1e-12)


def test_compiled_gradients_under_a_policy_are_the_same() -> None:
    def loss(z: Any) -> Any:
        for _ in range(3):
            z = np.tanh(z @ W.T @ Z / 9)
        return np.sum(np.abs(z) ** 2)

    with jax.enable_x64(True):
        expected = jax.grad(lambda z: jnp.sum(jnp.abs(_layers(z)) ** 2))(Z)
    for policy in (None, "nothing", "dots"):
        found: Any = rematc.grad(loss, policy=policy)(Z)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def _layers(z: Any) -> Any:
    for _ in range(3):
        z = jnp.tanh(z @ W.T @ Z / 9)
    return z


@pytest.mark.parametrize(
    ("gradient", "argument", "words"),
    [
        (rematc.grad(lambda z: z * 2), 1j, ["returns c128[]", "expected one real scalar", "holomorphic=True"]),
        (rematc.grad(lambda z: z * 2, holomorphic=True), 1.0, ["needs complex values, got f64[]", "astype(complex)"]),
        (rematc.grad(abs, holomorphic=True), 1j, ["returns f64[]", "complex scalar"]),
        (rematc.grad(lambda z: z * 2), 1, ["needs floating-point values, got i64[]"]),
    ],
)
def test_what_has_no_gradient_says_why(gradient: Callable[[Any], Any], argument: Any, words: list[str]) -> None:
    with pytest.raises(rematc.CompileError) as caught:
        run(gradient, argument)
    assert all(word in str(caught.value) for word in words), str(caught.value)
