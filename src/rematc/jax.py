"""JAX functions in, JAX functions out.

    import rematc.jax

    step = rematc.jax.value_and_grad(loss, policy="dots")    # instead of jax.value_and_grad
    layer = rematc.jax.checkpoint(layer, policy="dots")      # instead of jax.checkpoint

What comes out are JAX functions: they work under `jax.jit`, `jax.vmap`, `jax.grad` and `jax.shard_map`.
"""

from jax.ad_checkpoint import checkpoint_name

from rematc.compiler.jax_api.checkpointing import checkpoint
from rematc.compiler.jax_api.differentiating import grad, value_and_grad, vjp
from rematc.compiler.jax_api.jitting import jit

remat = checkpoint

__all__ = ["checkpoint", "checkpoint_name", "grad", "jit", "remat", "value_and_grad", "vjp"]
