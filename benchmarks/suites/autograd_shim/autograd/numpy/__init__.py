"""NumPy itself, but for the functions that do not ask their arguments whether they are traced.

Those are `rematc.numpy`'s.
"""

import sys as _sys
from types import ModuleType as _ModuleType
from typing import Any

import numpy as _np
from numpy import *  # noqa: F403

import rematc.numpy as _rnp
from rematc.numpy import *  # noqa: F403

__version__ = _np.__version__
random = _np.random
linalg, fft = [_ModuleType(f"{__name__}.{_name}") for _name in ("linalg", "fft")]
for _module, _own, _traced in ((linalg, _np.linalg, _rnp.linalg), (fft, _np.fft, _rnp.fft)):
    _module.__dict__.update({**vars(_own), **vars(_traced)})
for _name in ("random", "linalg", "fft"):
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name]


def __getattr__(name: str) -> Any:
    return getattr(_np, name)


def make_diagonal(diagonals: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """The matrices that have the last dimension for their diagonal. autograd has no other than these axes."""
    if (offset, axis1, axis2) != (0, -2, -1) and (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("make_diagonal makes the last two dimensions")
    return diagonals[..., None] * _np.eye(_np.shape(diagonals)[-1])
