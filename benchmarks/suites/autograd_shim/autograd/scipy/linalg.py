"""What autograd has of scipy.linalg, written in NumPy: SciPy's own computes on concrete arrays only."""

from typing import Any

import numpy as np


def sqrtm(a: Any) -> Any:
    """The principal square root of a matrix with distinct eigenvalues."""
    values, vectors = np.linalg.eig(a + 0j)
    return (vectors * np.sqrt(values)) @ np.linalg.inv(vectors)


def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """The x with a x + x b = q: one linear system for all elements of x, row after row."""
    rows, columns = np.shape(q)
    system = np.kron(a, np.eye(columns)) + np.kron(np.eye(rows), np.transpose(b))
    return np.reshape(np.linalg.solve(system, np.reshape(q, -1)), (rows, columns))


def solve_banded(bands: tuple[int, int], ab: Any, b: Any) -> Any:
    """The x with a x = b, where a has as many diagonals below and above its own; they are the rows of `ab`."""
    below, above = bands
    size = np.shape(ab)[1]
    row, column = np.indices((size, size))
    diagonal = above + row - column
    is_inside = (diagonal >= 0) & (diagonal <= below + above)
    a = np.where(is_inside, ab[np.where(is_inside, diagonal, 0), column], 0.0)
    return np.linalg.solve(a, b)


def __getattr__(name: str) -> Any:
    def refused(*arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(f"scipy.linalg.{name}")

    return refused
