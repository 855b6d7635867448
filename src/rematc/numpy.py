"""NumPy for traced functions: the names of NumPy that rematc can trace, and functional updates.

A model needs none of this: `import numpy as np` is enough. It helps where NumPy does not ask its arguments
(`asarray`, `full`) and where a model assigns to elements (`at_set`, `at_add`). On concrete arrays every function
computes at once, as NumPy does. `supported()` lists what can be traced.
"""

from rematc.compiler.numpy.namespace import NAMESPACE as _NAMESPACE
from rematc.compiler.numpy.namespace import at_add, at_set, supported

globals().update(_NAMESPACE)
__all__ = ["at_add", "at_set", "supported", *_NAMESPACE]  # noqa: PLE0604  # the names are strings
