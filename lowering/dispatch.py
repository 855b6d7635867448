"""Compiled functions: `jax.jit`, staging a program of ours where JAX would trace its own code.

The C++ dispatch of `jax.jit` is the fastest there is, so a call goes through it: one Python frame, which turns 64-bit
types on for the thread, is all that comes on top. Four things need more than that, and are found out when a program is
lowered. Tracing then stops, and the call is made again by another route (`rematc.lowering.routes`):

- Large closed-over arrays are arguments that the caller does not see. They stay on the device from call to call.
- A program is compiled with options of XLA's: those that make its optimization barriers hold, or on the CPU the
  scheduler that holds less. JAX takes options at the outermost jit only, so these calls must know whether they are
  inside another.
- Where there are several platforms, a program is for the one that the arguments lie on, which calls must look at.
- A program that calls functions of the user's is waited for: what it prints has been printed when the call returns,
  and what a function raises is raised by the call.
"""

from __future__ import annotations

import copy
import functools
import threading
import types
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.lowering import caches
from rematc.lowering.device_constants import DeviceConstants, Hidden
from rematc.lowering.jax_internals.calls import apply_program
from rematc.lowering.jax_internals.keys import as_words
from rematc.lowering.jax_internals.settings import (
    is_tracing_with_x64,
    restore_x64,
    swap_x64,
    tracing_with_x64,
)
from rematc.lowering.jax_internals.shardings import explicit_sharding
from rematc.lowering.program import Program
from rematc.lowering.remembering import Remembered
from rematc.lowering.routes import Needs, RerouteError, Route, Routing
from rematc.lowering.signature import Signature
from rematc.lowering.target import CompilerOptions, Target
from rematc.lowering.targeting import current_target, is_target_open, targeting
from rematc.lowering.xla_errors import explain_xla

#: The routes of so many signatures are remembered; of others they are found again.
_MOST_ROUTED = 1024
#: Of positional and keyword arguments, what serves calls with flags; None where there are none.
Flagged = Callable[[tuple[Any, ...], dict[str, Any]], Callable[..., Any] | None]


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """What a function compiles to for one signature.

    Attributes:
        program: takes the leaves of the arguments that are not static, in the order of `jax.tree_util.tree_leaves` of
            `(args, kwargs)`.
        out_tree: how its results make up what the function returns.
    """

    program: Program
    out_tree: jax.tree_util.PyTreeDef


#: Whose trace is open, where there is none: a call of C's, as calls of compiled functions ask.
_no_trace: Callable[[], None] = ContextVar[None]("no_trace", default=None).get
#: What `Dispatcher.lower_program` was given, while JAX traces it.
_given: ContextVar[LoweredFunction | None] = ContextVar("given", default=None)


class _FlagsError(Exception):
    """Raised while tracing: an argument may be a flag of Python's, which must not be traced."""


class _TargetError(Exception):
    """Raised while tracing: the program depends on where the arguments lie, which JAX does not say there."""


class _StagingError(Exception):
    """Carries the user's error through JAX, which marks errors that pass it with a note about its own frames."""

    def __init__(self, error: CompileError) -> None:
        super().__init__()
        self.error = error


