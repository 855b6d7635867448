"""scipy.special: its ufuncs, and what SciPy computes on concrete arrays only, in NumPy."""

from typing import Any

import numpy as np
import scipy.special


def __getattr__(name: str) -> Any:
    return getattr(scipy.special, name)


def logsumexp(x: Any, axis: Any = None, b: Any = 1.0, keepdims: bool = False, return_sign: bool = False) -> Any:
    """log(sum(b exp(x)))."""
    if return_sign:
        raise NotImplementedError("logsumexp with return_sign")
    largest = np.max(x, axis=axis, keepdims=True)
    total = np.sum(b * np.exp(x - largest), axis=axis, keepdims=True)
    result = np.log(total) + largest
    return result if keepdims else np.squeeze(result, axis=axis)


def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the multivariate gamma function."""
    terms = [scipy.special.gammaln(a - 0.5 * i) for i in range(d)]
    return d * (d - 1) / 4 * np.log(np.pi) + sum(terms)


def polygamma(n: int, x: Any) -> Any:
    """The derivative of order n of digamma, by Hurwitz's zeta function."""
    if n == 0:
        return scipy.special.digamma(x)
    return (-1) ** (n + 1) * scipy.special.gamma(n + 1) * scipy.special.zeta(n + 1, x)
