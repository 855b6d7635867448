"""Analysis: quotients that XLA on the CPU computes as products.

Before:  %1 = broadcast_in_dim %0   %2 = divide %x, %1      and nothing else reads %0
After:   %1 = divide 1, %0   %2 = broadcast_in_dim %1   %3 = multiply %x, %2

Its algebraic simplifier rewrites a division by what is repeated of a smaller array, and one by a square root, if
nothing else reads that array or root. What it has rewritten reads the array as well. An array with dimensions of size
one that are repeated is reshaped first, for each broadcast anew, so that nothing else reads what is repeated then.
"""

from __future__ import annotations

from collections import Counter

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.ops.transcendental import Sqrt
from rematc.ir.values import Value
from rematc.passes.kernels import is_repeat
from rematc.passes.readers import is_renamed, readers_of


class Divisors:
    """What is divided by in a program, and what else reads it."""

    def __init__(self, graph: Graph) -> None:
        #: How many equations and results read a value; XLA counts as well what it has made itself.
        self._readers = Counter[Value]()
        self._producer: dict[Value, Equation] = {}
        #: Another name of a value, and the value.
        self._renamed: dict[Value, Value] = {}
        #: Divisors with dimensions of size one that are repeated, of which the reciprocal is computed.
        self._inverted: set[Value] = set()
        self._enter(graph)

    def enter_body(self, body: Graph, eqn: Equation) -> None:
        """Note that a call is its body from here on. Called before the equations of the body are asked for."""
        for value in dict.fromkeys(eqn.operands):
            self._readers[self._original(value)] -= 1
        self._renamed.update(zip(body.params, map(self._original, eqn.operands), strict=True))
        self._enter(body)
        for value, result in zip(eqn.results, body.results, strict=True):
            self._readers[self._original(result)] += self._readers[value] - 1
            self._renamed[value] = self._original(result)

    def is_inverted(self, divisor: Value) -> bool:
        """Whether XLA divides by it by multiplying, where it is divided by next."""
        divisor = self._original(divisor)
        eqn = self._producer.get(divisor)
        if eqn is None or not is_repeat(eqn):
            return False
        if _is_reshaped(eqn):
            return divisor not in self._inverted
        return self._readers[self._original(eqn.operands[0])] == 1

    def invert(self, divisor: Value) -> Value:
        """Note that it is divided by by multiplying, and by what: the smaller array whose reciprocal is repeated."""
        divisor = self._original(divisor)
        eqn = self._producer[divisor]
        if _is_reshaped(eqn):
            self._inverted.add(divisor)
        else:
            self._readers[self._original(eqn.operands[0])] += 1
        return eqn.operands[0]

    def is_cheap(self, divisor: Value) -> bool:
        """Whether it is a constant, or a square root that nothing else reads, in another shape as well."""
        is_read_once = True
        while True:
            divisor = self._original(divisor)
            is_read_once &= self._readers[divisor] == 1
            eqn = self._producer.get(divisor)
            if eqn is None or not (isinstance(eqn.op, BroadcastInDim | Convert) or is_renamed(eqn)):
                return eqn is not None and (isinstance(eqn.op, Constant) or (isinstance(eqn.op, Sqrt) and is_read_once))
            divisor = eqn.operands[0]

    def _enter(self, graph: Graph) -> None:
        readers = readers_of(graph)
        for eqn in graph.equations:
            for value in eqn.results:  # of a body that stood in another place before as well
                self._producer[value] = eqn
                self._readers[value] = 0
                self._renamed.pop(value, None)
                self._inverted.discard(value)
            if eqn.op.storage is Storage.ALIAS:
                self._renamed[eqn.results[0]] = self._original(eqn.operands[0])
                self._readers[self._original(eqn.operands[0])] -= 1
        for value, places in readers.items():
            self._readers[self._original(value)] += len(places)

    def _original(self, value: Value) -> Value:
        return self._renamed.get(value, value)


def _is_reshaped(repeat: Equation) -> bool:
    """Whether dimensions of size one of the operand are repeated, which XLA drops before."""
    op, shape = repeat.op, repeat.operands[0].type.shape
    assert isinstance(op, BroadcastInDim), "what repeats an array"
    return any(size != op.shape[d] for size, d in zip(shape, op.dimensions, strict=True))
