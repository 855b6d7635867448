"""Printing and calling Python from traced functions: `rematc.debug`, `rematc.pure_callback`, `rematc.io_callback`."""
