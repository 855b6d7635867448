"""`clear_caches`."""

from __future__ import annotations

from typing import Any

import jax

from rematc.lowering.caches import forget_all


def clear_caches() -> None:
    """Forget all that was traced and compiled, JAX's caches with it, as `jax.clear_caches`; later calls compile again.

    What `compile` and `load` returned keeps working.
    """
    forget_all()
    untyped: Any = jax.clear_caches
    untyped()
