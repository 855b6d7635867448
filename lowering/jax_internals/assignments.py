"""XLA's buffer assignment of a compiled program, which JAX hands on serialized."""

from __future__ import annotations

from typing import Any

import jax

from rematc.lowering.hlo.allocations import Assignment


def assignment_of(compiled: Any) -> Assignment | None:
    """The buffer assignment of what `jax.stages.Lowered.compile` returned; None where the platform has none."""
    try:
        buffers = compiled.memory_analysis().serialized_buffer_assignment_proto
        (module,) = compiled.runtime_executable().hlo_modules()
        return Assignment(buffers, module.as_serialized_hlo_module_proto()) if buffers else None
    except (AttributeError, NotImplementedError, ValueError, jax.errors.JaxRuntimeError):
        return None
