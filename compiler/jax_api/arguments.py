"""The arguments of a call of a JAX function: arrays of JAX's any kind, and what stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.tracing.arguments import Function, Statics, leaf_names, owners_of_leaves
from rematc.lowering.jax_internals.references import is_part_of_reference
from rematc.lowering.jax_internals.settings import trace_context


@dataclass(frozen=True, slots=True, eq=False)
class JaxArguments:
    """Arguments of one call, the arrays apart from everything else.

    Attributes:
        arrays: the leaves that JAX traces, in order: arrays, tracers, typed keys, Python's numbers.
        tree: the structure of all leaves of (positional arguments, keyword arguments) that are not static.
        is_array: for each leaf, whether it is one of the arrays.
        fixed: the leaves that are not.
        statics: the static arguments, by position or keyword.
    """

    arrays: tuple[Any, ...]
    tree: jax.tree_util.PyTreeDef
    is_array: tuple[bool, ...]
    fixed: tuple[Any, ...]
    statics: tuple[tuple[int | str, Any], ...]

    @staticmethod
    def of(
        args: Sequence[Any], kwargs: dict[str, Any], statics: Statics, is_array: Callable[[Any], bool]
    ) -> JaxArguments:
        """Take the arguments of a call apart; `is_array` says which leaves are traced."""
        held: dict[int | str, Any] = {
            **{index: value for index, value in enumerate(args) if index in statics.positions},
            **{name: value for name, value in kwargs.items() if name in statics.names},
        }
        positional = tuple([None if index in held else value for index, value in enumerate(args)])
        keyword = {name: value for name, value in kwargs.items() if name not in held}
        leaves, tree = jax.tree_util.tree_flatten((positional, keyword))
        flags = tuple([is_array(leaf) for leaf in leaves])
        return JaxArguments(
            tuple([leaf for leaf, is_set in zip(leaves, flags, strict=True) if is_set]),
            tree,
            flags,
            tuple([leaf for leaf, is_set in zip(leaves, flags, strict=True) if not is_set]),
            tuple(held.items()),
        )

    def call(self, function: Function, arrays: Sequence[Any]) -> Any:
        """Call `function` with these arguments, the arrays replaced."""
        args, keyword = self._unflattened(arrays, self.fixed)
        positional = list(args)
        for key, value in self.statics:
            if isinstance(key, int):
                positional[key] = value
            else:
                keyword[key] = value
        return function(*positional, **keyword)

    def names(self, function: Function) -> tuple[str, ...]:
        """What each array is called in the terms of the function."""
        numbered = jax.tree_util.tree_unflatten(self.tree, range(len(self.is_array)))
        paths, _ = jax.tree_util.tree_flatten_with_path(numbered)
        return leaf_names(function, [path for path, index in paths if self.is_array[index]])

    def positional(self, arrays: Sequence[Any], others: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The positional arguments' trees with `arrays` for the arrays and `others`, or None, for every other leaf."""
        found: tuple[Any, ...] = self._unflattened(arrays, [None] * len(self.fixed) if others is None else others)[0]
        return found

    def leaf_index(self, index: int) -> int:
        """Which leaf one of the arrays is."""
        return [leaf for leaf, is_set in enumerate(self.is_array) if is_set][index]

    def with_fixed(self, leaves: Collection[int]) -> JaxArguments:
        """The same call, these leaves not traced, as far as they are Python's numbers."""
        given, kept = iter(self.arrays), iter(self.fixed)
        all_leaves = [next(given) if is_set else next(kept) for is_set in self.is_array]
        flags = tuple(
            [
                is_set and not (index in leaves and isinstance(leaf, (int, float, complex)))
                for index, (leaf, is_set) in enumerate(zip(all_leaves, self.is_array, strict=True))
            ]
        )
        return replace(
            self,
            arrays=tuple([leaf for leaf, is_set in zip(all_leaves, flags, strict=True) if is_set]),
            is_array=flags,
            fixed=tuple([leaf for leaf, is_set in zip(all_leaves, flags, strict=True) if not is_set]),
        )

    def owners(self) -> tuple[int | str, ...]:
        """For each array, the position or keyword of the argument that it is part of."""
        owners = owners_of_leaves(self.tree)
        return tuple([owners[index] for index, is_set in enumerate(self.is_array) if is_set])

    def key(self) -> tuple[Any, ...]:
        """What two calls have in common that are traced alike: all but the elements of arrays."""
        return (
            self.tree,
            self.is_array,
            tuple([Identified.of(leaf) for leaf in self.fixed]),
            tuple([(name, Identified.of(value)) for name, value in self.statics]),
            tuple([jax.typeof(array) for array in self.arrays]),
            trace_context(),
        )

    def _unflattened(self, arrays: Sequence[Any], fixed: Sequence[Any]) -> Any:
        given, kept = iter(arrays), iter(fixed)
        leaves = [next(given) if is_set else next(kept) for is_set in self.is_array]
        return jax.tree_util.tree_unflatten(self.tree, leaves)


@dataclass(frozen=True, slots=True, eq=False)
class Identified:
    """A Python value as a key: by equality where it can be hashed, else by identity.

    Attributes:
        value: the value, which lives as long as its key.
    """

    value: Any

    @staticmethod
    def of(value: Any) -> Any:
        """A key for the value. Types are told apart: True is not 1."""
        try:
            hash(value)
        except TypeError:
            return Identified(value)
        return type(value), value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identified) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def is_traced_number(leaf: Any) -> bool:
    """Whether a leaf is traced: arrays and Python's numbers are. Truth values are flags, which functions branch on."""
    return not isinstance(leaf, bool) and (isinstance(leaf, (int, float, complex)) or is_jax_array(leaf))


def is_jax_array(leaf: Any) -> bool:
    """Whether a leaf is an array: JAX's, NumPy's, a tracer, a typed key. A part of a reference is none."""
    if is_part_of_reference(leaf):
        return False
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic)) or hasattr(leaf, "__jax_array__")
