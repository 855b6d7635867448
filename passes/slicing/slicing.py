"""The stage around the largest value of a program in slices: a language model's head, forward and backward.

Before:  a differentiated program, forward and backward in one, what it computes again in `checkpoint` regions
After:   the same, with the stage in one loop over parts of a dimension (`rematc.passes.slicing.loop`)

Recomputation cannot go below the largest thing that must exist at once. What of the stage would be computed again is
computed once, in the loop: regions of the backward pass that it reaches into are dissolved.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.values import Value
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.fold_transposes import fold_transposes
from rematc.passes.inline import Inline
from rematc.passes.manager import Pass, PassManager, register_pass
from rematc.passes.simplify import Simplify
from rematc.passes.slicing.choosing import Cut, Refusal, cut_of
from rematc.passes.slicing.loop import in_parts
from rematc.passes.slicing.stages import Stages, bytes_of


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
    """A graph with a stage in slices.

    Attributes:
        graph: the graph.
        value: the type of the stage's largest value, as it would be without slices.
        op: what computes that.
        loc: where.
        dimension: along which the value is cut.
        count: how many slices there are.
        equations: of the stage.
    """

    graph: Graph
    value: Value
    op: str
    loc: Location | None
    dimension: int
    count: int
    equations: int

    @property
    def each(self) -> int:
        """How many elements of the dimension a slice has."""
        return self.value.type.shape[self.dimension] // self.count


def sliced(graph: Graph, count: int) -> Sliced:
    """The stage around the largest value that can be held in parts, in so many, or a few more.

    Raises CompileError, with the reasons, where there is none.
    """
    stages, cut = _as_given(*_with_cut(_clean(graph), count), count)
    own = stages.producer[cut.seed]
    made = in_parts(stages, cut.stage, cut.count)
    equations = len(cut.stage.slicings)
    return Sliced(made, cut.seed, own.op.name, own.loc, cut.dimension, cut.count, equations)


def _clean(graph: Graph) -> Graph:
    passes = (Inline(), Simplify(), CommonSubexpressions(), DeadCode())
    return PassManager(passes).run(graph).graph


def _with_cut(graph: Graph, count: int) -> tuple[Stages, Cut]:
    """The cut of a graph, with as few regions of the backward pass dissolved as it takes.

    The largest value that can be cut is that of the graph without any. Then they are dissolved until that value is cut:
    the first one in which there are values as large, what the stage reaches into, and what computes the value again.

    Raises CompileError, with the reasons, where there is no such value.
    """
    flat = _clean(_without(graph, {eqn for eqn in graph.equations if _is_backward(eqn)}))
    aim = cut_of(Stages(flat), count)
    if not isinstance(aim, Cut):
        raise _error(aim, count)
    least = bytes_of(aim.seed.type)
    while True:
        stages = Stages(graph)
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


def _as_given(stages: Stages, cut: Cut, count: int) -> tuple[Stages, Cut]:
    """The cut with its sums of products in the order in which the graph gives them, not transposed behind the loop."""
    sums = {eqn for eqn, slicing in cut.stage.slicings.items() if slicing.is_sum}
    graph = fold_transposes(stages.graph, sums)
    if graph is stages.graph:
        return stages, cut
    stages = Stages(graph)
    again = cut_of(stages, count, bytes_of(cut.seed.type))
    assert isinstance(again, Cut), "the stage has the same equations, and less outside"
    return stages, again


def _is_backward(eqn: Equation) -> bool:
    return isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated


def _bytes_within(eqn: Equation) -> int:
    """Bytes of the largest value that an equation reads, gives, or has in a region of the backward pass."""
    values = [*eqn.operands, *eqn.results]
    if isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated:
        values += [value for inner in eqn.op.body.equations for value in inner.results]
    return max([bytes_of(value.type) for value in values], default=0)


def _computing_again(stages: Stages, cut: Cut) -> set[Equation]:
    """The regions of the backward pass that compute again what the seed is."""
    own = stages.producer[cut.seed]

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
