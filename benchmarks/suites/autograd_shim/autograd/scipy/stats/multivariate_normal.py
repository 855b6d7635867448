"""The normal distribution in several dimensions."""

from typing import Any

import numpy as np


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """Logarithm of the density at points along the last dimension.

    On request the covariance may be singular: the density is then that on the space that it spans.
    """
    deviation = x - mean
    if allow_singular:
        return _logpdf_on_support(deviation, cov)
    whitened = np.linalg.solve(cov, deviation[..., None])[..., 0] if np.ndim(x) == 1 else deviation @ np.linalg.inv(cov)
    _, log_determinant = np.linalg.slogdet(cov)
    return -0.5 * (np.sum(deviation * whitened, -1) + log_determinant + np.shape(mean)[-1] * np.log(2 * np.pi))


def _logpdf_on_support(deviation: Any, cov: Any) -> Any:
    values, vectors = np.linalg.eigh(cov)
    is_spanned = values > 1e-10 * np.max(np.abs(values))
    variances = np.where(is_spanned, values, 1.0)
    terms = (deviation @ vectors) ** 2 / variances + np.log(2 * np.pi * variances)
    return -0.5 * np.sum(np.where(is_spanned, terms, 0.0), -1)


def pdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """Density at points along the last dimension."""
    return np.exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any, cov: Any) -> Any:
    """Differential entropy."""
    return 0.5 * np.linalg.slogdet(2 * np.pi * np.e * cov)[1] + 0 * np.sum(mean)
