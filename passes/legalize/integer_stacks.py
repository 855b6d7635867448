"""What loops stack of bfloat16 numbers, and read row by row, as 16-bit integers of the same bits.

Before:  %0: bf16[12,64] = scan %x {body: ... %c: bf16[64]}   ...   %1 = scan %0 {body(%r: bf16[64]): ...}
After:   %0: u16[12,64] = scan %x {body: ... bitcast_convert %c}
         %1 = scan %0 {body(%s: u16[64]): %r = bitcast_convert %s ...}

XLA:CPU before jaxlib 0.12 writes and reads a row of a bfloat16 stack in 32 bits, for which it converts all of the
stack (its pass `float-normalization`), and takes that out of the loop: what a forward pass saves in 16 bits is there
once more in 32 while the backward pass runs. Integers it leaves as they are.
"""

from __future__ import annotations

from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.traversal import all_equations
from rematc.ir.types import BF16, U16
from rematc.ir.values import Value
from rematc.passes.regions import RegionRewriter

Flags = tuple[bool, ...]


class IntegerStacks:
    """Rewrites graphs, and their regions.

    Attributes:
        origins: for stacks of integers the value of the graph before that they are.
    """

    def __init__(self) -> None:
        self.regions = RegionRewriter(self.graph)
        self.origins: dict[Value, Value] = {}
        # By identity, and which parameters and results are integers. The graph is held so that no other gets its id.
        self._bodies: dict[tuple[int, Flags, Flags], tuple[Graph, Graph]] = {}

    def graph(self, graph: Graph) -> Graph:
        """The graph without loops over bfloat16 stacks; the graph itself where there are none."""
        if Scan not in graph.op_types or not any(
            isinstance(eqn.op, Scan) and any(_stacks(eqn.op)) for eqn in all_equations(graph)
        ):
            return graph
        return _Rewriting(self, graph, (), ()).graph

    def body(self, graph: Graph, params: Flags, results: Flags) -> Graph:
        """The step of a loop, of whose parameters and results these are integers."""
        key = id(graph), params, results
        if key not in self._bodies:
            self._bodies[key] = graph, _Rewriting(self, graph, params, results).graph
        return self._bodies[key][1]


def _stacks(op: Scan) -> Flags:
    """Which parameters of a step, and then which of its results, are rows of bfloat16 stacks."""
    types, results = op.body.param_types, op.body.result_types
    is_row = [place >= op.consts + op.carry and type.dtype is BF16 for place, type in enumerate(types)]
    return (*is_row, *[place >= op.carry and type.dtype is BF16 for place, type in enumerate(results)])


class _Rewriting:
    """One graph.

    Attributes:
        graph: the new one.
    """

    def __init__(self, stacks: IntegerStacks, graph: Graph, params: Flags, results: Flags) -> None:
        self._stacks = stacks
        self._equations: list[Equation] = []
        #: The integers that are there for numbers of the graph, and which of these are there as well.
        self._integers: dict[Value, Value] = {}
        self._numbers: set[Value] = set()
        given = []
        for index, value in enumerate(graph.params):
            given.append(self._as_integer(value) if params and params[index] else value)
        for eqn in graph.equations:
            self._take(eqn)
        loc = graph.equations[-1].loc if graph.equations else None
        returned = [
            self._integer(value, loc) if results and results[index] else self._number(value, loc)
            for index, value in enumerate(graph.results)
        ]
        self.graph = Graph(graph.name, tuple(given), tuple(self._equations), tuple(returned))

    def _take(self, eqn: Equation) -> None:
        op = eqn.op
        if isinstance(op, Scan) and any(_stacks(op)):
            self._take_loop(eqn, op)
        elif isinstance(op, OptimizationBarrier) and not self._integers.keys().isdisjoint(eqn.operands):
            is_integer = [value in self._integers for value in eqn.operands]
            operands = [self._integers.get(value, value) for value in eqn.operands]
            results = [self._as_integer(x) if is_set else x for x, is_set in zip(eqn.results, is_integer, strict=True)]
            self._equations.append(Equation(op, tuple(operands), tuple(results), eqn.loc))
        elif op.is_identity and eqn.operands[0] in self._integers:
            self._integers[eqn.results[0]] = self._integers[eqn.operands[0]]
        else:
            operands = [self._number(value, eqn.loc) for value in eqn.operands]
            self._equations.append(Equation(self._stacks.regions.op(op), tuple(operands), eqn.results, eqn.loc))

    def _take_loop(self, eqn: Equation, op: Scan) -> None:
        flags = _stacks(op)
        params, results = flags[: len(eqn.operands)], flags[len(eqn.operands) :]
        operands = [
            self._integer(value, eqn.loc) if is_set else self._number(value, eqn.loc)
            for value, is_set in zip(eqn.operands, params, strict=True)
        ]
        body = self._stacks.body(op.body, params, results)
        given = [self._as_integer(x) if is_set else x for x, is_set in zip(eqn.results, results, strict=True)]
        self._equations.append(Equation(replace(op, body=body), tuple(operands), tuple(given), eqn.loc))

    def _as_integer(self, value: Value) -> Value:
        """The integers that are there for numbers."""
        found = self._integers[value] = Value(value.type.with_dtype(U16), value.name)
        self._stacks.origins[found] = value
        return found

    def _integer(self, value: Value, loc: Location | None) -> Value:
        """The integers, made of the numbers where they are not there."""
        if value not in self._integers:
            self._equations.append(Equation(BitcastConvert(U16), (value,), (self._as_integer(value),), loc))
            self._numbers.add(value)
        return self._integers[value]

    def _number(self, value: Value, loc: Location | None) -> Value:
        """The numbers, made of the integers where these alone are there."""
        if value not in self._integers:
            return value
        if value not in self._numbers:
            self._numbers.add(value)
            self._equations.append(Equation(BitcastConvert(BF16), (self._integers[value],), (value,), loc))
        return value
