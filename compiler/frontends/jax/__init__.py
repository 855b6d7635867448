"""JAX functions in: a jaxpr becomes a graph, equation by equation."""
