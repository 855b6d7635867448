"""Recomputation where a plan says: each of its stages becomes a region that the pass `barriers` pins.

Before:  %0 = sine %x   %1 = dot_general %0, %w   ...   %8 = dot_general %7, %0
Stages:  one begins at %8 and runs %0 again
After:   %0 = sine %x   %1 = dot_general %0, %w   ...   %8 = checkpoint %x, %7 {is_differentiated=true, body=graph
         @stage(%x, %7) { %0 = sine %x   %1 = dot_general %7, %0   return %1 }}

A region's operands are what it reads from memory: what is kept, and what earlier stages give. To them is added some of
what the stage before it gives, though it be read later: so much that all work of that stage is behind the region's
operands, and no compiler can begin the region before. It gives these on, and whoever reads them reads them from there;
no bytes move. What is fused is computed from memory again in each region that reads it. So is what only repeats a
smaller array, if one op alone reads it. What must be written once for all that read it is behind a barrier of its own
(`written_once`), unless none of them is a product or the like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.values import Value
from rematc.passes.barriers import barrier_behind
from rematc.passes.kernels import is_repeat
from rematc.passes.planning.problem import Stages
from rematc.passes.planning.translation import Translation
from rematc.passes.planning.written_once import written_once
from rematc.passes.readers import uses_of


def apply(translation: Translation, stages: Stages) -> Graph:
    """The graph that runs in these stages; the graph itself where there are none, and nothing is pinned."""
    graph = translation.graph
    if not (stages.begins or translation.pinned):
        return graph
    problem = translation.problem
    fuses = {node for node in range(len(problem.cost)) if _fuses(translation.own(node).op)}
    in_first, *pinned = [
        translation.pinned.union([translation.values[value] for value in values])
        for values in written_once(problem, stages, fuses)
    ]
    first, *others = _pieces(translation, stages)
    here: dict[Value, Value] = {}
    equations = _as_they_stand(translation, first.nodes, in_first, here)
    repeats = _repeats(translation, first)
    waits: list[int] = []
    for before, piece, held in zip((first, *others), others, pinned, strict=False):
        waits = _waits(translation, before, waits, piece)
        _append(translation, piece, waits, held, repeats, here, equations)
    end = _Copies(dict(here))
    end.add(translation.tail)
    results = tuple([end.names.get(value, value) for value in graph.results])
    return Graph(graph.name, graph.params, (*equations, *end.equations), results)


def _fuses(op: Op) -> bool:
    """Whether an op takes what it reads into its own kernel."""
    return op.is_elementwise or isinstance(op, Reduction)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stage.

    Attributes:
        nodes: what it runs, in order.
        reads: values of the problem that it reads and does not write.
        gives: those that it writes, and later stages read or the program gives.
    """

    nodes: Sequence[int]
    reads: frozenset[int]
    gives: frozenset[int]


def _pieces(translation: Translation, stages: Stages) -> list[_Piece]:
    problem = translation.problem
    begins = (0, *stages.begins)
    ends = (*stages.begins, len(problem.cost))
    runs = [(*again, *range(begin, end)) for begin, end, again in zip(begins, ends, ((), *stages.again), strict=True)]
    needed = {value for value, is_set in enumerate(problem.is_result.tolist()) if is_set}
    pieces = []
    for run in reversed(runs):
        live, nodes = set(needed), list[int]()
        for node in reversed(run):
            writes = problem.writes[node]
            if translation.own(node).op.effect or not live.isdisjoint(writes):
                nodes.append(node)
                live.difference_update(writes)
                live.update(problem.reads[node])
        written = {value for node in nodes for value in problem.writes[node]}
        reads = {value for node in nodes for value in problem.reads[node]} - written
        pieces.append(_Piece(nodes[::-1], frozenset(reads), frozenset(written & needed)))
        needed = live
    return pieces[::-1]


