"""What the arguments of a function are called, which of them are static, and what two calls of it have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.tree_util

from rematc.ir.errors import CompileError
from rematc.ir.spelling import suggestion

Function = Callable[..., object]
Numbers = int | Sequence[int]
Names = str | Sequence[str]
#: An argument of a call: its position, or its keyword.
Owner = int | str

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Of functions that do not say what they take, such as some that are written in C.
_UNKNOWN = inspect.signature(lambda *args, **kwargs: None)


@dataclass(frozen=True, slots=True)
class Owners:
    """Some of a function's arguments.

    Attributes:
        positions: their positions; those that may also come by keyword are in `names` too.
        names: their keywords.
    """

    positions: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()

    def __contains__(self, owner: Owner) -> bool:
        return owner in self.positions or owner in self.names

    def union(self, other: Owners) -> Owners:
        """These arguments and those."""
        return Owners(self.positions | other.positions, self.names | other.names)

    def without(self, other: Owners) -> Owners:
        """Those of these arguments that are not among the others."""
        return Owners(self.positions - other.positions, self.names - other.names)

    def split(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], dict[Owner, Any]]:
        """The other arguments of a call, (positional, keyword) with None in the places of these; and these."""
        held: dict[Owner, Any] = {index: value for index, value in enumerate(args) if index in self.positions}
        held |= {name: value for name, value in kwargs.items() if name in self.names}
        positional = tuple([None if index in held else value for index, value in enumerate(args)])
        return (positional, {name: value for name, value in kwargs.items() if name not in held}), held


NO_OWNERS = Owners()


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function.

    Attributes:
        name: of the function.
        parameters: as `inspect` tells.
        statics: the arguments that are static: Python values that the function may branch on.
    """

    name: str
    parameters: inspect.Signature
    statics: Owners = NO_OWNERS

    @staticmethod
    def of(
        function: Function | None, static_argnums: Numbers | None = (), static_argnames: Names | None = ()
    ) -> Signature:
        """The signature of a function; of one that is not known, any arguments. Raises as `owners` does."""
        try:
            parameters = _UNKNOWN if function is None else inspect.signature(function)
        except (TypeError, ValueError):
            parameters = _UNKNOWN
        found = Signature("" if function is None else function_name(function), parameters)
        return replace(found, statics=found.owners(static_argnums, static_argnames))

    @property
    def positional(self) -> list[inspect.Parameter]:
        """The parameters that can be passed by position, those of `*args` excepted."""
        return [parameter for parameter in self.parameters.parameters.values() if parameter.kind in _POSITIONAL]

    def owners(self, argnums: Numbers | None, argnames: Names | None, what: str = "static") -> Owners:
        """Arguments given by position or by name; either form covers calls in the other form. Errors say `what`.

        Raises CompileError for positions and names that the function does not have.
        """
        numbers = (argnums,) if isinstance(argnums, int) else argnums or ()
        names = {argnames} if isinstance(argnames, str) else set(argnames or ())
        positions = {self._position(number, what) for number in numbers}
        self._check_names(names, what)
        for number, parameter in enumerate(self.positional):
            if number in positions or parameter.name in names:
                positions.add(number)
                if parameter.kind is not parameter.POSITIONAL_ONLY:
                    names.add(parameter.name)
        return Owners(frozenset(positions), frozenset(names))

    def _position(self, number: int, what: str) -> int:
        count, takes_any = len(self.positional), self._takes(inspect.Parameter.VAR_POSITIONAL)
        if takes_any and number < 0:
            raise CompileError(
                f"{what}_argnums counts from the end ({number}), but the number of positional arguments of "
                f"'{self.name}' is not known; count from the start"
            )
        if not takes_any and not -count <= number < count:
            raise CompileError(
                f"{what}_argnums names argument {number}, but '{self.name}' takes {count} positional arguments"
            )
        return number if number >= 0 else number + count

    def _check_names(self, names: set[str], what: str) -> None:
        known = self.parameters.parameters
        if self._takes(inspect.Parameter.VAR_KEYWORD):
            return
        for name in sorted(names - known.keys()):
            raise CompileError(
                f"{what}_argnames names '{name}', but '{self.name}' has no such argument{suggestion(name, known)} "
                f"(arguments: {', '.join(sorted(known))})"
            )

    def _takes(self, kind: Any) -> bool:
        return any(parameter.kind is kind for parameter in self.parameters.parameters.values())

    def leaf_names(self, paths: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
        """What leaves of (positional arguments, keyword arguments) are called: `params['w']`, `x`, `args[3]`."""
        return tuple([self._leaf_name(*path) for path in paths])

    def _leaf_name(self, kind: Any, key: Any, *rest: Any) -> str:
        is_keyword = getattr(kind, "idx", None) == 1
        owner = getattr(key, "key", key) if is_keyword else int(getattr(key, "idx", 0))
        return f"{self._argument_name(owner)}{jax.tree_util.keystr(rest)}"

    def _argument_name(self, owner: Owner) -> str:
        if not isinstance(owner, int):
            return str(owner)
        names = [parameter.name for parameter in self.positional]
        if owner < len(names):
            return names[owner]
        kinds = self.parameters.parameters.values()
        rest = next((parameter.name for parameter in kinds if parameter.kind is parameter.VAR_POSITIONAL), None)
        return f"args[{owner}]" if rest is None else f"{rest}[{owner - len(names)}]"

    def after(self, name: str) -> inspect.Signature:
        """The parameters with one more in front."""
        first = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
        return inspect.Signature([first, *self.parameters.parameters.values()])

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Hashable]:
        """The arguments `(args, kwargs)` that are not static, and a key for those that are."""
        if not self.statics.positions and not self.statics.names:
            return (args, kwargs), ()
        others, held = self.statics.split(args, kwargs)
        return others, static_key(held.items())

    def rough_key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """A key that tells most calls apart that are compiled differently, made without asking JAX."""
        others, static = self.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(others)
        described = [(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else type(leaf) for leaf in leaves]
        return (tree, static, tuple(described))

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise CompileError where JAX cannot compile a call: where an argument that is not static holds something else
        than arrays and numbers, or a static one cannot be hashed, so that no program can be found by it.
        """
        others, held = self.statics.split(args, kwargs)
        for path, leaf in jax.tree_util.tree_flatten_with_path(others)[0]:
            try:
                jax.typeof(leaf)
            except TypeError:
                raise CompileError(
                    f"argument {self._leaf_name(*path)} is a {_describe(leaf)}, expected an array or a number; "
                    "if the function is to be compiled for its value, name it in static_argnames"
                ) from None
        for owner, value in held.items():
            try:
                hash(value)
            except TypeError as error:
                raise CompileError(
                    f"the static argument {self._argument_name(owner)} of '{self.name}' is {_a(value)}, which cannot "
                    f"be hashed ({error}); programs are found by the values of static arguments: "
                    f"pass {_hashable(value)}"
                ) from None


def function_name(function: Function) -> str:
    """A function's own name, or its type's."""
    return getattr(function, "__name__", type(function).__name__)


def owners_of_leaves(tree: jax.tree_util.PyTreeDef) -> dict[int, Owner]:
    """By leaf of a tree of (positional arguments, keyword arguments), the position or keyword that it is part of."""
    positional, keyword = jax.tree_util.tree_unflatten(tree, range(tree.num_leaves))
    owners: dict[int, Owner] = {}
    for owner, argument in (*enumerate(positional), *keyword.items()):
        owners.update(dict.fromkeys(jax.tree_util.tree_leaves(argument), owner))
    return owners


def static_key(statics: Iterable[tuple[Owner, Any]]) -> Hashable:
    """A key for static arguments."""
    return tuple([(owner, Identified.of(value)) for owner, value in statics])


@dataclass(frozen=True, slots=True, eq=False)
class Identified:
    """A Python value as a key: by equality where it can be hashed, else by identity.

    Attributes:
        value: the value, which lives as long as its key.
    """

    value: Any

    @staticmethod
    def of(value: Any) -> Hashable:
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


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _hashable(value: object) -> str:
    """What to pass instead of a value that cannot be hashed."""
    if isinstance(value, list):
        return "a tuple"
    if isinstance(value, dict):
        return "a tuple of pairs, or a frozen dataclass"
    if isinstance(value, set):
        return "a frozenset"
    if hasattr(value, "dtype"):
        return "it as an argument that is not static, or a tuple of its elements"
    return "an object with __hash__ and __eq__, such as a frozen dataclass"


def _describe(leaf: object) -> str:
    dtype = getattr(leaf, "dtype", None)
    return type(leaf).__name__ if dtype is None else f"{type(leaf).__name__} of dtype {dtype}"
