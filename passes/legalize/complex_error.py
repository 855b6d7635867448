"""The error function of complex numbers, by the Faddeeva function w(z) = e^(-z^2) erfc(-iz)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from rematc.ir.ops.special import ComplexErf, ComplexErfc
from rematc.passes.legalize.numbers import (
    Number,
    by_formula,
    cos,
    exp,
    from_parts,
    imag,
    polynomial,
    real,
    sin,
    where,
)
from rematc.passes.legalize.rules import expands

#: The expansion of w in this many powers is exact to the last digits in the upper half of the plane.
TERMS = 64
#: Below this magnitude the power series of erf loses no digits, 1 - erfc does.
NEAR = 1.5


def erf(z: Number) -> Number:
    """An odd function: from the half of the plane where erfc is small."""
    is_left = real(z) < 0
    right = where(is_left, -z, z)
    near = _series(where(_is_near(z), right, 0.0))
    found = where(_is_near(z), near, 1 - _complement(right))
    return where(is_left, -found, found)


def erfc(z: Number) -> Number:
    """The complement, 1 - erf; of z on the left it is 2 less that of -z."""
    is_left = real(z) < 0
    right = where(is_left, -z, z)
    near = _series(where(_is_near(z), z, 0.0))
    found = _complement(right)
    return where(_is_near(z), 1 - near, where(is_left, 2 - found, found))


def _is_near(z: Number) -> Number:
    return real(z) * real(z) + imag(z) * imag(z) < NEAR * NEAR


def _series(z: Number) -> Number:
    """2/sqrt(pi) sum of (-1)^n z^(2n+1) / (n! (2n+1)) (DLMF 7.6.1)."""
    coefficients = [(-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(30)]
    return 2 / math.sqrt(math.pi) * z * polynomial(coefficients, z * z)


def _complement(z: Number) -> Number:
    """erfc for Re z >= 0, e^(-z^2) w(iz)."""
    x, y = real(z), imag(z)
    magnitude, angle = exp((y - x) * (y + x)), -2 * x * y
    gauss = from_parts(magnitude * cos(angle), magnitude * sin(angle))
    return gauss * _faddeeva(z)


def _faddeeva(z: Number) -> Number:
    """w(iz) for Re z >= 0: powers of Z = (L - z)/(L + z), which lies in the unit disc.

    J. A. C. Weideman, "Computation of the complex error function", SIAM J. Numer. Anal. 31 (1994), equation 38.
    """
    scale = math.sqrt(TERMS / math.sqrt(2))
    below = 1 / (z + scale)
    total = polynomial(_weideman_coefficients(), (scale - z) * below)
    return below * (1 / math.sqrt(math.pi) + 2 * below * total)


@cache
def _weideman_coefficients() -> tuple[float, ...]:
    """The Fourier coefficients of e^(-t^2) (L^2 + t^2) in the angle with t = L tan(angle / 2)."""
    scale, half = math.sqrt(TERMS / math.sqrt(2)), 2 * TERMS
    t = scale * np.tan(np.pi * np.arange(1 - half, half) / (2 * half))
    samples = np.concatenate([[0], np.exp(-(t**2)) * (scale**2 + t**2)])
    spectrum = np.fft.fft(np.fft.fftshift(samples)).real / (2 * half)
    return tuple([float(one) for one in spectrum[1 : TERMS + 1]])


expands(ComplexErf)(by_formula(erf))
expands(ComplexErfc)(by_formula(erfc))
