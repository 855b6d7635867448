"""Slices: a stage of a differentiated program as a loop over parts of a dimension along which it is independent."""
