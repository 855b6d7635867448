"""`check_jax`: what XLA makes of a function of JAX's, under `jax.checkpoint` and under a policy of ours."""
