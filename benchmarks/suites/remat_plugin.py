"""A plugin of pytest's: `rematc.jax.checkpoint` in the place of `jax.checkpoint`, wherever JAX's tests look for it."""

from __future__ import annotations

import jax
import jax.ad_checkpoint
from jax._src import ad_checkpoint

import rematc.jax

for module in (jax, jax.ad_checkpoint, ad_checkpoint):
    for name in ("checkpoint", "remat", "new_checkpoint"):
        if hasattr(module, name):
            setattr(module, name, rematc.jax.checkpoint)
