"""What users of JAX call: JAX functions in, JAX functions out."""
