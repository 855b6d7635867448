"""Python's containers: rematc takes them as they are (pytrees). A traced array passes for an array."""

import builtins

import numpy as np

from rematc.compiler.tracing.trace import Tracer

dict, list, tuple = builtins.dict, builtins.list, builtins.tuple


def isinstance(x: object, types: object) -> bool:
    """As Python's, with a traced array for an array."""
    return builtins.isinstance(np.zeros(()) if builtins.isinstance(x, Tracer) else x, types)


def type(x: object) -> object:
    """As Python's, with a traced array for an array."""
    return np.ndarray if builtins.isinstance(x, Tracer) else builtins.type(x)
