"""Random numbers from counter-based keys: `rematc.random`."""
