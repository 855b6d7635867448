"""The options of compiling, which `jit`, `grad`, `value_and_grad`, `vjp` and `compile` take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rematc.compiler.tracing.arguments import Function, Statics

Numbers = int | Sequence[int]
Names = str | Sequence[str]
CompilerOptions = Mapping[str, str | bool | int]

_NONE = Statics(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Options:
    """How a function is compiled.

    Attributes:
        statics: the arguments that it is compiled for by value.
        donated: the arguments whose memory the results may take over.
        compiler_options: options of XLA's by name.
    """

    statics: Statics = _NONE
    donated: Statics = _NONE
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
        return Options(
            Statics.of(function, static_argnums, static_argnames),
            Statics.of(function, donate_argnums, donate_argnames, "donate"),
            tuple(sorted((compiler_options or {}).items())),
        )

    def merged(self, other: Options) -> Options:
        """These options and others, which win."""
        return Options(
            Statics(self.statics.positions | other.statics.positions, self.statics.names | other.statics.names),
            Statics(self.donated.positions | other.donated.positions, self.donated.names | other.donated.names),
            tuple(sorted({**dict(self.compiler_options), **dict(other.compiler_options)}.items())),
        )

    def with_flags(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Options:
        """The options for a call: arguments that are flags or strings are static."""
        positions = [index for index, value in enumerate(args) if isinstance(value, (bool, str))]
        names = [name for name, value in kwargs.items() if isinstance(value, (bool, str))] if kwargs else []
        if not positions and not names:
            return self
        statics = Statics(self.statics.positions.union(positions), self.statics.names.union(names))
        return replace(self, statics=statics)


NO_OPTIONS = Options()
