"""Tracing: the trace under construction, arguments as leaves, the user's location."""
