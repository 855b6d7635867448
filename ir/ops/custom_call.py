"""Calls of functions that XLA knows by a name: `custom_call`. What they compute stands in a library, not in the graph.

LAPACK's routines on the CPU are called so, and what users register with `jax.ffi.register_ffi_target`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Graph, Op, VmapContext
from rematc.ir.errors import CompileError, MissingRuleError, TypeMismatchError
from rematc.ir.facts import Effect
from rematc.ir.ops.batching import shifted
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value

_UNKNOWN = (
    "does not exist: what a library computes is not in the graph; say its derivative with custom_jvp or custom_vjp "
    "around the call, or hide the operands with stop_gradient"
)
_PARTITIONED = "sdy.sharding_rule"
#: By this a call says that it is one for each element of its first dimensions, and of how many of them.
_BATCH_DIMS = re.compile(r'\bnum_batch_dims = "(\d+)"')
_FRONTEND = "mhlo.frontend_attributes"

#: Evaluates one call, of arrays of its operands' types.
Evaluator = Callable[["CustomCall", Sequence[Array]], Sequence[Array]]


@register
@dataclass(frozen=True, slots=True)
class CustomCall(Op):
    """What the function of this name gives for the operands, as `stablehlo.custom_call` says.

    Attributes:
        target: the function's name.
        types: of the results.
        attributes: what is passed beside the operands, by name in the names' order; each as MLIR prints it.
            `api_version` and `backend_config` are StableHLO's own; those of other dialects are kept as they are.
        operand_layouts: for each operand its dimensions, from the one that changes fastest in memory to the one that
            changes slowest; nothing, here and in `result_layouts`, where all are laid out row by row.
        result_layouts: the same for the results.
        aliases: pairs (result, operand) of one type that share their memory: the function overwrites the operand,
            of which XLA makes a copy where it is needed still.
        called: graphs that the function calls.
        has_side_effect: whether it is there for more than its results: it is neither left out nor merged, and its
            results are residuals wherever a derivative needs them.
    """

    name = "custom_call"
    is_opaque = True
    target: str
    types: tuple[TensorType, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    operand_layouts: tuple[tuple[int, ...], ...] = ()
    result_layouts: tuple[tuple[int, ...], ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    called: tuple[Graph, ...] = ()
    has_side_effect: bool = False
    no_jvp: ClassVar[str] = _UNKNOWN
    no_transpose: ClassVar[str] = _UNKNOWN

    @property
    def effect(self) -> Effect:
        return Effect.UNORDERED if self.has_side_effect else Effect.NONE

    def overwrites(self, result: int) -> int | None:
        return dict(self.aliases).get(result)

    @property
    def has_layouts(self) -> bool:
        """Whether the layouts of operands and results are said."""
        return bool(self.operand_layouts or self.result_layouts)

    def regions(self) -> tuple[Graph, ...]:
        return self.called

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not self.target:
            raise TypeMismatchError(f"'{self.name}' has no target; expected a function's name")
        if self.has_layouts:
            self._check_layouts("operand", self.operand_layouts, operands)
            self._check_layouts("result", self.result_layouts, self.types)
        for result, operand in self.aliases:
            if not (0 <= result < len(self.types) and 0 <= operand < len(operands)):
                raise TypeMismatchError(
                    f"'{self.name}' of '{self.target}': result {result} lies in operand {operand}; "
                    f"there are {len(self.types)} and {len(operands)}"
                )
            if self.types[result] != operands[operand]:
                raise TypeMismatchError(
                    f"'{self.name}' of '{self.target}': result {result} of type {self.types[result]} lies in operand "
                    f"{operand} of type {operands[operand]}; expected equal types"
                )
        return self.types

    def _check_layouts(self, what: str, layouts: Sequence[Sequence[int]], types: Types) -> None:
        if len(layouts) != len(types):
            raise TypeMismatchError(
                f"'{self.name}' of '{self.target}' has {len(layouts)} {what} layouts for {len(types)} {what}s"
            )
        for layout, type in zip(layouts, types, strict=True):
            if sorted(layout) != list(range(type.rank)):
                raise TypeMismatchError(
                    f"'{self.name}' of '{self.target}': {what} of type {type} has the layout {list(layout)}; "
                    f"expected an order of its {type.rank} dimensions"
                )

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """What the library gives: XLA compiles the call alone. Raises CompileError where nothing here can do that."""
        if not _evaluators:
            raise CompileError(
                f"'{self.name}' of '{self.target}' is no arithmetic of NumPy's; import rematc.lowering.module, by "
                "which XLA makes the call"
            )
        return tuple(_evaluators[0](self, operands))

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        raise MissingRuleError(f"jvp of '{self.name}' of '{self.target}' {self.no_jvp}")

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        """One call, where the function takes batches and says so; else a call for each element."""
        attributes = dict(self.attributes)
        found = _BATCH_DIMS.search(attributes.get(_FRONTEND, ""))
        if found is None or self.called:
            return b.one_by_one(self, batch)
        more = f'num_batch_dims = "{int(found[1]) + 1}"'
        attributes[_FRONTEND] = _BATCH_DIMS.sub(more, attributes[_FRONTEND])
        # How dimensions are partitioned, of an element. Without it nothing is, which is right for a batch, too.
        attributes.pop(_PARTITIONED, None)
        op = replace(
            self,
            types=tuple([type.with_shape((batch.size, *type.shape)) for type in self.types]),
            attributes=tuple(attributes.items()),
            operand_layouts=_with_slowest(self.operand_layouts),
            result_layouts=_with_slowest(self.result_layouts),
        )
        return b.emit(op, *batch.all_batched(b))


def _with_slowest(layouts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Layouts of arrays with one more dimension in front, which changes slowest."""
    return tuple([(*shifted(layout), 0) for layout in layouts])


#: What evaluates calls; the lowering, which knows XLA, enters it.
_evaluators: list[Evaluator] = []


def evaluates(function: Evaluator) -> Evaluator:
    """Decorator: this function evaluates calls for `CustomCall.reference`."""
    _evaluators[:] = [function]
    return function
