"""The normal distribution."""

from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr


def logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Logarithm of the density."""
    return -(((x - loc) / scale) ** 2) / 2 - np.log(np.sqrt(2 * np.pi) * scale)


def pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Density."""
    return np.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Distribution function."""
    return ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Survival function."""
    return ndtr((loc - x) / scale)


def logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Logarithm of the distribution function."""
    return log_ndtr((x - loc) / scale)


def logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Logarithm of the survival function."""
    return log_ndtr((loc - x) / scale)
