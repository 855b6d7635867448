"""The Poisson distribution."""

from typing import Any

import numpy as np
from scipy.special import gammaincc, gammaln, xlogy


def logpmf(k: Any, mu: Any) -> Any:
    """Logarithm of the probability."""
    return xlogy(k, mu) - gammaln(k + 1) - mu


def pmf(k: Any, mu: Any) -> Any:
    """Probability."""
    return np.exp(logpmf(k, mu))


def cdf(k: Any, mu: Any) -> Any:
    """Distribution function."""
    return gammaincc(np.floor(k) + 1, mu)
