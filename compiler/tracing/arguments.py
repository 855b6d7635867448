"""The arguments of a call: which are static, which are arrays, what they are called."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, SupportsIndex

import jax
import jax.tree_util
import numpy as np
from jax.sharding import NamedSharding

from rematc.compiler.tracing.trace import Tracer
from rematc.compiler.tracing.typed_keys import with_words
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.types import TensorType, dtype_of_numpy
from rematc.lowering.jax_internals.shardings import sharding_of_type
from rematc.lowering.signature import NO_OWNERS, Function, Owner, Owners, Signature, function_name, owners_of_leaves


def differentiated(argnums: object) -> int | tuple[int, ...]:
    """The position of what is differentiated by, or several. Raises CompileError for what is neither."""
    try:
        if isinstance(argnums, SupportsIndex):
            return operator.index(argnums)
        if isinstance(argnums, Iterable) and not isinstance(argnums, str):
            return tuple([operator.index(index) for index in argnums])
    except TypeError:
        pass
    raise CompileError(
        f"argnums is {argnums!r}, which is no position of an argument, and no sequence of them; a policy and a budget "
        "are passed by keyword: policy='dots'",
        user_location(),
    )


def argument_positions(function: Function, argnums: int | Sequence[int], count: int) -> tuple[int, ...]:
    """What `argnums` names among `count` positional arguments, counted from the start."""
    given = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for index in given:
        if not -count <= index < count:
            raise CompileError(
                f"argnums names argument {index}, but '{function_name(function)}' was called with {count} "
                "positional arguments; pass what is differentiated by position",
                user_location(),
            )
    return tuple(index % count for index in given)


def chosen(argnums: int | Sequence[int], positional: tuple[object, ...]) -> object:
    """What belongs to the arguments that `argnums` names: of one argument alone, or a tuple."""
    if isinstance(argnums, int):
        return positional[argnums]
    return tuple(positional[index] for index in argnums)


def is_array_like(leaf: object) -> bool:
    """Whether a leaf becomes a traced array: tracers, NumPy and JAX arrays, numbers.

    Other leaves stay what they are, and so do Python's own booleans: they are flags, which functions branch on.
    """
    if isinstance(leaf, bool):
        return False
    return isinstance(leaf, (Tracer, np.ndarray, np.generic, int, float, complex)) or (
        hasattr(leaf, "__array__") or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
    )


def leaf_type(leaf: object) -> tuple[TensorType, bool]:
    """Type of an array-like leaf, and whether it is weak (a Python number).

    Raises CompileError for element types that StableHLO does not have, and for references.
    """
    if isinstance(leaf, Tracer):
        return leaf.value.type, leaf.weak
    if isinstance(leaf, jax.Ref):
        raise CompileError(
            "a reference (jax.new_ref) is no argument of a rematc function: pass the array in it and return the new "
            "one, or make the reference inside",
            user_location(),
        )
    if isinstance(leaf, (int, float, complex)) and not isinstance(leaf, np.generic):
        array = np.asarray(leaf)
        numpy, shape, is_weak = array.dtype, array.shape, True
    else:
        if not hasattr(leaf, "dtype"):
            leaf = np.asarray(leaf)
        numpy, shape = np.dtype(leaf.dtype), tuple(leaf.shape)  # type: ignore[attr-defined]  # arrays of any library
        is_weak = bool(getattr(leaf, "weak_type", False))
    dtype = dtype_of_numpy(numpy)
    if dtype is None:
        raise CompileError(f"arrays of dtype {numpy} cannot be compiled; use booleans, integers, floats or complex")
    return TensorType(dtype, shape), is_weak


def lies(leaf: object) -> NamedSharding | None:
    """How an argument lies on several devices, of a program that is made for it; None where nobody knows."""
    if isinstance(leaf, Tracer):
        return leaf.lies
    found = sharding_of_type(leaf) if isinstance(leaf, jax.core.Tracer) else getattr(leaf, "sharding", None)
    return found if isinstance(found, NamedSharding) and found.mesh.size > 1 else None


def _sharding_of_type(leaf: object) -> NamedSharding | None:
    return leaf.sharding if isinstance(leaf, Tracer) else sharding_of_type(leaf)


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """Arguments of one call, the arrays apart from everything else.

    Attributes:
        leaves: all leaves of (positional arguments, keyword arguments) that are not static.
        tree: how they make these up.
        places: which of them are the arrays.
        statics: the static arguments, by position or keyword.
    """

    leaves: tuple[Any, ...]
    tree: jax.tree_util.PyTreeDef
    places: tuple[int, ...]
    statics: tuple[tuple[Owner, Any], ...]

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The array-like leaves, in order."""
        return tuple([self.leaves[index] for index in self.places])

    @property
    def others(self) -> tuple[Any, ...]:
        """The leaves that are no arrays."""
        places = set(self.places)
        return tuple([leaf for index, leaf in enumerate(self.leaves) if index not in places])

    def without_arrays(self) -> Self:
        """The same call, for what outlives it and calls with other arrays."""
        places = set(self.places)
        leaves = tuple([None if index in places else leaf for index, leaf in enumerate(self.leaves)])
        return replace(self, leaves=leaves)

    def call(self, function: Function, arrays: Sequence[Any]) -> Any:
        """Call `function` with these arguments, the arrays replaced."""
        positional, keyword = self._unflattened(self.leaves, arrays)
        args = list(positional)
        for key, value in self.statics:
            if isinstance(key, int):
                args[key] = value
            else:
                keyword[key] = value
        return function(*args, **keyword)

    def positional(self, arrays: Sequence[Any], others: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The positional arguments' trees with `arrays` for the arrays and `others`, or None, for every other leaf."""
        leaves: list[Any] = [None] * len(self.leaves)
        if others is not None:
            rest = [index for index in range(len(leaves)) if index not in set(self.places)]
            for index, other in zip(rest, others, strict=True):
                leaves[index] = other
        found: tuple[Any, ...] = self._unflattened(leaves, arrays)[0]
        return found

    def array_tree(self) -> jax.tree_util.PyTreeDef:
        """The structure of (positional arguments, keyword arguments), with None for every leaf that is no array."""
        trees = self._unflattened([None] * len(self.leaves), [0] * len(self.places))
        return jax.tree_util.tree_structure(trees)

    def _unflattened(self, leaves: Sequence[Any], arrays: Sequence[Any]) -> Any:
        filled = list(leaves)
        for index, array in zip(self.places, arrays, strict=True):
            filled[index] = array
        return jax.tree_util.tree_unflatten(self.tree, filled)

    def matching(self, what: str, positional: Sequence[object], keyword: dict[str, object]) -> list[object]:
        """The leaves of other arguments of the same structure that stand where this call has arrays.

        Raises CompileError, which calls them `what`, where the structure is another one.
        """
        held = {key for key, _ in self.statics}
        others = tuple(None if index in held else value for index, value in enumerate(positional))
        leaves, found = jax.tree_util.tree_flatten(
            (others, {name: value for name, value in keyword.items() if name not in held})
        )
        if found != self.tree:
            raise CompileError(f"the {what} have the structure {found}, expected {self.tree}", user_location())
        return [leaves[index] for index in self.places]

    def owners(self) -> tuple[Owner, ...]:
        """For each array, the position or keyword of the argument that it is part of."""
        owners = owners_of_leaves(self.tree)
        return tuple([owners[index] for index in self.places])

    def among(self, arguments: Owners) -> tuple[int, ...]:
        """Which of the arrays are parts of these arguments."""
        return tuple([index for index, owner in enumerate(self.owners()) if owner in arguments])


@dataclass(frozen=True, slots=True, eq=False)
class CallArguments(Arguments):
    """Arguments of one call of a rematc function: typed keys are the words that they are made of.

    Attributes:
        names: what each array is called in the user's terms: `params['w']`, `x`, `args[3]`.
        types: type of each.
        weak: for each, whether it is a Python number.
        shardings: for each, JAX's sharding where its type says one (axes of type Explicit), else None.
        lying: for each, how it lies on several devices, whatever its type says; None where nobody knows.
    """

    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    weak: tuple[bool, ...]
    shardings: tuple[NamedSharding | None, ...]
    lying: tuple[NamedSharding | None, ...]

    @staticmethod
    def of(
        function: Function | None, args: Sequence[object], kwargs: dict[str, object], statics: Owners = NO_OWNERS
    ) -> CallArguments:
        """Take the arguments of `function(*args, **kwargs)` apart; a function that is not known gives no names."""
        others, held = statics.split(args, kwargs)
        rows, tree = jax.tree_util.tree_flatten_with_path(with_words(others))
        places = tuple([index for index, (_, leaf) in enumerate(rows) if is_array_like(leaf)])
        types = [leaf_type(rows[index][1]) for index in places]
        return CallArguments(
            tuple([leaf for _, leaf in rows]),
            tree,
            places,
            tuple(held.items()),
            Signature.of(function).leaf_names([rows[index][0] for index in places]),
            tuple([type for type, _ in types]),
            tuple([is_weak for _, is_weak in types]),
            tuple([_sharding_of_type(rows[index][1]) for index in places]),
            tuple([lies(rows[index][1]) for index in places]),
        )

    def only(self, owners: Sequence[Owner]) -> CallArguments:
        """The same call with the arrays of these arguments alone; the others become part of the function."""
        kept = [index for index, owner in enumerate(self.owners()) if owner in owners]
        return replace(
            self,
            places=tuple([self.places[index] for index in kept]),
            names=tuple([self.names[index] for index in kept]),
            types=tuple([self.types[index] for index in kept]),
            weak=tuple([self.weak[index] for index in kept]),
            shardings=tuple([self.shardings[index] for index in kept]),
            lying=tuple([self.lying[index] for index in kept]),
        )

    def fixed(self) -> list[tuple[str, object]]:
        """What is no array, under its name: static arguments, flags, and other leaves."""
        places = set(self.places)
        paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree_util.tree_unflatten(self.tree, self.leaves))
        rows = [row for index, row in enumerate(paths) if index not in places]
        named = zip(Signature.of(None).leaf_names([path for path, _ in rows]), [leaf for _, leaf in rows], strict=True)
        return [*named, *[(key if isinstance(key, str) else f"args[{key}]", value) for key, value in self.statics]]
