"""Graphs out, as JAX functions."""
