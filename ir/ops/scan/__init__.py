"""Loops of a fixed number of steps over slices of arrays: `scan`."""
