"""NumPy for traced functions: the names of NumPy that rematc can trace, and functional updates.

A model needs none of this: `import numpy as np` is enough. It helps where NumPy does not ask its arguments
(`asarray`, `full`), where a model assigns to elements (`at_set`, `at_add`), and where the size of a result would
depend on data (`nonzero(x, size=n)`, `unique`). On concrete arrays every function computes at once, as NumPy does.
`supported()` lists what can be traced.
"""

from typing import TYPE_CHECKING

from rematc.compiler.numpy.namespace import NAMESPACE as _NAMESPACE

if TYPE_CHECKING:
    from rematc.compiler.numpy.namespace import at_add, at_max, at_min, at_multiply, at_set, supported
    from rematc.compiler.numpy.sized import argwhere, flatnonzero, nonzero, unique

    # isort: split
    # For type checkers the rest of NumPy, which has the same functions; at run time what can be traced.
    from numpy import *  # type: ignore[assignment]  # noqa: F403  # the names above are not NumPy's
else:
    globals().update(_NAMESPACE)

__all__ = [  # noqa: PLE0604  # strings
    "argwhere",
    "at_add",
    "at_max",
    "at_min",
    "at_multiply",
    "at_set",
    "flatnonzero",
    "nonzero",
    "supported",
    "unique",
    *_NAMESPACE,
]
