"""XLA's count of a program's work where the compiler for its target counts none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax._src.lib import _jax  # type: ignore[attr-defined]  # JAX does not list it


def cost_of(lowered: Any, compiled: Any) -> Mapping[str, float]:
    """XLA's estimates for a program by name, of what `jax.jit(f).lower` and its `compile` returned.

    XLA for a GPU that is not here makes none: they are those of the program as XLA gets it, before its passes.
    """
    own: Mapping[str, float] | None = compiled.cost_analysis()
    if own:
        return own
    module = lowered.compiler_ir("hlo").as_hlo_module()
    found: Mapping[str, float] = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    return found
