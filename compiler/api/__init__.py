"""What users call: `jit`, derivatives, `vmap`, checkpoints, control flow, random numbers, effects."""
