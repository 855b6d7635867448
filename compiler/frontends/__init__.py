"""What users write, as graphs: functions of NumPy, functions of JAX, StableHLO text."""
