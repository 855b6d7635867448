"""The NumPy frontend: tracers that answer NumPy's dispatch protocols."""
