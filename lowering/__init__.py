"""From a graph to StableHLO, and on to XLA: the writer, validation, the runtime, JAX functions."""
