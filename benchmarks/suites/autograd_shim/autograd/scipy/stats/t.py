"""Student's t distribution."""

from typing import Any

import numpy as np
from scipy.special import betainc, gammaln


def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Logarithm of the density."""
    y = (x - loc) / scale
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - np.log(df * np.pi) / 2
    return constant - (df + 1) / 2 * np.log1p(y**2 / df) - np.log(scale)


def pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Density."""
    return np.exp(logpdf(x, df, loc, scale))


def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Distribution function."""
    y = (x - loc) / scale
    tail = betainc(df / 2, 0.5, df / (df + y**2)) / 2
    return np.where(y > 0, 1 - tail, tail)


def logcdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Logarithm of the distribution function."""
    return np.log(cdf(x, df, loc, scale))
