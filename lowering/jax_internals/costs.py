"""XLA's count of a program's work where the compiler for its target counts none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax._src.lib import _jax  # type: ignore[attr-defined]  # JAX does not list it


def cost_as_given(lowered: Any) -> Mapping[str, float]:
    """XLA's estimates for the program as XLA gets it, before its passes: what `jax.jit(f).lower` returned."""
    module = lowered.compiler_ir("hlo").as_hlo_module()
    found: Mapping[str, float] = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    return found
