"""Random functions in NumPy's and JAX's words: every frontend and every way to derivatives of theirs, beside JAX."""
