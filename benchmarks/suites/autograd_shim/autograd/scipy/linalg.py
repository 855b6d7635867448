"""Not offered: SciPy's decompositions beyond numpy.linalg."""

from typing import Any


def __getattr__(name: str) -> Any:
    def refused(*arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(f"scipy.linalg.{name}")

    return refused
