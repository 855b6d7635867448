"""The gamma distribution of unit scale."""

from typing import Any

import numpy as np
from scipy.special import gammainc, gammaln, xlogy


def logpdf(x: Any, a: Any) -> Any:
    """Logarithm of the density."""
    return xlogy(a - 1, x) - x - gammaln(a)


def pdf(x: Any, a: Any) -> Any:
    """Density."""
    return np.exp(logpdf(x, a))


def cdf(x: Any, a: Any) -> Any:
    """Distribution function."""
    return gammainc(a, x)
