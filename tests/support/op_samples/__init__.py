"""Rows of sample operands, one file for each family of ops; see `tests/support/samples.py`."""
