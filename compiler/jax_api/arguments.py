"""The arguments of a call of a JAX function: arrays of JAX's any kind, and what stays what it is."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.tracing.arguments import Arguments
from rematc.lowering.jax_internals.references import is_part_of_reference
from rematc.lowering.jax_internals.settings import trace_context
from rematc.lowering.signature import Function, Identified, Owners, Signature, static_key


@dataclass(frozen=True, slots=True, eq=False)
class JaxArguments(Arguments):
    """Arguments of one call, the arrays apart from everything else: those that JAX traces, typed keys among them."""

    @staticmethod
    def of(args: Sequence[Any], kwargs: dict[str, Any], statics: Owners) -> JaxArguments:
        """Take the arguments of a call apart."""
        others, held = statics.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(others)
        places = tuple([index for index, leaf in enumerate(leaves) if _is_traced(leaf)])
        return JaxArguments(tuple(leaves), tree, places, tuple(held.items()))

    def names(self, function: Function) -> tuple[str, ...]:
        """What each array is called in the terms of the function."""
        numbered = jax.tree_util.tree_unflatten(self.tree, range(len(self.leaves)))
        paths, _ = jax.tree_util.tree_flatten_with_path(numbered)
        places = set(self.places)
        return Signature.of(function).leaf_names([path for path, index in paths if index in places])

    def with_fixed(self, leaves: Collection[int]) -> JaxArguments:
        """The same call, these leaves not traced, as far as they are Python's numbers."""
        kept = [
            index
            for index in self.places
            if not (index in leaves and isinstance(self.leaves[index], (int, float, complex)))
        ]
        return replace(self, places=tuple(kept))

    def key(self) -> Hashable:
        """What two calls have in common that are traced alike: all but the elements of arrays."""
        return (
            self.tree,
            self.places,
            tuple([Identified.of(leaf) for leaf in self.others]),
            static_key(self.statics),
            tuple([jax.typeof(array) for array in self.arrays]),
            trace_context(),
        )


def _is_traced(leaf: Any) -> bool:
    """Whether a leaf is traced: arrays (JAX's, NumPy's, a tracer, a typed key) and Python's numbers are.

    Truth values are flags, which functions branch on, and a part of a reference is no array.
    """
    if isinstance(leaf, bool):
        return False
    if isinstance(leaf, (int, float, complex)):
        return True
    is_array = isinstance(leaf, (jax.Array, np.ndarray, np.generic)) or hasattr(leaf, "__jax_array__")
    return is_array and not is_part_of_reference(leaf)
