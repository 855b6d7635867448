"""Transformations of functions: derivatives, batching, checkpoint."""
