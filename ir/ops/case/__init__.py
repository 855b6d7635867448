"""Branches: `case` applies one of several graphs, chosen by an index."""
