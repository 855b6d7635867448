"""Compound ops as graphs of plain ones: the pass `legalize`, and its rules by family."""
