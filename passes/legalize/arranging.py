"""What XLA:CPU holds less for, written otherwise: no op is expanded, and what is computed stays the same.

Before:  %1 = erfc %0   %2 = multiply %1, %x   %3 = multiply %1, %y
After:   %4 = erfc %0   %1 = optimization_barrier %4   %2 = multiply %1, %x   %3 = multiply %1, %y

Programs that recompute get barriers: with them XLA:CPU is known to run as these are planned. What needs none
(`gaussians`, `integer_stacks`, and on one device `batch_groups`, `squeezing` and `flattening`) is done in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.placement import has_placements
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.legalize.batch_groups import with_groups_of_features
from rematc.passes.legalize.factors import SmallerFirst, has_barriers
from rematc.passes.legalize.flattening import Flattening
from rematc.passes.legalize.gaussians import with_own_exponentials
from rematc.passes.legalize.integer_stacks import IntegerStacks
from rematc.passes.legalize.overwriting import ReadersFirst
from rematc.passes.legalize.squeezing import Squeezing
from rematc.passes.legalize.untransposed import with_untransposed_factors
from rematc.passes.regions import EquationRewriter, Rule

#: Elementwise ops whose expansion by XLA:CPU has dear parts that cheap ones read: measured for all that there are.
_IN_PARTS = frozenset(("acosh", "asinh", "atanh", "bessel_i1e", "cosh", "digamma", "erf_inv", "erfc", "lgamma", "sinh"))
#: What is added up of one part for each position of a window, behind a barrier (`rematc.passes.legalize.windows`).
_ADDED_UP = frozenset(("select_and_scatter",))


def arranged(
    graph: Graph, devices: int = 1, shares_behind_barriers: bool = True, keeps_bfloat16: bool = True
) -> tuple[Graph, Mapping[Value, Value]]:
    """The graph in the shapes and the order in which XLA:CPU holds least; the graph itself where it is so.

    With it, for what is computed in another shape, the value of the graph that it is.

    Args:
        graph: after the other passes.
        devices: over how many the arguments are spread; dimensions that may lie on several are not joined.
        shares_behind_barriers: whether XLA:CPU writes results over what barriers give on.
        keeps_bfloat16: whether it moves bfloat16 numbers as they are.
    """
    graph = with_own_exponentials(graph)
    if shares_behind_barriers:
        graph = with_untransposed_factors(graph)
    may_join = devices == 1 and not has_placements(graph)
    if may_join:
        graph = with_groups_of_features(graph)
    squeezing = Squeezing()
    if may_join:
        graph = squeezing.graph(graph)
    is_held = has_barriers(graph)
    if is_held:
        graph = SmallerFirst(shares_behind_barriers).graph(graph)
    flattening = Flattening()
    if may_join:
        graph = flattening.graph(graph)
    if is_held:
        graph = ReadersFirst().graph(graph)
    stacks = IntegerStacks()
    if not keeps_bfloat16:
        graph = stacks.graph(graph)
    origins = dict(squeezing.origins)
    for changed in (flattening.origins, stacks.origins):
        origins |= {new: origins.get(old, old) for new, old in changed.items()}
    return graph, origins


def held_in_parts(graph: Graph) -> Graph:
    """The graph with what is expanded in parts behind a barrier where it has several readers.

    XLA computes the cheap end of it in each of them, and writes the dear parts that this reads, of erfc three in the
    place of one, and nine for windows of 3 x 3. What XLA expands itself is left to it in graphs without barriers.
    """
    names = _IN_PARTS | _ADDED_UP if has_barriers(graph) else _ADDED_UP
    if names.isdisjoint(cls.name for cls in graph.op_types):
        return graph
    return EquationRewriter(lambda graph: _held_in_parts(graph, names)).graph(graph)


def _held_in_parts(graph: Graph, names: frozenset[str]) -> Rule:
    in_parts = {eqn.results[0] for eqn in graph.equations if eqn.op.name in names}
    readers = Counter(value for eqn in graph.equations for value in eqn.operands) if in_parts else Counter()
    several = {value for value in in_parts if readers[value] > 1}

    def held(eqn: Equation) -> list[Equation] | None:
        if several.isdisjoint(eqn.results):
            return None
        (result,) = eqn.results
        parts = Value(result.type, result.name)
        barrier = Equation(OptimizationBarrier(), (parts,), (result,), eqn.loc)
        return [Equation(eqn.op, eqn.operands, (parts,), eqn.loc), barrier]

    return held
