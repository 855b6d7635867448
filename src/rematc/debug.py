"""Printing, and calling Python, where a compiled program runs.

`print` and `callback` happen exactly as often as their lines are executed: differentiation has them in the forward pass
alone, and what a checkpoint recomputes does not print again.
"""

from rematc.compiler.api.debugging.calling import callback
from rematc.compiler.api.debugging.printing import print

__all__ = ["callback", "print"]
