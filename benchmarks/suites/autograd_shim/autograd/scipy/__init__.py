"""SciPy's functions: its ufuncs trace by themselves, the others are written here in NumPy."""
