"""Special functions that are lowered as series and fractions, run by XLA on grids over their domains, against SciPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from rematc.compiler.api.jit import run_graph
from rematc.ir.core import Op
from rematc.ir.ops.bessel import BesselI, BesselIe, BesselJ, BesselK, BesselKe, BesselY
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.ops.incomplete import (
    IncompleteBeta,
    IncompleteBetaSlope,
    IncompleteGamma,
    IncompleteGammaComplement,
    IncompleteGammaSlope,
)
from rematc.ir.ops.special import ComplexErf, ComplexErfc, ErfcInv
from rematc.ir.values import Array
from tests.support.samples import graph_of, type_of

#: Both sides of every border between formulas, and far beyond them.
PARAMETERS = np.array([1e-8, 1e-3, 0.02, 0.3, 0.5, 1, 1.21, 2, 7.99, 8, 8.01, 15, 19.9, 20.1, 50, 200, 1e3, 1e5])
POSITIVE = np.array([1e-10, 1e-4, 0.1, 0.49, 0.51, 1, 1.09, 1.11, 1.99, 2, 2.01, 5, 8, 14, 20, 24.9, 25.1, 30, 64, 1e3])
SHARES = np.array([1e-10, 1e-4, 0.05, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 1 - 1e-6])
ORDERS = np.array([0, 0.25, 0.49, 0.5, 1, 1.5, 2, 3.3, 7, 10, 20.5, 50, -0.5, -1, -2.25, -3])


def by_xla(op: Op, *operands: Array) -> Numeric:
    """The op's result, compiled; in double precision where the operands are."""
    (found,) = run_graph(graph_of(op, [type_of(operand) for operand in operands]), list(operands))
    return np.asarray(found)


def grid(*axes: Numeric) -> list[Numeric]:
    """All combinations, each operand in one dimension."""
    return [np.ravel(axis) for axis in np.meshgrid(*axes)]


def assert_relative(found: Numeric, expected: Numeric, tolerance: float) -> None:
    """Equal but for a share of the expected value; both may have underflowed."""
    np.testing.assert_allclose(found, expected, tolerance, 1e-290)


@pytest.mark.parametrize(
    ("op", "function"), [(IncompleteGamma(), special.gammainc), (IncompleteGammaComplement(), special.gammaincc)]
)
def test_incomplete_gamma_functions_keep_their_digits_over_the_domain(op: Op, function: Callable[..., Numeric]) -> None:
    a, x = grid(PARAMETERS, POSITIVE)
    near = np.repeat(PARAMETERS, 7) * (1 + np.tile([-3.0, -1, -0.1, 0, 0.1, 1, 3], len(PARAMETERS)) / np.sqrt(1e3))
    a, x = np.concatenate([a, np.repeat(PARAMETERS, 7)]), np.concatenate([x, near])
    # Exponents of some 1e3, each rounded once.
    assert_relative(by_xla(op, a, x), function(a, x), 5e-13)


def test_a_distribution_function_and_its_complement_add_up_to_one() -> None:
    a, x = grid(PARAMETERS, POSITIVE)
    total = by_xla(IncompleteGamma(), a, x) + by_xla(IncompleteGammaComplement(), a, x)
    np.testing.assert_allclose(total, 1, 4e-15)


def test_the_incomplete_beta_function_keeps_its_digits_over_the_domain() -> None:
    a, b, x = grid(PARAMETERS, PARAMETERS, SHARES)
    # The logarithms of parameters of 1e5 are exact to 1e-11 of the result.
    assert_relative(by_xla(IncompleteBeta(), a, b, x), special.betainc(a, b, x), 3e-11)
    small = (a <= 1e3) & (b <= 1e3) & (a >= 1e-3) & (b >= 1e-3)
    a, b, x = a[small], b[small], x[small]
    assert_relative(by_xla(IncompleteBeta(), a, b, x), special.betainc(a, b, x), 1e-12)


@pytest.mark.parametrize(
    ("op", "function"),
    [(BesselJ(), special.jv), (BesselY(), special.yv), (BesselIe(), special.ive), (BesselKe(), special.kve)],
)
def test_bessel_functions_keep_their_digits_over_the_domain(op: Op, function: Callable[..., Numeric]) -> None:
    v, x = grid(ORDERS, POSITIVE)
    expected = function(v, x)
    # Where they oscillate, relative to the amplitude.
    amplitude = np.where(x > np.abs(v), np.sqrt(2 / np.pi / x), 0) if op in (BesselJ(), BesselY()) else 0
    scale = np.maximum(np.abs(expected), amplitude)
    assert_relative(by_xla(op, v, x) / scale, expected / scale, 5e-12)


@pytest.mark.parametrize(("op", "function"), [(BesselI(), special.iv), (BesselK(), special.kv)])
def test_unscaled_functions_reach_the_largest_numbers(op: Op, function: Callable[..., Numeric]) -> None:
    v, x = grid(np.array([0.0, 1, 2.5]), np.array([1.0, 300, 709, 712, 740, 1e4]))
    assert_relative(by_xla(op, v, x), function(v, x), 1e-12)