class Dispatcher:
    """A compiled function: it runs what `lower` gives for each signature.

    Any number of threads may call it. Calling it raises CompileError for arguments that are not arrays, when memory
    runs out, and as `lower` does.
    """

    def __init__(
        self,
        lower: Callable[..., LoweredFunction],
        *,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        donate_argnums: int | Sequence[int] = (),
        donate_argnames: str | Sequence[str] = (),
        compiler_options: CompilerOptions | None = None,
        flagged: Flagged | None = None,
        open_trace: Callable[[], object | None] = _no_trace,
        record: Callable[..., Any] | None = None,
        locate: Callable[[], Location | None] | None = None,
    ) -> None:
        """Nothing is lowered yet.

        Args:
            lower: called as the compiled function is, with JAX tracers in place of the arrays (the arrays themselves
                under `jax.disable_jit()`); their types are the signature. Called once for
                each, of the last so many. Its parameters, as `inspect.signature` tells, are those of the compiled
                function.
            static_argnums: positions of arguments that are part of the signature by value.
            static_argnames: their names.
            donate_argnums: positions of arguments whose memory the results may take over.
            donate_argnames: their names.
            flagged: asked, once a signature has truth values or an argument is no array, for what serves calls with
                flags: truth values and strings of Python's, which JAX tells not from arrays, or does not take.
            compiler_options: options of XLA before those of `Program.compile_options`. Inside another `jax.jit` that
                one's options hold instead.
            open_trace: asked at each call; while it gives something, calls go to `record`.
            record: what a call means while our own tracing is going on. Not a wrapper around this object, because a
                Python frame more would cost 4 % of a call.
            locate: the user's line that is running, for errors.

        Raises:
            CompileError: for a static argument that the function does not have.
        """
        functools.update_wrapper(self, lower, updated=())
        # Whether 64-bit types are on in the block that calls come from; None outside of all.
        self._x64: bool | None = None
        # What all calls are for, where there are several platforms; None in what serves all of them.
        self._target: Target | None = None
        self._lower = lower
        self._signature = Signature.of(lower, static_argnums, static_argnames)
        self._open_trace = open_trace
        self._record = record
        self._locate = locate
        self._donated = self._signature.owners(donate_argnums, donate_argnames, "donate")
        self._flagged = flagged
        self._options = dict(compiler_options or {})
        self._start()

    def _start(self) -> None:
        self._routing = Routing(self._lower, self._signature, self._donated, self._options, self._trace)
        # Held where a route is chosen; calls read what was chosen without it.
        self._lock = threading.RLock()
        self.clear()
        caches.remembers(self)

    def clear(self) -> None:
        """Forget what was lowered and compiled; calls lower it again."""
        self._blocks: dict[bool, Dispatcher] = {}
        self._constants = DeviceConstants()
        self._sees_flags = False
        self._sees_targets = False
        self._by_target: dict[str, Dispatcher] = {}
        self._functions = Remembered[Hashable, LoweredFunction]()
        self._route = self._routing.plain()
        self._routes = Remembered[Hashable, Route]()
        self._routes.put((frozenset(), Needs()), self._route)
        # Filled once signatures turn out to need different routes: to look one up costs a flattening of each call.
        self._route_of = Remembered[Hashable, Route](_MOST_ROUTED)
        # The function to call, where that does not depend on the call.
        self._entry = self._route.outermost if self._route.is_plain else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._open_trace() is not None:
            assert self._record is not None
            return self._record(*args, **kwargs)
        previous = swap_x64(True)
        try:
            if previous is True or previous is False:
                # In a block of `jax.enable_x64`, which is a part of the signature.
                other = self._in_block(previous)
                if other is not None:
                    return other(*args, **kwargs)
            if self._entry is not None:
                return self._entry(*args, **kwargs)
            return self._select_entry(args, kwargs)(*args, **kwargs)
        except RerouteError as other:
            program: Program | None = other.program
        except _FlagsError:
            self._sees_flags, program = True, None
        except _TargetError:
            self._sees_targets, program = True, None
        except _StagingError as carrier:
            raise carrier.error from None
        except jax.errors.JaxRuntimeError as error:
            self._explain_xla(error)
            raise
        except (TypeError, ValueError):
            if self._is_chosen_by_call or self._flagged is None or self._flagged(args, kwargs) is None:
                self._explain(args, kwargs)
                raise
            self._sees_flags, program = True, None
        finally:
            restore_x64(previous)
        if program is not None:
            return self._by_route_of(program, args, kwargs)
        self._entry = None
        return self(*args, **kwargs)

    def lower_program(
        self, function: LoweredFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[jax.stages.Lowered, tuple[Any, ...]] | None:
        """What a call with these arguments compiles, for who compiles it ahead of time: JAX shares it with the call.

        Args:
            function: what the function compiles to for these arguments.
            args: arrays, or `jax.ShapeDtypeStruct`s.
            kwargs: the same by name.

        Returns:
            JAX's lowered function, of closed-over arrays and then the arguments, and the closed-over arrays; None where
            an argument may be a flag.
        """
        if self._target is None and is_target_open():
            return self._for(current_target((args, kwargs))).lower_program(function, args, kwargs)
        previous, token = swap_x64(True), _given.set(function)
        try:
            other = self._in_block(previous) if previous is True or previous is False else None
            if other is not None:
                return other.lower_program(function, args, kwargs)
            route = self._route
            while True:
                try:
                    return route.jitted.lower(*route.hidden, *args, **kwargs), route.hidden
                except RerouteError as found:
                    route = self._route_taken(found.program, args, kwargs)
        except _FlagsError:
            return None
        finally:
            _given.reset(token)
            restore_x64(previous)

    def _copy(self, x64: bool | None, target: Target | None) -> Dispatcher:
        made = copy.copy(self)
        made._x64, made._target = x64, target
        made._start()
        return made

    def _in_block(self, x64: bool) -> Dispatcher | None:
        """What serves calls in blocks of `jax.enable_x64`; None where this one does, or where the flag is our own."""
        if self._x64 is not None or is_tracing_with_x64():
            return None
        found = self._blocks.get(x64)
        return self._blocks.setdefault(x64, self._copy(x64, self._target)) if found is None else found

    def _for(self, target: Target) -> Dispatcher:
        """What serves calls for one target."""
        found = self._by_target.get(target.platform)
        return self._by_target.setdefault(target.platform, self._copy(self._x64, target)) if found is None else found

    def _explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise CompileError at the user's line if the arguments are why a call failed."""
        try:
            self._signature.check(args, kwargs)
        except CompileError as error:
            error.loc = error.loc or (self._locate() if self._locate is not None else None)
            raise

    def _explain_xla(self, error: Exception) -> None:
        """Raise CompileError if the user can act on what XLA says."""
        explain_xla(error, self._signature.name, [function.program for function in self._functions.values()])

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    # -- routes --------------------------------------------------------------------------------------------------

    @property
    def _is_chosen_by_call(self) -> bool:
        """Whether what serves a call is found from its arguments, each time."""
        return self._sees_flags or self._sees_targets

    def _select_entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        if self._sees_targets:
            return self._for(current_target((args, kwargs)))
        if self._sees_flags and self._flagged is not None:
            other = self._flagged(args, kwargs)
            if other is not None:
                return other
        route = self._route
        if self._route_of:
            route = self._route_of.get(self._signature.rough_key(args, kwargs)) or route
        return route.entry()

    def _by_route_of(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that turned out to need the route of `program`."""
        entry = self._route_taken(program, args, kwargs).entry()
        previous = swap_x64(True)
        try:
            return entry(*args, **kwargs)
        except RerouteError as other:
            program = other.program
        except _StagingError as carrier:
            raise carrier.error from None
        except jax.errors.JaxRuntimeError as error:
            self._explain_xla(error)
            raise
        finally:
            restore_x64(previous)
        return self._by_route_of(program, args, kwargs)

    def _route_taken(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Route:
        """The route of `program`, for all calls from now on: the usual case of one for all signatures costs nothing.

        Where another one was chosen before, remember the route for this signature.
        """
        key = (frozenset(self._constants.keys(program)), self._needs(program))
        with self._lock:
            is_first = len(self._routes) == 1
            route = self._routes.find(key, lambda: self._routing.of(self._constants.hidden(program), key[1]))
            if is_first:
                self._route = route
                self._entry = route.outermost if route.is_plain and not self._is_chosen_by_call else None
            elif self._route_of or route is not self._route:
                # Another thread may have been first, with the same route.
                self._entry = None
                self._route_of.put(self._signature.rough_key(args, kwargs), route)
        return route

    def _needs(self, program: Program) -> Needs:
        ours: tuple[tuple[str, str | bool | int], ...] = ()
        if program.module.barriers or program.is_depth_first:
            options = program.compile_options(self._target or current_target(), self._options)
            ours = tuple(sorted(options.items() - self._options.items()))
        return Needs(ours, bool(program.module.callbacks))

    # -- tracing -------------------------------------------------------------------------------------------------

    def _trace(self, offer: Hidden, needs: Needs, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `jax.jit` traces: the program of this signature, if the route is its own."""
        if self._target is None and is_target_open():
            raise _TargetError
        try:
            with tracing_with_x64(self._x64), targeting(self._target or current_target()):
                leaves, function = self._lower_once(args, kwargs)
        except CompileError as error:
            raise _StagingError(error) from None
        program = function.program
        if set(offer) != self._constants.keys(program) or needs != self._needs(program):
            raise RerouteError(program)
        hidden = [array for arrays in offer.values() for array in arrays]
        operands = [as_words(leaf) for leaf in leaves]
        return function.out_tree.unflatten(apply_program(program, [*operands, *hidden]))

    def _lower_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], LoweredFunction]:
        """The leaves that the program takes, and what the function compiles to for them.

        `jax.jit` may trace again (for other constants, in another context); the user's function must not run again.
        """
        dynamic, static = self._signature.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(dynamic)
        avals = [jax.typeof(leaf) for leaf in leaves]
        if self._flagged is not None and not self._sees_flags and any(map(_is_truth_value, avals)):
            raise _FlagsError
        signature = (tree, static, tuple(map(_signature_of, avals)))
        return leaves, self._functions.find(signature, lambda: _given.get() or self._lower(*args, **kwargs))


def _signature_of(aval: Any) -> Hashable:
    """What a function is lowered for; types of axes of type Explicit say how their arrays lie."""
    return (aval.shape, aval.dtype, aval.weak_type, explicit_sharding(aval))


def _is_truth_value(aval: Any) -> bool:
    return bool(aval.shape == () and aval.dtype == np.bool_)
