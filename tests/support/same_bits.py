"""Whether two graphs give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate


class SameBits:
    """Compares graphs of the same arguments; what the first of two gave last is remembered."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._known: tuple[Graph, list[bytes]] | None = None

    def __call__(self, graph: Graph, other: Graph) -> bool:
        """Whether both give the same."""
        if self._known is None or self._known[0] is not graph:
            self._known = graph, self._bits(graph)
        return self._known[1] == self._bits(other)

    def _bits(self, graph: Graph) -> list[bytes]:
        return [np.asarray(result).tobytes() for result in evaluate(graph, list(self._arguments))]
