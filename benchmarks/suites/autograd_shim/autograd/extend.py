"""autograd's extension interface: vector spaces, and custom derivatives, which are refused."""

from autograd.core import VSpace, vspace
from autograd.custom import defjvp, defvjp, notrace_primitive, primitive

__all__ = ["VSpace", "defjvp", "defvjp", "notrace_primitive", "primitive", "vspace"]
