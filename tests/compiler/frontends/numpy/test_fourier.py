"""np.fft traced gives NumPy's values, dtypes and shapes, and has the right derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from tests.support.tracing import assert_as_numpy, run

RNG = np.random.default_rng(11)
R = RNG.normal(size=(3, 4, 6))
Z = R + 1j * RNG.normal(size=(3, 4, 6))
FIVE = RNG.normal(size=(2, 3, 2, 3, 4))

LINES = [np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft]
PLANES = [np.fft.fft2, np.fft.ifft2, np.fft.rfft2, np.fft.irfft2]
ALL = [np.fft.fftn, np.fft.ifftn, np.fft.rfftn, np.fft.irfftn]
OF_REALS = (np.fft.rfft, np.fft.ihfft, np.fft.rfft2, np.fft.rfftn)


def operand(function: Callable[..., Any]) -> Any:
    return R if function in OF_REALS else Z


@pytest.mark.parametrize("function", LINES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_of_one_axis(function: Callable[..., Any], norm: Any) -> None:
    for n in (None, 3, 5, 9):
        for axis in (-1, 0):
            assert_as_numpy(lambda x, n=n, axis=axis: function(x, n, axis, norm), operand(function))


@pytest.mark.parametrize("function", [*PLANES, *ALL], ids=lambda f: f.__name__)
def test_of_several_axes(function: Callable[..., Any]) -> None:
    x = operand(function)
    assert_as_numpy(function, x)
    assert_as_numpy(lambda a: function(a, axes=(2, 0), norm="ortho"), x)
    assert_as_numpy(lambda a: function(a, s=(5, 3), axes=(0, 1)), x)
    assert_as_numpy(lambda a: function(a, s=(-1, 7), axes=(0, 2)), x)


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_more_than_three_axes_are_transformed_in_steps(function: Callable[..., Any]) -> None:
    assert_as_numpy(function, FIVE if function in OF_REALS else FIVE * (1 + 1j))
    assert_as_numpy(lambda x: function(x, axes=(4, 1, 0, 2)), FIVE)


def test_dtypes_follow_the_operand() -> None:
    single, integers = R.astype(np.float32), (R * 5).astype(np.int32)
    for x in (single, integers, R.astype(np.float16), R > 0):
        assert_as_numpy(lambda a: [np.fft.fft(a), np.fft.rfft(a)], x, tolerance=2e-6)
        assert_as_numpy(lambda a: np.fft.irfft(np.fft.rfft(a)), x, tolerance=2e-6)
    assert_as_numpy(np.fft.ifft, Z.astype(np.complex64))


def test_shifts() -> None:
    assert_as_numpy(lambda x: [np.fft.fftshift(x), np.fft.ifftshift(x), np.fft.fftshift(x, 0)], FIVE)
    assert_as_numpy(lambda x: [np.fft.ifftshift(x, (1, 4)), np.fft.fftshift(x, axes=-2)], FIVE)
    assert_as_numpy(lambda x: np.fft.fftshift(np.fft.fftfreq(5) * x), np.arange(5.0))


def power(transform: Callable[..., Any], absolute: Callable[[Any], Any], weights: Any) -> Callable[[Any], Any]:
    """A real function of what is transformed, which depends on magnitudes and phases."""
    return lambda x: (weights * absolute(transform(x) + 0.3) ** 2).sum()


def pull_back(function: Callable[[Any], Any], x: Any) -> Any:
    _, cotangents_of = rematc.vjp(function, x)
    return cotangents_of(1.0)[0]  # type: ignore[operator]  # the second of vjp's results is a function


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "rfftn", "irfftn", "ifft2"])
def test_gradients_agree_with_jax(name: str) -> None:
    ours, theirs = getattr(np.fft, name), getattr(jnp.fft, name)
    x = operand(ours)
    weights = np.random.default_rng(1).normal(size=ours(x).shape)
    with jax.enable_x64(True):
        expected = jax.grad(power(theirs, jnp.abs, weights))(x)
    found = run(lambda a: pull_back(power(ours, np.abs, weights), a), x)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_compiled_results_are_numpys() -> None:
    def function(x: Any) -> Any:
        return np.fft.fft(x), np.fft.irfftn(np.fft.rfftn(x)), np.fft.fftn(x[None, :, None, ..., None])

    for found, wanted in zip(rematc.jit(function)(R), function(R), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
