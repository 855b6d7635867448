"""Export of calls of libraries: JAX has no equation for the text of one, so each is opaque. Their results are all that
JAX sees, and there is no derivative.
"""

from __future__ import annotations

from rematc.ir.ops.custom_call import CustomCall
from rematc.lowering.jax_export.evaluating import exports
from rematc.lowering.jax_export.opaque import opaque

exports(CustomCall)(opaque)
