"""What tests ask of autograd's tracing."""

from autograd.custom import notrace_primitive, primitive
from rematc.compiler.tracing.trace import Tracer

__all__ = ["isbox", "notrace_primitive", "primitive"]


def isbox(x: object) -> bool:
    """Whether `x` is traced."""
    return isinstance(x, Tracer)
