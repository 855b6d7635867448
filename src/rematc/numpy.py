"""NumPy for traced functions: the names of NumPy that rematc can trace, and functional updates.

A model needs none of this: `import numpy as np` is enough. It helps where NumPy does not ask its arguments
(`asarray`, `full`, `vectorize`), where a model assigns to elements (`at_set`, `at_add`), and where the size of a
result would depend on data (`nonzero(x, size=n)`, `unique`, `compress`). On concrete arrays every function computes at
once, as NumPy does. `supported()` lists what can be traced.
"""

from typing import TYPE_CHECKING

from rematc.compiler.api.vectorize import vectorize
from rematc.compiler.frontends.numpy.namespace import NAMESPACE as _NAMESPACE

if TYPE_CHECKING:
    from rematc.compiler.frontends.numpy.namespace import supported
    from rematc.compiler.frontends.numpy.sized import argwhere, flatnonzero, nonzero, unique
    from rematc.compiler.frontends.numpy.sized_sets import (
        compress,
        extract,
        fill_diagonal,
        intersect1d,
        put_along_axis,
        repeat,
        setdiff1d,
        setxor1d,
        union1d,
        where,
    )
    from rematc.compiler.frontends.numpy.standard import argsort, clip, finfo, iinfo, sort
    from rematc.compiler.frontends.numpy.updates import at_add, at_max, at_min, at_multiply, at_set

    # isort: split
    # For type checkers the rest of NumPy, which has the same functions; at run time what can be traced.
    from numpy import *  # type: ignore[assignment]  # noqa: F403  # the names above are not NumPy's
else:
    globals().update(_NAMESPACE)

__all__ = [
    "argsort",
    "argwhere",
    "at_add",
    "at_max",
    "at_min",
    "at_multiply",
    "at_set",
    "clip",
    "compress",
    "extract",
    "fill_diagonal",
    "finfo",
    "flatnonzero",
    "iinfo",
    "intersect1d",
    "nonzero",
    "put_along_axis",
    "repeat",
    "setdiff1d",
    "setxor1d",
    "sort",
    "supported",
    "union1d",
    "unique",
    "vectorize",
    "where",
]
__all__.extend(_NAMESPACE)