def _waits(translation: Translation, before: _Piece, passed: Sequence[int], piece: _Piece) -> list[int]:
    """Of what the stage before gives and this one does not read, so much that all of its work comes first.

    `passed` is what the stage before waited for: where none of its work did, this stage waits in its place.
    """
    problem = translation.problem
    covered = set(piece.reads & before.gives.union(passed))
    waits = []
    for node in reversed(before.nodes):
        if covered.isdisjoint(problem.writes[node]):
            given = [value for value in problem.writes[node] if value in before.gives]
            if not given:
                continue
            waits.append(given[0])
        covered.update(problem.reads[node])
    if passed and covered.isdisjoint(before.reads.union(passed)):
        waits.append(passed[0])
    return waits


def _repeats(translation: Translation, piece: _Piece) -> dict[Value, Equation]:
    """What a stage repeats of smaller arrays for one reader each, as the zeros in which a loop sums up: by whom.

    A region with that reader repeats them itself. No compiler merges the two: the smaller array is behind a barrier.
    """
    uses = uses_of(translation.graph)
    own = map(translation.own, piece.nodes)
    return {eqn.results[0]: eqn for eqn in own if is_repeat(eqn) and uses[eqn.results[0]] == 1}


def _as_they_stand(
    translation: Translation, nodes: Iterable[int], pinned: Set[Value], here: dict[Value, Value]
) -> list[Equation]:
    """The equations of nodes; `here` gets what stands for values that are pinned."""
    equations = []
    for eqn in dict.fromkeys(eqn for node in nodes for eqn in translation.clusters[node]):
        operands = tuple([here.get(value, value) for value in eqn.operands])
        equations.append(Equation(eqn.op, operands, eqn.results, eqn.loc))
        if not pinned.isdisjoint(eqn.results):
            equations.append(barrier_behind(eqn.results, here, eqn.loc))
    return equations


def _append(
    translation: Translation,
    piece: _Piece,
    waits: Sequence[int],
    pinned: Set[Value],
    repeats: Mapping[Value, Equation],
    here: dict[Value, Value],
    equations: list[Equation],
) -> None:
    """Add the region of a stage; `here` has, for what earlier regions gave, its name, and gets what this one gives."""
    values = translation.values
    written = {value for node in piece.nodes for eqn in translation.clusters[node] for value in eqn.results}
    taken = dict.fromkeys(
        value
        for node in piece.nodes
        for eqn in translation.clusters[node]
        for value in eqn.operands
        if value not in written
    )
    repeated = [repeats[value] for value in taken if value in repeats]
    taken = dict.fromkeys([repeats[value].operands[0] if value in repeats else value for value in taken])
    taken |= dict.fromkeys([values[index] for index in waits])
    copies = _Copies({value: Value(value.type, value.name) for value in taken}, pinned)
    params = tuple(copies.names.values())
    copies.add(repeated)
    for node in piece.nodes:
        copies.add(translation.clusters[node])
    given = [values[index] for index in (*sorted(piece.gives), *waits)]
    body = Graph("stage", params, tuple(copies.equations), tuple([copies.names[value] for value in given]))
    results = tuple([Value(value.type, value.name) for value in given])
    operands = tuple([here.get(value, value) for value in taken])
    loc = next((eqn.loc for eqn in copies.equations if eqn.loc is not None), None)
    equations.append(Equation(Checkpoint(body, is_differentiated=True, is_scheduled=True), operands, results, loc))
    here.update(zip(given, results, strict=True))


@dataclass(frozen=True, slots=True)
class _Copies:
    """Equations with values of their own.

    Attributes:
        names: what stands for values.
        pinned: those that are behind barriers.
        equations: the copies.
    """

    names: dict[Value, Value]
    pinned: Set[Value] = frozenset()
    equations: list[Equation] = field(default_factory=list)

    def add(self, cluster: Iterable[Equation]) -> None:
        """Copy the equations that are not there yet."""
        for eqn in cluster:
            if eqn.results and all(value in self.names for value in eqn.results):
                continue
            operands = tuple([self.names.get(value, value) for value in eqn.operands])
            results = tuple([Value(value.type, value.name) for value in eqn.results])
            self.names.update(zip(eqn.results, results, strict=True))
            self.equations.append(Equation(eqn.op, operands, results, eqn.loc))
            if not self.pinned.isdisjoint(eqn.results):
                self.equations.append(barrier_behind(eqn.results, self.names, eqn.loc))
