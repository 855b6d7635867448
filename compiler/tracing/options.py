"""The options of compiling, which `jit`, `grad`, `value_and_grad`, `vjp` and `compile` take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.lowering.signature import NO_OWNERS, Function, Names, Numbers, Owners, Signature

CompilerOptions = Mapping[str, str | bool | int]


class JitKeywords(TypedDict):
    """Options by the keywords of `jax.jit` and `Dispatcher`."""

    static_argnums: list[int]
    static_argnames: list[str]
    donate_argnums: list[int]
    donate_argnames: list[str]
    compiler_options: dict[str, str | bool | int]


KEYWORDS = tuple(JitKeywords.__annotations__)


@dataclass(frozen=True, slots=True)
class Options:
    """How a function is compiled.

    Attributes:
        statics: the arguments that it is compiled for by value.
        donated: the arguments whose memory the results may take over.
        compiler_options: options of XLA's by name.
    """

    statics: Owners = NO_OWNERS
    donated: Owners = NO_OWNERS
    compiler_options: tuple[tuple[str, str | bool | int], ...] = ()

    @staticmethod
    def of(
        function: Function,
        static_argnums: Numbers | None = (),
        static_argnames: Names | None = (),
        donate_argnums: Numbers | None = (),
        donate_argnames: Names | None = (),
        compiler_options: CompilerOptions | None = None,
    ) -> Options:
        """Options as users give them. Raises CompileError for arguments that the function does not have."""
        signature = Signature.of(function)
        try:
            statics = signature.owners(static_argnums, static_argnames)
            donated = signature.owners(donate_argnums, donate_argnames, "donate")
        except CompileError as error:
            error.loc = error.loc or user_location()
            raise
        return Options(statics, donated, tuple(sorted((compiler_options or {}).items())))

    def merged(self, other: Options) -> Options:
        """These options and others, which win."""
        return Options(
            self.statics.union(other.statics),
            self.donated.union(other.donated),
            tuple(sorted({**dict(self.compiler_options), **dict(other.compiler_options)}.items())),
        )

    def keywords(self) -> JitKeywords:
        """These options as functions are compiled with them."""
        return {
            "static_argnums": sorted(self.statics.positions),
            "static_argnames": sorted(self.statics.names),
            "donate_argnums": sorted(self.donated.positions),
            "donate_argnames": sorted(self.donated.names),
            "compiler_options": dict(self.compiler_options),
        }

    def of_leaves(self, donated: Sequence[int]) -> Options:
        """The options of a function of leaves, of which some are donated, and none is static."""
        return replace(self, statics=NO_OWNERS, donated=Owners(frozenset(donated)))

    def with_static(self, others: Owners) -> Options:
        """These options with other arguments static, too. Static ones have no memory to take over."""
        statics = self.statics.union(others)
        return replace(self, statics=statics, donated=self.donated.without(statics))

    def with_flags(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Options:
        """The options for a call: arguments that are flags or strings are static."""
        positions = [index for index, value in enumerate(args) if isinstance(value, (bool, str))]
        names = [name for name, value in kwargs.items() if isinstance(value, (bool, str))] if kwargs else []
        if not positions and not names:
            return self
        return self.with_static(Owners(frozenset(positions), frozenset(names)))


NO_OPTIONS = Options()


def with_static(
    function: Function, options: Mapping[str, Any], positions: tuple[int, ...], names: tuple[str, ...]
) -> dict[str, Any]:
    """Options of `jax.jit` with other arguments static, too. Static ones have no memory to take over."""
    chosen = Options.of(function, *[options.get(name) for name in KEYWORDS])
    wanted = chosen.with_static(Owners(frozenset(positions), frozenset(names)))
    return {**options, **wanted.keywords()}
