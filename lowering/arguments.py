"""Arguments of compiled functions: which are static, what makes up a signature, what is no array."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from rematc.ir.errors import CompileError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters of a compiled function.

    Attributes:
        name: of the function.
        signature: as `inspect` tells.
        static_argnums: positions of the static arguments.
        static_argnames: their names, where they can be passed by name.
    """

    name: str
    signature: inspect.Signature
    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]

    @staticmethod
    def of(
        function: Callable[..., object], static_argnums: int | Sequence[int], static_argnames: str | Sequence[str]
    ) -> Arguments:
        """The parameters of `function`. A static argument given by position is static by name too, and vice versa.

        Raises:
            CompileError: for a name or position that the function does not have.
        """
        signature = _signature(function)
        name = getattr(function, "__name__", type(function).__name__)
        bare = Arguments(name, signature, (), ())
        numbers = set(bare.positions(static_argnums))
        names = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
        if not takes_any and (unknown := names - signature.parameters.keys()):
            raise CompileError(
                f"static_argnames has {', '.join(map(repr, sorted(unknown)))}, "
                f"but the parameters are {', '.join(signature.parameters) or 'none'}"
            )
        for number, parameter in enumerate(bare.positional):
            if number in numbers or parameter.name in names:
                numbers.add(number)
                if parameter.kind is not parameter.POSITIONAL_ONLY:
                    names.add(parameter.name)
        return Arguments(name, signature, tuple(sorted(numbers)), tuple(sorted(names)))

    @property
    def positional(self) -> list[inspect.Parameter]:
        """The parameters that can be passed by position, those of `*args` excepted."""
        return [parameter for parameter in self.signature.parameters.values() if parameter.kind in _POSITIONAL]

    def positions(self, numbers: int | Sequence[int]) -> tuple[int, ...]:
        """Positions counted from 0; negative ones count from the last. Raises CompileError where there is none."""
        count = len(self.positional)
        takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in self.signature.parameters.values())
        found = []
        for number in [numbers] if isinstance(numbers, int) else numbers:
            if not -count <= number < count and not (takes_any and number >= 0):
                raise CompileError(f"argument {number} of a function with {count} positional parameters")
            found.append(number if number >= 0 else number + count)
        return tuple(found)

    def signature_after(self, name: str) -> inspect.Signature:
        """The signature with one more parameter in front."""
        first = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
        return inspect.Signature([first, *self.signature.parameters.values()])

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, Any], Hashable]:
        """The arguments `(args, kwargs)` that are not static, and a key for those that are."""
        if not self.static_argnums and not self.static_argnames:
            return (args, kwargs), ()
        numbers, names = self.static_argnums, self.static_argnames
        dynamic = (
            tuple([value for number, value in enumerate(args) if number not in numbers]),
            {name: value for name, value in kwargs.items() if name not in names},
        )
        static = (
            *[(number, type(args[number]), args[number]) for number in numbers if number < len(args)],
            *[(name, type(kwargs[name]), kwargs[name]) for name in names if name in kwargs],
        )
        return dynamic, static

    def rough_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """A key that tells most signatures apart, made without asking JAX."""
        dynamic, static = self.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(dynamic)
        described = [(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else type(leaf) for leaf in leaves]
        return (tree, static, tuple(described))

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises CompileError where an argument that is not static holds something else than arrays and numbers."""
        for name, value in self._dynamic(args, kwargs):
            for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
                try:
                    jax.typeof(leaf)
                except TypeError:
                    raise CompileError(
                        f"argument {name}{jax.tree_util.keystr(path)} is a {_describe(leaf)}, expected an array or a "
                        f"number; if the function is to be compiled for its value, name it in static_argnames"
                    ) from None

    def check_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises CompileError where a static argument cannot be hashed, so that no program can be found by it."""
        names = [parameter.name for parameter in self.positional]
        given: list[tuple[int | str, Any]] = [
            *[(number, value) for number, value in enumerate(args) if number in self.static_argnums],
            *[(name, value) for name, value in kwargs.items() if name in self.static_argnames],
        ]
        for key, value in given:
            try:
                hash(value)
            except TypeError as error:
                name = key if isinstance(key, str) else names[key] if key < len(names) else f"number {key}"
                raise CompileError(
                    f"the static argument {name} of '{self.name}' is {_a(value)}, which cannot be hashed ({error}); "
                    f"programs are found by the values of static arguments: pass {_hashable(value)}"
                ) from None

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        names = [parameter.name for parameter in self.positional]
        for number, value in enumerate(args):
            if number not in self.static_argnums:
                yield (names[number] if number < len(names) else str(number)), value
        for name, value in kwargs.items():
            if name not in self.static_argnames:
                yield name, value


def _signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # a function written in C
        kinds = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
        return inspect.Signature([inspect.Parameter(name, kind) for name, kind in kinds.items()])


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
