"""The tracer that NumPy code runs on."""

from __future__ import annotations

from rematc.compiler.trace import Tracer


class NumpyTracer(Tracer):
    """A traced array that answers NumPy's dispatch protocols."""

    __slots__ = ()
