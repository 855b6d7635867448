"""Python functions and graphs for each other: a call traced, a graph applied, the policies that users pass."""
