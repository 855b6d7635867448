"""Which ops random graphs have, a file a family: tests/support/drawing.py says how to add one."""
