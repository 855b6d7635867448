"""Slices: stages of a differentiated program as loops over parts of a dimension along which they are independent."""
