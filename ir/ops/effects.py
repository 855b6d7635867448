"""Python functions of the user's: `debug_print` and `debug_callback`, which are there for their effect alone,
`pure_callback`, which computes, and `io_callback`, which does both.

An effect is had exactly as often as the program says. No pass leaves it out, merges it with its like or repeats it:
dead code with effects stays, and what is computed again in a backward pass is computed without them. What an
`io_callback` gives is saved for it, under each policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Op, VmapContext
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Effect
from rematc.ir.host_functions import CallbackError, HostFunction
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Types, Value

WITHOUT_RESULTS = "does not exist: the op has no results"
VMAP_METHODS = ("sequential", "expand_dims", "broadcast_all")


class DebugEffect(Op):
    """Family base: ops without results, there for what they show of their operands."""

    __slots__ = ()
    is_ordered: bool
    no_jvp = WITHOUT_RESULTS
    no_transpose = WITHOUT_RESULTS

    @property
    def effect(self) -> Effect:
        return Effect.ORDERED if self.is_ordered else Effect.UNORDERED

    def host_function(self) -> HostFunction:
        """What is called."""
        raise NotImplementedError

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        return ()

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        self.host_function()(*operands)
        return ()

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return b.one_by_one(self, batch)


@register
@dataclass(frozen=True, slots=True)
class DebugPrint(DebugEffect):
    """Print the operands as `str.format` writes them.

    Attributes:
        format: the text, with a place for each operand.
        keywords: names of the last operands; those before are numbered.
        is_ordered: whether such ops happen in the order of the program.
    """

    name = "debug_print"
    format: str
    keywords: tuple[str, ...] = ()
    is_ordered: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if len(operands) < len(self.keywords):
            raise TypeMismatchError(f"'{self.name}' of {len(operands)} operands names {len(self.keywords)} of them")
        return ()

    def host_function(self) -> HostFunction:
        return HostFunction(self._print, f"debug.print of {self.format!r}")

    def _print(self, *arrays: Array) -> tuple[()]:
        count = len(arrays) - len(self.keywords)
        named = dict(zip(self.keywords, arrays[count:], strict=True))
        print(self.format.format(*arrays[:count], **named))
        return ()


@register
@dataclass(frozen=True, slots=True)
class DebugCallback(DebugEffect):
    """Call a Python function with the operands; what it returns is let go.

    Attributes:
        function: what is called.
        is_ordered: whether such ops happen in the order of the program.
    """

    name = "debug_callback"
    function: HostFunction
    is_ordered: bool = False

    def host_function(self) -> HostFunction:
        return self.function


class CallForResults(Op):
    """Family base: what a Python function gives for the operands.

    Attributes:
        function: what is called; it gives an array for each result.
        types: of the results.
    """

    __slots__ = ()
    is_opaque = True
    function: HostFunction
    types: tuple[TensorType, ...]
    no_jvp: ClassVar[str] = (
        "does not exist: nothing is known of the derivative of a Python function; say it with rematc.custom_jvp or "
        "rematc.custom_vjp around the call, or hide the operands with stop_gradient"
    )
    no_transpose: ClassVar[str] = "does not exist: the op has no tangents"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        return self.types

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return self.results(operands)

    def results(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """What the function gives. Raises CallbackError where that is not what was announced."""
        given = self.function(*arrays)
        count = len(given) if isinstance(given, (list, tuple)) else None
        if count != len(self.types):
            found = f"a {type(given).__name__}" if count is None else f"{count} results"
            raise CallbackError(
                f"{self.function.name} gave {found}, announced were {len(self.types)} results in a list",
                self.function.loc,
            )
        return tuple([self._checked(index, one) for index, one in enumerate(given)])

    def _checked(self, index: int, given: object) -> Array:
        array, type = np.asarray(given), self.types[index]
        if array.shape == type.shape and array.dtype == type.dtype.numpy:
            return array
        # Numbers of Python's take the announced type, as they do everywhere.
        if array.shape == type.shape and isinstance(given, (bool, int, float, complex)):
            return array.astype(type.dtype.numpy)
        raise CallbackError(
            f"{self.function.name} gave {array.dtype}{list(array.shape)} as result {index}, announced was {type}",
            self.function.loc,
        )


@register
@dataclass(frozen=True, slots=True)
class PureCallback(CallForResults):
    """What a Python function gives for the operands. It has no effect: it may be called more often, or not at all.

    Attributes:
        function: what is called; it gives an array for each result.
        types: of the results.
        vmap_method: how a batch is computed: "sequential" by a call for each element; "expand_dims" and
            "broadcast_all" by one call, in which operands that are not batched have a first dimension of 1, or the
            batch's.
    """

    name = "pure_callback"
    function: HostFunction
    types: tuple[TensorType, ...]
    vmap_method: str = "sequential"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if self.vmap_method not in VMAP_METHODS:
            raise TypeMismatchError(
                f"'{self.name}' has no vmap_method {self.vmap_method!r} (there is {', '.join(VMAP_METHODS)})"
            )
        return self.types

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        if self.vmap_method == "sequential":
            return b.one_by_one(self, batch)
        if self.vmap_method == "expand_dims":
            rows = zip(batch.operands, batch.is_batched, strict=True)
            given = [x if is_set else b.reshape(x, (1, *x.type.shape)) for x, is_set in rows]
        else:
            given = batch.all_batched(b)
        types = tuple([type.with_shape((batch.size, *type.shape)) for type in self.types])
        return b.emit(PureCallback(self.function, types, self.vmap_method), *given)


@register
@dataclass(frozen=True, slots=True)
class IoCallback(CallForResults):
    """What a Python function gives for the operands that is called for its effect as well: as often as it stands there.

    Attributes:
        function: what is called; it gives an array for each result.
        types: of the results.
        is_ordered: whether such ops happen in the order of the program.
    """

    name = "io_callback"
    function: HostFunction
    types: tuple[TensorType, ...]
    is_ordered: bool = False

    @property
    def effect(self) -> Effect:
        return Effect.ORDERED if self.is_ordered else Effect.UNORDERED

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return b.one_by_one(self, batch)
