"""The normal distribution in several dimensions."""

from typing import Any

import numpy as np


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """Logarithm of the density at points along the last dimension."""
    if allow_singular:
        raise NotImplementedError("a singular covariance")
    deviation = x - mean
    whitened = np.linalg.solve(cov, deviation[..., None])[..., 0] if np.ndim(x) == 1 else deviation @ np.linalg.inv(cov)
    _, log_determinant = np.linalg.slogdet(cov)
    return -0.5 * (np.sum(deviation * whitened, -1) + log_determinant + np.shape(mean)[-1] * np.log(2 * np.pi))


def pdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """Density at points along the last dimension."""
    return np.exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any, cov: Any) -> Any:
    """Differential entropy."""
    return 0.5 * np.linalg.slogdet(2 * np.pi * np.e * cov)[1] + 0 * np.sum(mean)
