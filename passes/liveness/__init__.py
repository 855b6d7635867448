"""Liveness: the temporary memory of a program, predicted from its graph by what XLA on the CPU does with one."""
