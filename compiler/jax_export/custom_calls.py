"""Export of calls of libraries: JAX has no equation for the text of one, so each is opaque. Their results are all that
JAX sees, and there is no derivative.
"""

from __future__ import annotations

from rematc.compiler.jax_export.evaluating import exports
from rematc.compiler.jax_export.opaque import opaque
from rematc.ir.ops.custom_call import CustomCall

exports(CustomCall)(opaque)
