"""Routes: the ways in which `jax.jit` is called for a function.

A route is for programs with the same closed-over arrays and the same needs. The arrays reach `jax.jit` as a dictionary
of one entry, the first argument; its key identifies them and so, being part of the tree structure, is part of what
`jax.jit` caches by. A program that needs another route than the one that is being traced stops the trace
(`RerouteError`), and the call is made again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from rematc.lowering.device_constants import Hidden
from rematc.lowering.jax_internals.callbacks import settle
from rematc.lowering.jax_internals.settings import is_trace_open
from rematc.lowering.program import Program
from rematc.lowering.signature import Owners, Signature
from rematc.lowering.target import CompilerOptions


@dataclass(frozen=True, slots=True)
class Needs:
    """What calls of a program need besides `jax.jit`.

    Attributes:
        options: options of XLA besides the user's, by name.
        settling: to wait for functions of the user's that it calls.
    """

    options: tuple[tuple[str, str | bool | int], ...] = ()
    settling: bool = False


#: What `jax.jit` traces, of closed-over arrays, what their route is for, and the user's arguments.
Traced = Callable[[Hidden, Needs, tuple[Any, ...], dict[str, Any]], Any]


class RerouteError(Exception):
    """Raised while tracing: the program needs another route than the one that is being traced."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """How to call `jax.jit` for one program.

    Attributes:
        outermost: called with the arguments.
        inside: what to call instead where JAX is tracing; the same function where there are no compiler options.
        jitted: what `outermost` calls: the `jax.jit` of a function of `hidden`, then the arguments.
        hidden: closed-over arrays, as arguments.
    """

    outermost: Callable[..., Any]
    inside: Callable[..., Any]
    jitted: Any
    hidden: tuple[Any, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether all calls are the same."""
        return self.outermost is self.inside

    def entry(self) -> Callable[..., Any]:
        """The one for a call that is made now."""
        return self.inside if is_trace_open() else self.outermost


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """What all routes of a function have in common.

    Attributes:
        function: the user's, of which `jax.jit` is to have the name and the parameters.
        signature: of the function.
        donated: the arguments whose memory the results may take over.
        options: the user's options of XLA.
        traced: what is traced under that name.
    """

    function: Callable[..., Any]
    signature: Signature
    donated: Owners
    options: CompilerOptions
    traced: Traced

    def plain(self) -> Route:
        """For programs without constants that are compiled with the user's options alone."""

        @functools.wraps(self.function, updated=())
        def entry(*args: Any, **kwargs: Any) -> Any:
            return self.traced({}, Needs(), args, kwargs)

        entry.__signature__ = self.signature.parameters  # type: ignore[attr-defined]  # inspect's
        return self._jitted(entry, self.options, 0)

    def of(self, hidden: Hidden, needs: Needs) -> Route:
        """For programs with these constants that need this."""

        @functools.wraps(self.function, updated=())
        def entry(offer: Hidden, /, *args: Any, **kwargs: Any) -> Any:
            return self.traced(offer, needs, args, kwargs)

        entry.__signature__ = self.signature.after("_constants")  # type: ignore[attr-defined]  # inspect's
        route = self._jitted(entry, {**self.options, **dict(needs.options)}, 1)
        outermost = functools.partial(route.outermost, hidden)
        inside = outermost if route.is_plain else functools.partial(route.inside, hidden)
        return Route(_settled(outermost) if needs.settling else outermost, inside, route.jitted, (hidden,))

    def _jitted(self, entry: Callable[..., Any], options: CompilerOptions, hidden: int) -> Route:
        """`jax.jit` of a function that takes so many arguments before the user's."""
        static, donated = self.signature.statics, self.donated
        named: dict[str, Any] = {
            "static_argnums": sorted(number + hidden for number in static.positions),
            "static_argnames": sorted(static.names),
            "donate_argnums": sorted(number + hidden for number in donated.positions),
            "donate_argnames": sorted(donated.names),
        }
        if not options:
            jitted = jax.jit(entry, **named)
            return Route(jitted, jitted, jitted)
        outermost = jax.jit(entry, **named, compiler_options=dict(options))
        return Route(outermost, jax.jit(entry, **named), outermost)


def _settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which returns when everything that it prints and calls has happened, and raises what these raise."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        settle(results)
        return results

    return call
