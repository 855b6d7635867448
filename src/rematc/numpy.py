"""NumPy for traced functions: the names of NumPy that rematc can trace, and functional updates.

A model needs none of this: `import numpy as np` is enough. It helps where NumPy does not ask its arguments
(`asarray`, `full`) and where a model assigns to elements (`at_set`, `at_add`). On concrete arrays every function
computes at once, as NumPy does. `supported()` lists what can be traced.
"""

from typing import TYPE_CHECKING

from rematc.compiler.numpy.namespace import NAMESPACE as _NAMESPACE

if TYPE_CHECKING:
    # For type checkers all of NumPy, which has the same functions; at run time what can be traced.
    from numpy import *  # noqa: F403

    from rematc.compiler.numpy.namespace import at_add, at_max, at_min, at_multiply, at_set, supported
else:
    globals().update(_NAMESPACE)

__all__ = ["at_add", "at_max", "at_min", "at_multiply", "at_set", "supported", *_NAMESPACE]  # noqa: PLE0604  # strings
