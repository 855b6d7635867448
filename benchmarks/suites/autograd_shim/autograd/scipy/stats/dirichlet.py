"""The Dirichlet distribution."""

from typing import Any

import numpy as np
import scipy.stats
from scipy.special import gammaln, xlogy

rvs = scipy.stats.dirichlet.rvs


def logpdf(x: Any, alpha: Any) -> Any:
    """Logarithm of the density."""
    return np.sum(xlogy(alpha - 1, x)) - np.sum(gammaln(alpha)) + gammaln(np.sum(alpha))


def pdf(x: Any, alpha: Any) -> Any:
    """Density."""
    return np.exp(logpdf(x, alpha))
