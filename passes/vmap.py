"""Batching: a graph of one element to the graph of a batch.

Before:  graph @f(%x: f32[4], %w: f32[4]) -> (f32[4]) { %0: f32[4] = sine %w   %1: f32[4] = multiply %x, %0 ... }
After, with %x batched by 3:  graph @f(%x: f32[3,4], %w: f32[4]) -> (f32[3,4]) { %0: f32[4] = sine %w
           %1: f32[3,4] = broadcast_in_dim %0 ...  %2: f32[3,4] = multiply %x, %1 ... }

Every batch dimension is the first. What no batched value reaches stays as it is, computed once for the batch. Regions
stay regions: the vmap of a checkpoint is a checkpoint under the same policy, so that its derivative, like that of the
element, knows what to recompute. Collectives over the axis that the batch is are resolved: a sum over the axis becomes
a sum over the batch dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.batches import Batch
from rematc.ir.builder import Builder
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import InternalError
from rematc.ir.ops.scan.op import each_element
from rematc.ir.types import TensorType
from rematc.ir.values import Primals, Value
from rematc.passes.locating import located


@dataclass(frozen=True, slots=True)
class Vmapped:
    """The result of `vmap`.

    Attributes:
        graph: parameters and results as before, the batched ones with the batch dimension in front.
        is_batched: for each result, whether it is batched.
    """

    graph: Graph
    is_batched: tuple[bool, ...]


@collection_paused()
def vmap(graph: Graph, is_batched: Sequence[bool], size: int, axis: str | None = None) -> Vmapped:
    """Apply `graph` to each element of a batch.

    Args:
        graph: what to apply.
        is_batched: for each parameter, whether every element of the batch has its own.
        size: how many elements there are.
        axis: the name of the batch dimension for the collectives in `graph`.

    Raises CompileError with the equation's location where an op has no vmap.
    """
    return _Vmap(size, axis).graph(graph, is_batched)


class _Vmap:
    """What all regions of one batch have in common: a function that is called often is batched once."""

    def __init__(self, size: int, axis: str | None) -> None:
        self.size = size
        self.axis = axis
        # By identity; the graph is kept beside its result so that its id stays its own.
        self._done: dict[tuple[int, tuple[bool, ...]], tuple[Graph, Vmapped]] = {}

    def graph(self, graph: Graph, is_batched: Sequence[bool]) -> Vmapped:
        """`vmap`, remembered."""
        key = (id(graph), tuple(is_batched))
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = (graph, _Walk(self, graph, is_batched).run())
        return found[1]

    def is_over_axis(self, op: Op) -> bool:
        """Whether the op is, or has in its regions, a collective over this batch."""
        return self.axis is not None and self.axis in op.axes


class _Context(Builder):
    """What vmap rules are given. `axis` is the name of the batch dimension."""

    def __init__(self, batch: _Vmap, name: str) -> None:
        super().__init__(name)
        self._batch = batch
        self.axis = batch.axis

    def vmap_of(
        self, graph: Graph, is_batched: Sequence[bool], size: int | None = None
    ) -> tuple[Graph, tuple[bool, ...]]:
        result = self._batch.graph(graph, is_batched) if size is None else vmap(graph, is_batched, size)
        return result.graph, result.is_batched

    def one_by_one(self, op: Op, batch: Batch) -> tuple[Value, ...]:
        return each_element(op, self, batch)


class _Walk:
    """One walk over a graph. `env` has the values that replace results of batched equations."""

    def __init__(self, batch: _Vmap, graph: Graph, is_batched: Sequence[bool]) -> None:
        self._batch = batch
        self._graph = graph
        self._b = _Context(batch, graph.name)
        self._batched: set[Value] = set()
        self._env: dict[Value, Value] = {}
        for param, is_set in zip(graph.params, is_batched, strict=True):
            if is_set:
                self._env[param] = self._b.parameter(batched_type(batch.size, param.type), param.name)
                self._batched.add(param)
            else:
                self._b.params.append(param)

    def run(self) -> Vmapped:
        for eqn in self._graph.equations:
            self._equation(eqn)
        results = [self._env.get(value, value) for value in self._graph.results]
        is_batched = tuple([value in self._batched for value in self._graph.results])
        return Vmapped(self._b.build(*results), is_batched)

    def _equation(self, eqn: Equation) -> None:
        if self._batched.isdisjoint(eqn.operands) and not self._batch.is_over_axis(eqn.op):
            self._keep(eqn)
            return
        is_batched = [value in self._batched for value in eqn.operands]
        operands = [self._env.get(value, value) for value in eqn.operands]
        self._b.loc = eqn.loc
        with located(eqn):
            results = self._apply(eqn, operands, is_batched)
        for old, new in zip(eqn.results, results, strict=True):
            self._env[old] = new
            if new.type == batched_type(self._batch.size, old.type):
                self._batched.add(old)
            elif new.type != old.type:
                raise InternalError(f"vmap of '{eqn.op.name}' gives {new.type} for {old.type}")

    def _keep(self, eqn: Equation) -> None:
        """An equation of values that all of the batch share; some of them are results of batched equations."""
        operands = tuple([self._env.get(value, value) for value in eqn.operands])
        is_same = operands == eqn.operands
        self._b.append(eqn if is_same else Equation(eqn.op, operands, eqn.results, eqn.loc))

    def _apply(self, eqn: Equation, operands: Primals, is_batched: Sequence[bool]) -> tuple[Value, ...]:
        op, size = eqn.op, self._batch.size
        if not size and not op.regions() and not self._batch.is_over_axis(op):
            # No rule need think of windows in, or groups of, nothing.
            return tuple([self._b.zeros(batched_type(0, type)) for type in eqn.result_types])
        return op.vmap(self._b, Batch(size, operands, is_batched))


def batched_type(size: int, type: TensorType) -> TensorType:
    """The type of a batch of values of this type."""
    return TensorType(type.dtype, (size, *type.shape), type.on_host)
