"""The beta distribution."""

from typing import Any

import numpy as np
from scipy.special import betainc, gammaln, xlog1py, xlogy


def logpdf(x: Any, a: Any, b: Any) -> Any:
    """Logarithm of the density."""
    return xlogy(a - 1, x) + xlog1py(b - 1, -x) - (gammaln(a) + gammaln(b) - gammaln(a + b))


def pdf(x: Any, a: Any, b: Any) -> Any:
    """Density."""
    return np.exp(logpdf(x, a, b))


def cdf(x: Any, a: Any, b: Any) -> Any:
    """Distribution function."""
    return betainc(a, b, x)
