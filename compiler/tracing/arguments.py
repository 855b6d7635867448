"""The arguments of a call: which are static, which are arrays, what they are called."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.tracing.trace import Tracer
from rematc.compiler.tracing.typed_keys import with_words
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.types import TensorType, dtype_of_numpy

Function = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Statics:
    """Which arguments of a function are static: Python values that the function may branch on.

    Attributes:
        positions: their positions; those that may also come by keyword are in `names` too.
        names: their keywords.
    """

    positions: frozenset[int]
    names: frozenset[str]

    @staticmethod
    def of(
        function: Function,
        argnums: int | Sequence[int] | None,
        argnames: str | Sequence[str] | None,
        what: str = "static",
    ) -> Statics:
        """Arguments given by position or by name; either form covers calls in the other form. Errors say `what`.

        Raises CompileError for positions and names that the function does not have.
        """
        names = {argnames} if isinstance(argnames, str) else set(argnames or ())
        positions = {argnums} if isinstance(argnums, int) else set(argnums or ())
        params = _positional_names(function)
        _check_statics(function, positions, names, what)
        positions = {index + len(params) if index < 0 else index for index in positions}
        names_by_position = {params[index] for index in positions if index < len(params)}
        positions |= {index for index, name in enumerate(params) if name in names}
        return Statics(frozenset(positions), frozenset(names | names_by_position))


def function_name(function: Function) -> str:
    """A function's own name, or its type's."""
    return getattr(function, "__name__", type(function).__name__)


def _parameters(function: Function) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _positional_names(function: Function) -> list[str]:
    """What a function calls its positional parameters, as far as it says."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [param.name for param in _parameters(function) if param.kind in kinds]