@pytest.mark.parametrize(
    ("op", "function"),
    [(IncompleteGamma(), special.gammainc), (BesselK(), special.kv)],
)
def test_single_precision_is_exact_to_the_last_digit(op: Op, function: Callable[..., Numeric]) -> None:
    a, x = [part.astype(np.float32) for part in grid(PARAMETERS[2:15], POSITIVE[1:])]
    expected = function(a.astype(np.float64), x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(by_xla(op, a, x), expected, 1.2e-7, 1e-37)


def by_differences(function: Callable[[Numeric], Numeric], at: Numeric) -> Numeric:
    """The derivative of a smooth function: central differences of three widths, extrapolated to width 0."""
    widths = at * 2e-2
    rows = [(function(at + widths / n) - function(at - widths / n)) / (2 * widths / n) for n in (1, 2, 4)]
    once = [(4 * fine - coarse) / 3 for coarse, fine in itertools.pairwise(rows)]
    return (16 * once[1] - once[0]) / 15


def test_slopes_in_the_shape_are_those_of_differences() -> None:
    a, x = grid(np.array([0.3, 1, 2, 7.5, 12, 30, 100]), np.array([0.05, 0.6, 1, 3, 9, 28, 110]))
    expected = by_differences(lambda shape: special.gammainc(shape, x), a)
    np.testing.assert_allclose(by_xla(IncompleteGammaSlope(), a, x), expected, 1e-7, 1e-9)


@pytest.mark.parametrize("parameter", ["a", "b"])
def test_slopes_in_the_parameters_are_those_of_differences(parameter: str) -> None:
    values = np.array([0.3, 1, 2, 7.5, 12, 40])
    a, b, x = grid(values, values, np.array([0.01, 0.2, 0.5, 0.85, 0.98]))
    if parameter == "a":
        expected = by_differences(lambda moved: special.betainc(moved, b, x), a)
    else:
        expected = by_differences(lambda moved: special.betainc(a, moved, x), b)
    np.testing.assert_allclose(by_xla(IncompleteBetaSlope(parameter), a, b, x), expected, 1e-7, 1e-9)


def test_a_result_does_not_depend_on_its_neighbours() -> None:
    """Elements converge at different steps; each stops where it does alone."""
    a, x = np.array([0.5, 3.0, 18.0, 1.0]), np.array([0.1, 4.0, 22.0, 30.0])
    together = by_xla(IncompleteGamma(), a, x)
    alone = [by_xla(IncompleteGamma(), np.full(4, a[i]), np.full(4, x[i]))[i] for i in range(4)]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(("op", "function"), [(ComplexErf(), special.erf), (ComplexErfc(), special.erfc)])
def test_the_error_function_keeps_its_digits_over_the_plane(op: Op, function: Callable[..., Numeric]) -> None:
    magnitude = np.array([0, 1e-8, 1e-3, 0.5, 1.49, 1.51, 2, 3, 5, 10, 20])
    z = np.outer(magnitude, np.exp(1j * np.linspace(0, 2 * np.pi, 17))).ravel()
    expected = function(z)
    np.testing.assert_allclose(np.abs(by_xla(op, z) / expected - 1)[expected != 0], 0, atol=2e-13)


def test_the_inverse_of_the_complement_reaches_the_smallest_numbers() -> None:
    x = np.concatenate([10.0 ** np.linspace(-295, 0, 200), 2 - 10.0 ** np.linspace(-15, -1, 30)])
    assert_relative(by_xla(ErfcInv(), x), special.erfcinv(x), 2e-15)


@pytest.mark.parametrize(
    ("op", "order", "x", "expected"),
    [
        (BesselIe(), 0.0, 1.7976931348623157e308, 2.9754474593159e-155),
        (BesselI(), 0.0, 1.7976931348623157e308, np.inf),
        (BesselKe(), 0.0, 1.7976931348623157e308, 9.347643879329246e-155),
        (BesselI(), 0.0, 2.2250738585072014e-308, 1.0),
        (BesselI(), 1.0, 1e-200, 5e-201),
        (BesselI(), 50.0, 1e-3, 2.920285731e-230),
        (BesselJ(), 0.0, 2.2250738585072014e-308, 1.0),
        (BesselJ(), 1.0, 5e-324, 0.0),
        (BesselJ(), 0.0, 3.4028234663852886e38, 1.012798203e-20),
    ],
)
def test_bessel_functions_reach_the_ends_of_the_numbers(op: Op, order: float, x: float, expected: float) -> None:
    """The values at large x by mpmath with 80 digits."""
    (found,) = by_xla(op, np.array([order]), np.array([x]))
    np.testing.assert_allclose(found, expected, 1e-6, 1e-300)
