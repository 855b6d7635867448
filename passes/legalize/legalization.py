"""Legalization: compound ops, which no backend has, become graphs of plain ones; in regions too.

Before:  %0: f32[4] = integer_power %x {exponent=3}
         %1: f32[4] = erfc_inv %0
After:   %2: f32[4] = multiply %x, %x
         %0: f32[4] = multiply %x, %2
         %1: f32[4] = call %0 {body=graph @erfc_inv(%a: f32[4]) -> (f32[4]) { %0: f64[4] = convert %a ... }}

Why: special functions, running combinations, powers and solutions of linear equations are one op each as long as they
are differentiated, vmapped and planned, since each has a derivative that needs less than that of its parts. Before
lowering they are what runs: the interpreter evaluates the same equations, the predicted memory is theirs, and the
writer has rules for plain ops alone. A long expansion is a function, written once for all its calls.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.placement import has_placements
from rematc.ir.ops.regions import Call
from rematc.ir.splicing import splice
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.legalize import (  # noqa: F401  # rules enter the registry
    arithmetic,
    bessel,
    complex_error,
    cumulative,
    decompositions,
    error_functions,
    incomplete_beta,
    incomplete_gamma,
    roundings,
    solving,
    windows,
)
from rematc.passes.legalize.arranging import arranged, held_in_parts
from rematc.passes.legalize.factors import has_barriers
from rematc.passes.legalize.last_readers import last_readers
from rematc.passes.legalize.matrix_shapes import MatrixShapes
from rematc.passes.legalize.rules import MOST_IN_PLACE, RULES, expanded
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter

#: The platforms whose libraries multiply matrices and batches of them.
_ON_GPUS = ("cuda", "rocm")


@register_pass
@dataclass(frozen=True, slots=True)
class Legalize(Pass):
    """Expand what no backend has.

    Attributes:
        platform: expand what this one does not have as well; None leaves that to whoever knows where the graph runs.
        devices: over how many the arguments are spread; dimensions that may lie on several are not joined.
        shares_behind_barriers: whether XLA:CPU writes results over what barriers give on.
        keeps_bfloat16: whether it moves bfloat16 numbers as they are.
    """

    name: ClassVar[str] = "legalize"
    keeps_bits: ClassVar[bool] = False
    platform: str | None = None
    devices: int = 1
    shares_behind_barriers: bool = True
    keeps_bfloat16: bool = True

    def run(self, graph: Graph) -> Graph:
        if self.platform != "cpu":
            legal = _Legalizer(self.platform).graph(graph)
            is_shaped = self.platform in _ON_GPUS and self.devices == 1 and not has_placements(graph)
            if not is_shaped or not has_barriers(graph):
                return legal
            return MatrixShapes().graph(last_readers(legal))
        return self.with_origins(graph)[0]

    def with_origins(self, graph: Graph) -> tuple[Graph, Mapping[Value, Value]]:
        """The graph for CPUs; for what is computed in another shape there, the value of the graph given that it is."""
        legal = _Legalizer("cpu").graph(held_in_parts(graph))
        return arranged(legal, self.devices, self.shares_behind_barriers, self.keeps_bfloat16)


@functools.lru_cache(maxsize=1024)
def expansion(op: Op, types: tuple[TensorType, ...], platform: str | None = None) -> Graph | None:
    """The graph of plain ops that an op is for operands of these types; None for one that is plain."""
    found = expanded(op, types, platform)
    return None if found is None else _Legalizer(platform).graph(found)


class _Legalizer:
    """Expands the ops of graphs."""

    def __init__(self, platform: str | None) -> None:
        self._platform = platform
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph of plain ops; the graph itself where all are."""
        if graph.op_types.isdisjoint(RULES):
            return graph
        env: dict[Value, Value] = {}
        equations: list[Equation] = []
        has_changed = False
        for eqn in graph.equations:
            found = expansion(eqn.op, eqn.operand_types, self._platform) if type(eqn.op) in RULES else None
            op = self._regions.op(eqn.op) if found is None else eqn.op
            if found is None and op is eqn.op and not env:
                equations.append(eqn)
                continue
            has_changed = True
            operands = tuple([env.get(value, value) for value in eqn.operands])
            if found is None:
                equations.append(Equation(op, operands, eqn.results, eqn.loc))
            elif len(found.equations) > MOST_IN_PLACE:
                equations.append(Equation(Call(found), operands, eqn.results, eqn.loc))
            else:
                env.update(zip(eqn.results, splice(found, operands, equations, eqn.loc), strict=True))
        if not has_changed:
            return graph
        return Graph(
            graph.name, graph.params, tuple(equations), tuple([env.get(value, value) for value in graph.results])
        )
