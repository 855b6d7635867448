"""What we use of JAX beyond its documented API. Everything of that kind stands here, each with a test that names it.

When one of the modules is imported, it is checked that what they read is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.lax.linalg  # registers jaxlib's kernels of linear algebra with XLA
from jax._src.core import JaxprEqnContext
from jax._src.linear_util import DebugInfo
from jax._src.source_info_util import register_exclusion

#: Where our own modules stand.
PACKAGE = str(Path(__file__).parents[2]) + os.sep
# What the user's programs show of where they come from is the user's lines.
register_exclusion(PACKAGE)

#: What is read of JAX's objects beyond what the imports above name. One that is missing must not pass for one that is
#: not set: a sum over devices, or a constraint, would vanish.
_READ: dict[Any, tuple[str, ...]] = {
    jax.core.ShapedArray: ("mat", "memory_space", "sharding", "weak_type"),
    jax.sharding.AbstractMesh: ("abstract_mesh", "empty", "explicit_axes", "manual_axes", "update_axis_types"),
    JaxprEqnContext: ("compute_type", "xla_metadata"),
    DebugInfo: ("arg_names", "func_name", "func_src_info"),
    jax.lax.sin_p.impl: ("func",),
}


def check_internals(read: dict[Any, tuple[str, ...]]) -> None:
    """Raise ImportError where one of JAX's classes lacks an attribute that is read."""
    for owner, names in read.items():
        for name in names:
            if not hasattr(owner, name):
                raise ImportError(
                    f"jax {jax.__version__} has no {getattr(owner, '__name__', owner)}.{name}, which rematc reads; it "
                    "works with jax 0.10 to 0.12: install one of these"
                )


check_internals(_READ)
