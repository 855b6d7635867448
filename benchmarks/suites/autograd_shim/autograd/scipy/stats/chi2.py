"""The chi-squared distribution."""

from typing import Any

import numpy as np
from scipy.special import gammainc, gammaln, xlogy


def logpdf(x: Any, df: Any) -> Any:
    """Logarithm of the density."""
    return xlogy(df / 2 - 1, x) - x / 2 - gammaln(df / 2) - np.log(2) * df / 2


def pdf(x: Any, df: Any) -> Any:
    """Density."""
    return np.exp(logpdf(x, df))


def cdf(x: Any, df: Any) -> Any:
    """Distribution function."""
    return gammainc(df / 2, x / 2)