def _check_statics(function: Function, positions: set[int], names: set[str], what: str) -> None:
    kinds = {param.kind for param in _parameters(function)}
    if not kinds or inspect.Parameter.VAR_POSITIONAL in kinds:
        wrong = [index for index in positions if index < 0]
        if wrong:
            raise CompileError(
                f"{what}_argnums counts from the end ({wrong[0]}), but the number of positional arguments of "
                f"'{function_name(function)}' is not known; count from the start",
                user_location(),
            )
        return
    params = _positional_names(function)
    for index in sorted(positions):
        if not -len(params) <= index < len(params):
            raise CompileError(
                f"{what}_argnums names argument {index}, but '{function_name(function)}' takes {len(params)} "
                "positional arguments",
                user_location(),
            )
    known = {param.name for param in _parameters(function)}
    for name in sorted(names - known):
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            raise CompileError(
                f"{what}_argnames names '{name}', but '{function_name(function)}' has no such argument "
                f"(arguments: {', '.join(sorted(known))})",
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


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Arguments of one call, the arrays apart from everything else.

    Attributes:
        arrays: the array-like leaves, in order.
        names: what each is called in the user's terms: `params['w']`, `x`, `args[3]`.
        types: type of each.
        weak: for each, whether it is a Python number.
    """

    arrays: tuple[object, ...]
    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    weak: tuple[bool, ...]
    _leaves: tuple[object, ...]
    _tree: jax.tree_util.PyTreeDef
    _positions: tuple[int, ...]
    _statics: tuple[tuple[int | str, object], ...]

    @staticmethod
    def of(
        function: Function | None, args: Sequence[object], kwargs: dict[str, object], statics: Statics | None = None
    ) -> CallArguments:
        """Take the arguments of `function(*args, **kwargs)` apart; a function that is not known gives no names."""
        fixed: list[tuple[int | str, object]] = []
        if statics is not None:
            fixed += [(index, value) for index, value in enumerate(args) if index in statics.positions]
            fixed += [(name, value) for name, value in kwargs.items() if name in statics.names]
        held = {key for key, _ in fixed}
        positional = tuple(None if index in held else value for index, value in enumerate(args))
        keyword = {name: value for name, value in kwargs.items() if name not in held}
        paths, tree = jax.tree_util.tree_flatten_with_path(with_words((positional, keyword)))
        leaves = tuple([leaf for _, leaf in paths])
        positions = tuple([index for index, leaf in enumerate(leaves) if is_array_like(leaf)])
        types, weak = [], []
        for index in positions:
            type, is_weak = leaf_type(leaves[index])
            types.append(type)
            weak.append(is_weak)
        return CallArguments(
            tuple([leaves[index] for index in positions]),
            leaf_names(function, [paths[index][0] for index in positions]),
            tuple(types),
            tuple(weak),
            leaves,
            tree,
            positions,
            tuple(fixed),
        )

    def call(self, function: Function, arrays: Sequence[object]) -> object:
        """Call `function` with these arguments, the arrays replaced."""
        leaves = list(self._leaves)
        for index, array in zip(self._positions, arrays, strict=True):
            leaves[index] = array
        positional, keyword = jax.tree_util.tree_unflatten(self._tree, leaves)
        args = list(positional)
        for key, value in self._statics:
            if isinstance(key, int):
                args[key] = value
            else:
                keyword[key] = value
        return function(*args, **keyword)

    def only(self, owners: Sequence[int | str]) -> CallArguments:
        """The same call with the arrays of these arguments alone; the others become part of the function."""
        kept = [index for index, owner in enumerate(self.owners()) if owner in owners]
        return dataclasses.replace(
            self,
            arrays=tuple([self.arrays[index] for index in kept]),
            names=tuple([self.names[index] for index in kept]),
            types=tuple([self.types[index] for index in kept]),
            weak=tuple([self.weak[index] for index in kept]),
            _positions=tuple([self._positions[index] for index in kept]),
        )

    def array_tree(self) -> jax.tree_util.PyTreeDef:
        """The structure of (positional arguments, keyword arguments), with None for every leaf that is no array."""
        leaves: list[object] = [None] * len(self._leaves)
        for index in self._positions:
            leaves[index] = 0
        return jax.tree_util.tree_structure(jax.tree_util.tree_unflatten(self._tree, leaves))

    def positional(self, arrays: Sequence[object]) -> tuple[object, ...]:
        """The positional arguments' trees with `arrays` for the arrays and None for every other leaf."""
        leaves: list[object] = [None] * len(self._leaves)
        for index, array in zip(self._positions, arrays, strict=True):
            leaves[index] = array
        positional: tuple[object, ...] = jax.tree_util.tree_unflatten(self._tree, leaves)[0]
        return positional

    def matching(self, what: str, positional: Sequence[object], keyword: dict[str, object]) -> list[object]:
        """The leaves of other arguments of the same structure that stand where this call has arrays.

        Raises CompileError, which calls them `what`, where the structure is another one.
        """
        held = {key for key, _ in self._statics}
        others = tuple(None if index in held else value for index, value in enumerate(positional))
        leaves, found = jax.tree_util.tree_flatten(
            (others, {name: value for name, value in keyword.items() if name not in held})
        )
        if found != self._tree:
            raise CompileError(f"the {what} have the structure {found}, expected {self._tree}", user_location())
        return [leaves[index] for index in self._positions]

    def owners(self) -> tuple[int | str, ...]:
        """For each array, the position or keyword of the argument that it is part of."""
        owners = owners_of_leaves(self._tree)
        return tuple([owners[index] for index in self._positions])

    def donated(self, arguments: Statics) -> tuple[int, ...]:
        """Which of the arrays are parts of these arguments."""
        owners = enumerate(self.owners())
        return tuple([index for index, one in owners if one in arguments.positions or one in arguments.names])

    def fixed(self) -> list[tuple[str, object]]:
        """What is no array, under its name: static arguments, flags, and other leaves."""
        arrays = set(self._positions)
        paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree_util.tree_unflatten(self._tree, self._leaves))
        leaves = [(path, leaf) for index, (path, leaf) in enumerate(paths) if index not in arrays]
        named = zip(leaf_names(None, [path for path, _ in leaves]), [leaf for _, leaf in leaves], strict=True)
        return [*named, *[(key if isinstance(key, str) else f"args[{key}]", value) for key, value in self._statics]]


def owners_of_leaves(tree: jax.tree_util.PyTreeDef) -> dict[int, int | str]:
    """By leaf of a tree of (positional arguments, keyword arguments), the position or keyword that it is part of."""
    positional, keyword = jax.tree_util.tree_unflatten(tree, range(tree.num_leaves))
    owners: dict[int, int | str] = {}
    for owner, argument in (*enumerate(positional), *keyword.items()):
        owners.update(dict.fromkeys(jax.tree_util.tree_leaves(argument), owner))
    return owners


def leaf_names(function: Function | None, paths: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """What leaves of (positional arguments, keyword arguments) are called in the terms of the function."""
    params = [] if function is None else _parameters(function)
    return tuple([_leaf_name(params, path) for path in paths])


def _leaf_name(params: Sequence[inspect.Parameter], path: tuple[object, ...]) -> str:
    kind, key, *rest = path
    suffix = jax.tree_util.keystr(tuple(rest))
    if getattr(kind, "idx", None) == 1:
        return f"{getattr(key, 'key', key)}{suffix}"
    index = int(getattr(key, "idx", 0))
    positional = [param for param in params if param.kind is not inspect.Parameter.KEYWORD_ONLY]
    if index < len(positional) and positional[index].kind is not inspect.Parameter.VAR_POSITIONAL:
        return f"{positional[index].name}{suffix}"
    if positional and positional[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        return f"{positional[-1].name}[{index - len(positional) + 1}]{suffix}"
    return f"args[{index}]{suffix}"
