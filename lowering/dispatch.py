"""Compiled functions: `jax.jit`, staging a program of ours where JAX would trace its own code.

The C++ dispatch of `jax.jit` is the fastest there is, so a call goes through it: one Python frame, which turns 64-bit
types on for the thread, is all that comes on top.

Large closed-over arrays are arguments that the caller does not see. They stay on the device from call to call, and
reach `jax.jit` as a dictionary of one entry; its key identifies the arrays and so, being part of the tree structure,
is part of what `jax.jit` caches by. A call offers the arrays of the last signature. Where the signature needs others,
tracing stops with `_OtherConstantsError` and the call is made again with those.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rematc.ir.core import Array
from rematc.ir.errors import CompileError
from rematc.lowering import jax_adapter
from rematc.lowering.arguments import Arguments
from rematc.lowering.jax_adapter import is_trace_open, restore_x64, swap_x64
from rematc.lowering.program import Program

CompilerOptions = Mapping[str, "str | bool | int"]
_Hidden = dict[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Staged:
    """What a function compiles to for one signature.

    Attributes:
        program: takes the leaves of the arguments that are not static, in the order of `jax.tree_util.tree_leaves` of
            `(args, kwargs)`.
        out_tree: how its results make up what the function returns.
    """

    program: Program
    out_tree: jax.tree_util.PyTreeDef


class _OtherConstantsError(Exception):
    """Raised while tracing: the program takes other constants than those that the call offers."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program


class _StagingError(Exception):
    """Carries the user's error through JAX, which marks errors that pass it with a note about its own frames."""

    def __init__(self, error: CompileError) -> None:
        super().__init__()
        self.error = error


