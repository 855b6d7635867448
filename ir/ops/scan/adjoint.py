"""The adjoint of a step, of which the loops are made that go backwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Graph, TransposeContext
from rematc.ir.ops.bodies import Zeros, filled, settled, spread
from rematc.ir.ops.scan.base import ScanBase
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Adjoint:
    """The adjoint of a loop's step.

    Attributes:
        op: the loop.
        is_linear: which parameters of its step are linear.
        graph: known parameters, then the cts that are there, to cts of linear parameters.
        gets_ct: for each parameter of the step, whether `graph` gives its ct.
        has_ct: for each result of the step, whether `graph` takes its ct.
    """

    op: ScanBase
    is_linear: tuple[bool, ...]
    graph: Graph
    gets_ct: tuple[bool, ...]
    has_ct: tuple[bool, ...]

    @staticmethod
    def of(op: ScanBase, b: TransposeContext, is_linear: tuple[bool, ...], has_ct: Sequence[bool]) -> Adjoint:
        """With cts of these results of the loop. A carry has a ct at each step if one step gives it one."""

        def step(carries: tuple[bool, ...]) -> tuple[Adjoint, tuple[bool, ...]]:
            taken = (*carries, *has_ct[op.carry :])
            graph, given = b.adjoint_of(op.body, is_linear, taken)
            gets_ct = tuple([is_set is True for is_set in spread(given, is_linear)])
            return Adjoint(op, is_linear, graph, gets_ct, taken), op.parts(gets_ct).carry

        return settled(step, has_ct[: op.carry])[0]

    @property
    def carries(self) -> tuple[bool, ...]:
        """For each carry, whether the loop backwards carries its ct."""
        return self.has_ct[: self.op.carry]

    def cts(self, results: Sequence[Value]) -> tuple[list[Value], tuple[Value | None, ...], list[Value]]:
        """What `graph` gives: the cts of consts that are there, of all carries, and of xs that are there."""
        consts, carry, xs = self.op.parts(spread(results, self.gets_ct))
        return [ct for ct in consts if ct is not None], carry, [ct for ct in xs if ct is not None]

    def carried(self, b: Zeros, cts: Sequence[Value | None]) -> tuple[Value, ...]:
        """The cts of carries that the loop carries, zeros for those that are not there."""
        return filled(b, cts, self.op.body.results[: self.op.carry], self.carries)
