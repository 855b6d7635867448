"""The command, `remat-compile`."""