class Dispatcher:
    """A compiled function: it runs what `stage` gives for each signature.

    Calling it raises CompileError for arguments that are not arrays, when memory runs out, and as `stage` does.
    """

    def __init__(
        self,
        stage: Callable[..., Staged],
        *,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        donate_argnums: int | Sequence[int] = (),
        compiler_options: CompilerOptions | None = None,
    ) -> None:
        """Nothing is staged yet.

        Args:
            stage: called as the compiled function is, with JAX tracers in place of the arrays (the arrays themselves
                under `jax.disable_jit()`); their shapes, dtypes and weak types are the signature. Called once for
                each. Its parameters, as `inspect.signature` tells, are those of the compiled function.
            static_argnums: positions of arguments that are part of the signature by value.
            static_argnames: their names.
            donate_argnums: positions of arguments whose memory the results may take over.
            compiler_options: options of XLA. Inside another `jax.jit` that one's options hold instead.

        Raises:
            CompileError: for a static argument that the function does not have.
        """
        functools.update_wrapper(self, stage)
        self._stage = stage
        self._arguments = Arguments.of(stage, static_argnums, static_argnames)
        self._constants = _DeviceConstants()
        self._staged: dict[Hashable, Staged] = {}
        self._offer: _Hidden = {}
        self._offers: dict[Hashable, _Hidden] | None = None
        entry = self._entry()
        shifted: dict[str, Any] = {
            "static_argnums": tuple(number + 1 for number in self._arguments.static_argnums),
            "static_argnames": self._arguments.static_argnames,
            "donate_argnums": tuple(number + 1 for number in self._arguments.positions(donate_argnums)),
        }
        self._jitted = jax.jit(entry, **shifted, compiler_options=dict(compiler_options or {}) or None)
        # JAX refuses compiler options anywhere but at the outermost jit.
        self._jitted_inside = jax.jit(entry, **shifted) if compiler_options else self._jitted
        self._select = self._select_entry if compiler_options else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        previous = swap_x64(True)
        try:
            if self._select is None:
                return self._jitted(self._offer, *args, **kwargs)
            entry, offer = self._select(args, kwargs)
            return entry(offer, *args, **kwargs)
        except _OtherConstantsError as other:
            program = other.program
        except _StagingError as carrier:
            raise carrier.error from None
        except jax.errors.JaxRuntimeError as error:
            raise explain_xla(error, self._stage.__name__) from error
        except TypeError:
            self._arguments.check(args, kwargs)
            raise
        finally:
            restore_x64(previous)
        self._note_constants_of(program, args, kwargs)
        return self(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _select_entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], _Hidden]:
        """The function to call and the constants to offer it, where that depends on the call."""
        offer = self._offer
        if self._offers is not None:
            offer = self._offers.get(self._arguments.rough_signature(args, kwargs), offer)
        return (self._jitted_inside if is_trace_open() else self._jitted), offer

    def _note_constants_of(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Offer the constants of `program` next time.

        One set of constants for all signatures, the usual case, costs nothing per call. Where signatures differ in
        them, each call looks its own up.
        """
        is_first = not self._constants
        offer = self._constants.hidden(program)
        if is_first:
            self._offer = offer
            return
        if self._offers is None:
            self._offers = {}
            self._select = self._select_entry
        self._offers[self._arguments.rough_signature(args, kwargs)] = offer

    # -- tracing -------------------------------------------------------------------------------------------------

    def _entry(self) -> Callable[..., Any]:
        """What `jax.jit` traces: takes the constants that the call offers, then the arguments."""

        @functools.wraps(self._stage)
        def entry(offer: _Hidden, /, *args: Any, **kwargs: Any) -> Any:
            try:
                leaves, staged = self._stage_once(args, kwargs)
            except CompileError as error:
                raise _StagingError(error) from None
            if set(offer) != self._constants.keys(staged.program):
                raise _OtherConstantsError(staged.program)
            hidden = [array for arrays in offer.values() for array in arrays]
            return staged.out_tree.unflatten(jax_adapter.call(staged.program, [*leaves, *hidden]))

        entry.__signature__ = self._arguments.signature_after("_constants")  # type: ignore[attr-defined]  # inspect's
        return entry

    def _stage_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Staged]:
        """The leaves that the program takes, and what the function compiles to for them.

        `jax.jit` may trace again (for other constants, in another context); the user's function must not run again.
        """
        dynamic, static = self._arguments.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(dynamic)
        avals = [jax.typeof(leaf) for leaf in leaves]
        signature = (tree, static, tuple([(aval.shape, aval.dtype, aval.weak_type) for aval in avals]))
        staged = self._staged.get(signature)
        if staged is None:
            staged = self._staged[signature] = self._stage(*args, **kwargs)
        return leaves, staged


class _DeviceConstants:
    """The device's copies of closed-over arrays. Equal arrays share one; programs that take the same share a key."""

    def __init__(self) -> None:
        self._arrays: dict[bytes, jax.Array] = {}
        self._digests: dict[Program, list[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._arrays)

    def keys(self, program: Program) -> set[str]:
        """The keys of `hidden(program)`."""
        return {hashlib.sha256(b"".join(self._digests_of(program))).hexdigest()} if program.constants else set()

    def hidden(self, program: Program) -> _Hidden:
        """The arrays of a program under their key; nothing for a program without constants."""
        arrays = []
        # This may run while somebody else's function is traced; the copies must be arrays all the same.
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            for digest, array in zip(self._digests_of(program), program.constants, strict=True):
                if digest not in self._arrays:
                    self._arrays[digest] = jax.device_put(array)
                arrays.append(self._arrays[digest])
        return {key: tuple(arrays) for key in self.keys(program)}

    def _digests_of(self, program: Program) -> list[bytes]:
        found = self._digests.get(program)
        if found is None:
            found = self._digests[program] = [_digest(array) for array in program.constants]
        return found


def _digest(array: Array) -> bytes:
    described = f"{array.dtype.name}{array.shape}".encode()
    return hashlib.sha256(described + np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def explain_xla(error: Exception, name: str) -> Exception:
    """XLA's error as one that the user can act on; the error itself where nobody can."""
    first, _, _ = str(error).partition("\n")
    if "RESOURCE_EXHAUSTED" in first:
        return CompileError(
            f"out of memory in '{name}': {first}; save less with another policy or a smaller budget, "
            "or pass smaller arrays"
        )
    if "No such compile option" in first:
        return CompileError(
            f"{first.partition(': ')[2]}; leave it out of compiler_options, or see XLA's names for them"
        )
    return error
