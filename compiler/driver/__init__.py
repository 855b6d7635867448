"""Ahead of time: from a function and example arguments to text, to an executable, to a report."""
