"""What of a program is larger than a slice of its largest value, in slices: a language model's head, attention.

Before:  a differentiated program, forward and backward in one, what it computes again in `checkpoint` regions
After:   the same, with stages in loops over parts of a dimension (`rematc.passes.slicing.loop`)

Recomputation cannot go below the largest thing that must exist at once. The stage around the largest value is computed
once, in one loop, where it can be, as that of a head: regions of the backward pass that it reaches into are dissolved.
Other stages are cut where they stand, in regions and in the steps of loops, too; what is read again too late for one
loop is computed again in a second one (`rematc.passes.slicing.copies`), as attention in the backward pass is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.spelling import suggestion
from rematc.ir.values import Value
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.inline import Inline
from rematc.passes.manager import Pass, PassManager, register_pass
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.regions import RegionRewriter
from rematc.passes.simplify import Simplify
from rematc.passes.slicing.choosing import Cut, Limit, Refusal, cut_of, largest_first
from rematc.passes.slicing.counters import Counters
from rematc.passes.slicing.cutting import InParts, apply_cut, cut_all_through, cut_around
from rematc.passes.slicing.local_parts import LocalParts
from rematc.passes.slicing.stages import Stages, bytes_of
from rematc.passes.slicing.whole_again import whole_again


@register_pass
@dataclass(frozen=True, slots=True)
class SlicePass(Pass):
    """Run the stage around the largest value in parts.

    Attributes:
        parts: how many, or a few more where no dimension has so many; None for none.
    """

    name: ClassVar[str] = "slice"
    parts: int | None = None

    def __post_init__(self) -> None:
        if self.parts is not None and self.parts < 2:
            raise CompileError(f"a stage runs in 2 slices or more, got {self.parts}; leave them out for one")

    def run(self, graph: Graph) -> Graph:
        return graph if self.parts is None else sliced(graph, self.parts).graph


@dataclass(frozen=True, slots=True)
class Sliced:
    """A graph with stages in slices.

    Attributes:
        graph: the graph.
        stages: what runs in slices, the one around the largest value first.
        at_once: how many of them may reach from the forward pass into what the backward pass computes again.
        asked: in about how many slices, and in which way.
    """

    graph: Graph
    stages: tuple[InParts, ...]
    asked: InSlices
    at_once: int = 0

    @property
    def largest(self) -> InParts:
        """The stage around the largest value."""
        return self.stages[0]


class Slicer:
    """Cuts one graph, in numbers of slices that are to be compared.

    Attributes:
        graph: forward and backward in one.
    """

    def __init__(self, graph: Graph, parts: LocalParts | None = None) -> None:
        """`parts` is what each of several devices computes of the graph, if that is to be cut."""
        self.graph = _clean(graph if parts is None else parts.graph)
        self._parts = parts
        self._levels = _Levels()
        self._limits: dict[int, Limit] = {}

    def once(self, count: int) -> Sliced:
        """The stage around the largest value that can be held in parts with nothing computed again, in about so many.

        Raises CompileError, with the reasons, where there is none.
        """
        return self._once(InSlices(count, "once"))

    def everywhere(self, count: int) -> Sliced:
        """All that is larger than one of so many slices of the largest value, in as few slices as are no larger.

        Stages that can be are computed once, from forward to backward pass. The number is the next larger one that
        divides a dimension, or else the largest. What cannot be cut stays as it is.

        Raises CompileError, with the reasons, where nothing can be cut.
        """
        return self._cut(_Cutter(self._limit(count), self._levels), InSlices(count, "everywhere"))

    def apart(self, count: int) -> Sliced:
        """As `everywhere`, but each stage where it stands: none reaches from the forward pass into a region."""
        return self._cut(_ApartCutter(self._limit(count), self._levels), InSlices(count, "apart"))

    def through(self, count: int) -> Sliced:
        """All that has a dimension of the largest value, as a batch goes through a step, in about so many parts.

        The stage goes through loops and regions. What has to wait for all of it, as for statistics of a batch, computes
        again what it reads of more than one of so many slices, and is a stage as well. What of them is still larger is
        cut in each.

        Raises CompileError where there is no such stage.
        """
        graph, found, limit = self.graph, list[InParts](), self._limit(count)
        while True:
            stages = Stages(graph, cuts_through=True, left=[stage.body for stage in found])
            cut = cut_all_through(stages, count, limit, limit.written + 1)
            if cut is None:
                break
            graph = cut[0]
            found += cut[1]
        if not found:
            raise CompileError(f"nothing goes through the program in {count} slices")
        cutter = _Cutter(limit, self._levels)
        made = cutter.graph(graph)
        return Sliced(self._whole_again(made), (*found, *cutter.found), InSlices(count, "through"))

    def cut(self, asked: InSlices) -> Sliced:
        """What was asked for before. Raises CompileError where there is no such way, or nothing to cut."""
        if asked.way not in WAYS:
            raise CompileError(f"{asked.way!r} is no way to cut a program{suggestion(asked.way, WAYS)}")
        return WAYS[asked.way](self, asked.count)

    def _once(self, asked: InSlices) -> Sliced:
        stages, cut = self._levels.with_cut(self.graph, asked.count)
        made, found = apply_cut(stages, cut)
        return Sliced(self._whole_again(made), (found,), asked)

    def _limit(self, count: int) -> Limit:
        if count not in self._limits:
            written, most = self._levels.largest(self.graph, count)
            self._limits[count] = Limit(max(1, written // count), max(1, most // count))
        return self._limits[count]

    def _cut(self, cutter: _Cutter, asked: InSlices) -> Sliced:
        made = cutter.graph(self.graph)
        if not cutter.found:
            return self._once(asked)
        stages = tuple(sorted(cutter.found, key=lambda stage: -bytes_of(stage.value.type)))
        return Sliced(self._whole_again(made), stages, asked, cutter.at_once)

    def _whole_again(self, graph: Graph) -> Graph:
        return graph if self._parts is None else whole_again(graph, self._parts)


#: The ways to cut a graph in about so many slices, with nothing computed again first.
WAYS: Mapping[str, Callable[[Slicer, int], Sliced]] = {
    way.__name__: way for way in (Slicer.once, Slicer.through, Slicer.everywhere, Slicer.apart)
}


def sliced_once(graph: Graph, count: int) -> Sliced:
    """`Slicer.once` of a graph."""
    return Slicer(graph).once(count)


def sliced(graph: Graph, count: int) -> Sliced:
    """`Slicer.everywhere` of a graph."""
    return Slicer(graph).everywhere(count)


@dataclass
class _Cutter:
    """Cuts what has more bytes than a limit, in a graph and in the regions of it.

    Attributes:
        limit: of a slice.
        levels: what is known of the graph and its regions.
        found: the stages that were cut.
        at_once: how many of them each in one loop, before the others.
    """

    limit: Limit
    levels: _Levels
    found: list[InParts] = field(default_factory=list)
    at_once: int = 0

    def graph(self, graph: Graph) -> Graph:
        if any(graph is stage.body for stage in self.found):
            return graph
        return self._apart(self._in_regions(self._at_once(graph)))

    def _at_once(self, graph: Graph) -> Graph:
        """The stages around the largest value that can be cut, and around others as large, each in one loop."""
        least = self.limit.written + 1
        while (joint := self.levels.joint(graph, self.limit, least)) is not None:
            stages, cut = joint
            least = bytes_of(cut.seed.type)
            graph, found = apply_cut(stages, cut)
            self.found.append(found)
            self.at_once += 1
        return graph

    def _in_regions(self, graph: Graph) -> Graph:
        regions = RegionRewriter(self.graph)
        equations = list(map(regions.equation, graph.equations))
        if all(new is old for new, old in zip(equations, graph.equations, strict=True)):
            return graph
        return Graph(graph.name, graph.params, tuple(equations), graph.results)

    def _apart(self, graph: Graph) -> Graph:
        """What is left, each where it stands, in several loops if it must be."""
        whole = set[tuple[object, ...]]()
        while True:
            found = next(_cuts_apart(self.levels.stages(graph), self.limit, whole), None)
            if found is None:
                return graph
            graph = found[0]
            self.found += found[1]


class _ApartCutter(_Cutter):
    """Cuts only what stands together in one graph."""

    def _at_once(self, graph: Graph) -> Graph:
        return graph


def _cuts_apart(stages: Stages, limit: Limit, whole: set[tuple[object, ...]]) -> Iterator[tuple[Graph, list[InParts]]]:
    """The ways to cut what has more bytes than a limit, the largest first.

    What cannot be cut is added to `whole`, by what all that are computed alike in layers have in common.
    """
    for seed in largest_first(stages.graph):
        alike = stages.kind_of(seed)
        if bytes_of(seed.type) <= limit.written:
            return
        if alike in whole or not stages.ways(stages.producer[seed]):
            continue
        found = cut_around(stages, seed, limit)
        if found is not None:
            yield found
        whole.add(alike)


class _Levels:
    """Graphs in graphs, and the stages of each as it stands and without what is computed again."""

    def __init__(self) -> None:
        # By identity. The graph is held so that no other one gets its id.
        self._stages: dict[int, Stages] = {}
        self._flat: dict[int, tuple[Graph, Stages]] = {}

    def stages(self, graph: Graph) -> Stages:
        """Those of a graph as it stands."""
        if id(graph) not in self._stages:
            self._stages[id(graph)] = Stages(graph)
        return self._stages[id(graph)]

    def flat(self, graph: Graph) -> Stages:
        """Those of the graph without regions of the backward pass: nothing is computed again."""
        if id(graph) not in self._flat:
            regions = {eqn for eqn in graph.equations if _is_backward(eqn)}
            flat = _clean(_without(graph, regions)) if regions else graph
            self._flat[id(graph)] = graph, self.stages(flat)
        return self._flat[id(graph)][1]

    def largest(self, graph: Graph, count: int) -> tuple[int, int]:
        """Bytes of the largest value that can be cut into so many parts, here or in a region; 0 for none.

        The first number orders them: it is of what takes memory of its own, the second of all that is made in parts.
        """
        joint = cut_of(self.flat(graph), count)
        largest = (bytes_of(joint.seed.type), joint.largest) if isinstance(joint, Cut) else (0, 0)
        stages = self.stages(graph)
        for seed in largest_first(graph):
            size = bytes_of(seed.type)
            if size <= largest[0]:
                break
            each = Limit(max(1, size // count), size)
            found = cut_around(stages, seed, each) if stages.ways(stages.producer[seed]) else None
            if found is not None:
                largest = (size, max(stage.largest for stage in found[1]))
        inner = {id(body): body for eqn in graph.equations for body in eqn.op.regions()}
        return max([largest, *[self.largest(body, count) for body in inner.values()]])

    def joint(self, graph: Graph, limit: Limit, least: int) -> tuple[Stages, Cut] | None:
        """The cut in one loop around the largest value of so many bytes or more, in parts within a limit."""
        aim = cut_of(self.flat(graph), 2, least)
        if not isinstance(aim, Cut):
            return None
        count = -(-aim.largest // limit.made)
        try:
            return self._dissolved(graph, count, bytes_of(aim.seed.type))
        except CompileError:
            return None

    def with_cut(self, graph: Graph, count: int) -> tuple[Stages, Cut]:
        """The cut in one loop, around the largest value that can be cut in the graph without any region.

        Raises CompileError, with the reasons, where there is no such value.
        """
        aim = cut_of(self.flat(graph), count)
        if not isinstance(aim, Cut):
            raise _error(aim, count)
        return self._dissolved(graph, count, bytes_of(aim.seed.type))

    def _dissolved(self, graph: Graph, count: int, least: int) -> tuple[Stages, Cut]:
        """The cut around a value of so many bytes, with as few regions of the backward pass dissolved as it takes.

        They are dissolved until such a value is cut: the first one in which there are values as large, what the stage
        reaches into, and what computes the value again.

        Raises CompileError, with the reasons, where it is not.
        """
        while True:
            stages = self.stages(graph)
            cut = cut_of(stages, count, least)
            if isinstance(cut, Cut):
                dissolved = _reached(stages, cut) or _computing_again(stages, cut)
                if not dissolved:
                    return stages, cut
            else:
                large = (eqn for eqn in graph.equations if _is_backward(eqn) and _bytes_within(eqn) >= least)
                dissolved = set(itertools.islice(large, 1))
                if not dissolved:
                    raise _error(cut, count)
            graph = _clean(_without(graph, dissolved))


def _clean(graph: Graph) -> Graph:
    passes = (Inline(), Simplify(), Counters(), CommonSubexpressions(), DeadCode())
    return PassManager(passes).run(graph).graph


def _is_backward(eqn: Equation) -> bool:
    return isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated


def _bytes_within(eqn: Equation) -> int:
    """Bytes of the largest value that an equation reads, gives, or has in a region of the backward pass."""
    values = [*eqn.operands, *eqn.results]
    if isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated:
        values += [value for inner in eqn.op.body.equations for value in inner.results]
    return max([bytes_of(value.type) for value in values], default=0)


def _computing_again(stages: Stages, cut: Cut) -> set[Equation]:
    """The regions of the backward pass that compute again the largest value of a stage."""
    own = stages.producer[cut.first]

    def is_same(eqn: Equation) -> bool:
        return eqn.op == own.op and eqn.result_types == own.result_types and eqn.loc == own.loc

    backward = [eqn for eqn in stages.graph.equations if _is_backward(eqn)]
    return {eqn for eqn in backward if any(is_same(inner) for body in eqn.op.regions() for inner in body.equations)}


def _reached(stages: Stages, cut: Cut) -> set[Equation]:
    """The regions of the backward pass that read or give whole what of the stage is more than a part of its seed."""
    more_than = bytes_of(cut.seed.type) // cut.count
    outside = [value for value, d in cut.stage.reads if d is not None]
    border = [value for value in (*outside, *stages.whole(cut.stage)) if bytes_of(value.type) > more_than]
    eqns = [eqn for value in border for eqn in (*stages.readers.get(value, ()), stages.producer.get(value)) if eqn]
    return {eqn for eqn in eqns if _is_backward(eqn)}


def _without(graph: Graph, regions: set[Equation]) -> Graph:
    """The graph with these regions as plain equations."""
    b, names = Builder(graph.name), dict[Value, Value]()
    b.params = list(graph.params)
    for eqn in graph.equations:
        operands = tuple([names.get(value, value) for value in eqn.operands])
        if eqn in regions:
            (body,) = eqn.op.regions()
            names.update(zip(eqn.results, b.inline(body, operands), strict=True))
        else:
            b.append(Equation(eqn.op, operands, eqn.results, eqn.loc))
    return b.build(*[names.get(value, value) for value in graph.results])


def _error(refusals: list[Refusal], count: int) -> CompileError:
    if not refusals:
        return CompileError(f"nothing can run in {count} slices: no value of the program has dimensions")
    seed = refusals[0].seed
    listed = "".join(f"\n  along dimension {refusal.dimension}: {_reason(refusal)}" for refusal in refusals)
    return CompileError(
        f"nothing can run in {count} slices: the largest value, {seed.type}, cannot be held in parts{listed}\n"
        "Leave out slices, or take what needs it whole out of the function",
        refusals[0].loc,
    )


def _reason(refusal: Refusal) -> str:
    if refusal.cause is None:
        return f"it {refusal.why}"
    where = f" at {refusal.cause.loc.from_here().describe()}" if refusal.cause.loc else ""
    return f"'{refusal.cause.op.name}'{where} {refusal.why}"
