"""Cutting a graph around one value: in one loop, or in several where some of what reads it must wait for the others."""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.scan.op import Scan
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.fold_transposes import fold_transposes
from rematc.passes.slicing.choosing import Cut, Limit, best_cut, cut_through, cut_to, cuts_through, near, stages_around
from rematc.passes.slicing.copies import with_copies
from rematc.passes.slicing.loop import in_parts
from rematc.passes.slicing.stages import Stage, Stages, bytes_of

#: How often a value is computed at most: for what reads it at once, for the backward pass, for another statistic.
_TIMES = 3
#: Of a value's bytes one stage is to save all but this part; else it is tried to compute some of it again in another.
_SAVED = 8


@dataclass(frozen=True, slots=True)
class InParts:
    """A stage that runs in slices.

    Attributes:
        value: its largest value, as it would be without slices.
        op: what computes that.
        loc: where.
        dimension: along which the value is cut.
        count: how many slices there are.
        largest: bytes of the largest value that is made in slices.
        body: one slice of the stage.
        is_again: whether the value is computed a second time, for what could not be in the loop that computes it first.
    """

    value: Value
    op: str
    loc: Location | None
    dimension: int
    count: int
    largest: int
    body: Graph
    is_again: bool = False

    @property
    def each(self) -> int:
        """How many elements of the dimension a slice has."""
        return self.value.type.shape[self.dimension] // self.count


def apply_cut(stages: Stages, cut: Cut, is_again: bool = False) -> tuple[Graph, InParts]:
    """The graph with a stage in slices, and what that is.

    Sums of products come in the order in which the graph gives them, not transposed behind the loop.

    Raises CompileError where effects stand in the way.
    """
    sums = {eqn for eqn, slicing in cut.stage.slicings.items() if slicing.is_sum}
    graph = fold_transposes(stages.graph, sums)
    if graph is not stages.graph:
        stages = stages.of(graph)
        if cut.is_through:
            again = cut_through(stages, cut.seed, cut.count, is_again=cut.is_again)
        else:
            again = best_cut(stages, cut.seed, cut.count)
        assert again is not None, "the stage has the same equations, and less outside"
        cut = again
    value = cut.first
    own = stages.producer[value]
    made = in_parts(stages, cut.stage, cut.count)
    others = set(stages.graph.equations)
    (loop,) = [eqn for eqn in made.equations if isinstance(eqn.op, Scan) and eqn not in others]
    (body,) = loop.op.regions()
    return made, InParts(value, own.op.name, own.loc, cut.stage.made[value], cut.count, cut.largest, body, is_again)


def cut_around(stages: Stages, seed: Value, limit: Limit) -> tuple[Graph, list[InParts]] | None:
    """The graph with all that makes or reads a value whole in parts within a limit; None for none.

    Of dimensions that have not so many parts, it is as many as there are. Nothing is computed more often than `_TIMES`.
    """
    return _cut_around(stages, seed, limit, 1)


def cut_all_through(stages: Stages, count: int, limit: Limit, least: int) -> tuple[Graph, list[InParts]] | None:
    """The graph with all that goes with a large value, as a batch goes through a step, in about so many parts.

    What must wait for all of that, as for statistics of the batch, computes again what it reads of more than a part,
    and is cut likewise: nothing is computed more often than `_TIMES`. None where there is no value of `least` bytes
    or more of which less than that exists whole then.
    """
    for cut in cuts_through(stages, count, least):
        found = _through(stages, cut, limit, 1)
        if found is not None:
            return found
    return None


def _through(stages: Stages, cut: Cut, limit: Limit, time: int) -> tuple[Graph, list[InParts]] | None:
    split = with_copies(stages, cut.stage, limit.written) if cut.border > limit.written and time < _TIMES else None
    if split is not None:
        again = stages.of(DeadCode().run(split[0]), apart=set(split[1].values()))
        alone = cut_through(again, cut.seed, cut.count) if cut.seed in again.producer else None
        if alone is not None and alone.border < cut.border:
            graph, first = apply_cut(again, alone, time > 1)
            rest = stages.of(graph, first.body)
            copies = [copy for copy in split[1].values() if copy in rest.producer]
            largest = max(copies, key=lambda copy: bytes_of(copy.type), default=None)
            more = None if largest is None else cut_through(rest, largest, cut.count, is_again=True)
            others = None if more is None else _through(rest, more, limit, time + 1)
            if others is not None:
                return others[0], [first, *others[1]]
    if cut.border >= bytes_of(cut.seed.type):
        return None
    graph, first = apply_cut(stages, cut, time > 1)
    return graph, [first]


def _cut_around(stages: Stages, seed: Value, limit: Limit, time: int) -> tuple[Graph, list[InParts]] | None:
    cut = cut_to(stages, seed, limit)
    if cut is not None and cut.border <= max(limit.made, bytes_of(seed.type) // _SAVED):
        return _applied(stages, cut, time)
    for stage in _stages_of(stages, seed, -(-bytes_of(seed.type) // limit.written)) if time < _TIMES else ():
        split = with_copies(stages, stage, limit.written)
        apart = None if split is None else _both(*split, seed, limit, time)
        if apart is not None:
            return apart
    return None if cut is None else _applied(stages, cut, time)


def _applied(stages: Stages, cut: Cut, time: int) -> tuple[Graph, list[InParts]] | None:
    try:
        made, found = apply_cut(stages, cut, time > 1)
    except CompileError:
        return None
    return made, [found]


def _stages_of(stages: Stages, seed: Value, count: int) -> list[Stage]:
    """One for each dimension in about so many parts, the nearest number first."""
    found = []
    for d in range(seed.type.rank):
        for parts in near(count, seed.type.shape[d]):
            stage = next(stages_around(stages, seed, d, parts), None)
            if stage is not None:
                found.append((parts < count, abs(parts - count), d, stage))
                break
    return [stage for *_, stage in sorted(found, key=lambda each: each[:3])]


def _both(
    graph: Graph, names: dict[Value, Value], seed: Value, limit: Limit, time: int
) -> tuple[Graph, list[InParts]] | None:
    """The graph with a value in slices, and so each of the copies that is larger than one; None unless all are.

    There is nothing to take apart where all that reads the value reads the copies.
    """
    stages = Stages(DeadCode().run(graph))
    cut = cut_to(stages, seed, limit) if seed in stages.producer else None
    if cut is None:
        return None
    graph, first = apply_cut(stages, cut, time > 1)
    found = [first]
    for copy in sorted(names.values(), key=lambda value: -bytes_of(value.type)):
        if bytes_of(copy.type) <= limit.written or not _is_computed(graph, copy):
            continue
        more = _cut_around(Stages(graph), copy, limit, time + 1)
        if more is None:
            return None
        graph = more[0]
        found += more[1]
    return graph, found


def _is_computed(graph: Graph, value: Value) -> bool:
    return any(value in eqn.results for eqn in graph.equations)
