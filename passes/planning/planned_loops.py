"""Loops as plans hold them: of which stacks the backward loop computes the slices again, without the equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import relative
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes
from rematc.ir.values import Value
from rematc.passes.accounting import products_of
from rematc.passes.aliases import find_aliases
from rematc.passes.planning.loops import LoopDecision, with_decisions
from rematc.passes.planning.region_paths import body_at
from rematc.passes.planning.staged_bodies import StagedBody


@dataclass(frozen=True, slots=True)
class DroppedStack:
    """A value of each step that is not stacked, or that the step computes again.

    Attributes:
        op: what computes it.
        names: those that `checkpoint_name` gave it.
        type: of one step's, as text.
        size: bytes that all steps' would take; of what a step computes again for itself, those of one.
        where: file and line in the user's code; "" where they are not known.
    """

    op: str
    names: tuple[str, ...]
    type: str
    size: int
    where: str


@dataclass(frozen=True, slots=True)
class PlannedLoop:
    """A backward loop that computes again what the forward one does not stack for all steps, or a body in stages.

    Attributes:
        decision: which loops, and how.
        length: how many steps the loops have; 1 where that is not known, and of branches.
        where: file and line of the forward loop; "" where they are not known.
        stacks: what is computed again.
        products: how many products all steps compute again for it.
        is_branch: whether it is of a branch, and not of a loop.
    """

    decision: LoopDecision
    length: int
    where: str
    stacks: tuple[DroppedStack, ...]
    products: int = 0
    is_branch: bool = False

    @property
    def how(self) -> str:
        """How it is computed again, in words."""
        return "in stages of a branch" if self.is_branch else self.decision.how(self.length)

    @property
    def is_of_steps(self) -> bool:
        """Whether each step computes again what it held itself."""
        return isinstance(self.decision, StagedBody)

    def table(self) -> Table:
        """What is computed again, largest first."""
        where = f" at {self.where}" if self.where else ""
        rows = [
            (" ".join(one.names) or one.op, one.type, format_bytes(one.size), one.where)
            for one in sorted(self.stacks, key=lambda one: -one.size)
        ]
        size = "bytes" if self.is_branch else "1 step" if self.is_of_steps else f"{self.length} steps"
        title = f"computed again {self.how}{self._of('loop')}{where}"
        return Table(title, ("value", "type", size, "where"), (False, False, True, False), tuple(rows))

    def _of(self, loop: str) -> str:
        """Of which loop it is, as its words go on; those of a branch say all."""
        return "" if self.is_branch else f" of the {loop}"

    def explain(self, value: str) -> list[str]:
        """Why the values of a name, an op or a line are computed again; nothing where the loop has none of these."""
        texts = []
        for one in self.stacks:
            if value in (*one.names, one.op, one.where) or one.where.endswith(f"/{value}"):
                what = " ".join(one.names) or one.op
                where = f" at {one.where}" if one.where else ""
                again = f"{what}, {one.type},{where} is computed again {self.how}"
                texts.append(
                    f"{again}{self._of('loop')}: kept, it would take {format_bytes(one.size)} until it is read there"
                    if self.is_of_steps
                    else f"{again}{self._of('backward loop')}: kept, those of all {self.length} steps would take "
                    f"{format_bytes(one.size)}"
                )
        return texts


def counted_loops(loops: Sequence[PlannedLoop], of_loops: str = "") -> list[str]:
    """`2 loops`, and `1 branch`, of what there is; `of_loops` comes before the loops."""
    branches = sum(loop.is_branch for loop in loops)
    steps = len(loops) - branches
    counts = [f"{of_loops}{counted(steps, 'loop')}"] if steps else []
    return [*counts, counted(branches, "branch", "branches")] if branches else counts


def planned_loops(graph: Graph, decisions: Sequence[LoopDecision]) -> tuple[PlannedLoop, ...]:
    """Decisions for the loops of a graph, one after the other, as a plan holds them.

    Raises CompileError where there are no such loops.
    """
    found = []
    for decision in decisions:
        after = with_decisions(graph, [decision])
        inner = body_at(graph, decision.path)
        found.append(_planned(inner, decision, products_of(after) - products_of(graph)))
        graph = after
    return tuple(found)


def _planned(graph: Graph, decision: LoopDecision, products: int) -> PlannedLoop:
    eqn = graph.equations[decision.forward]
    op = eqn.op
    if isinstance(decision, StagedBody):
        again = [DroppedStack(one.op, one.names, one.type, one.size, one.where) for one in decision.again(graph)]
        length = op.length if isinstance(op, Scan) else 1
        return PlannedLoop(decision, length, _place_of(eqn), tuple(again), products, isinstance(op, Case))
    assert isinstance(op, Scan), "other decisions are about loops"
    values, sources = op.body.results[op.carry :], _Sources(op.body)

    def stack(value: Value) -> DroppedStack:
        by, names = sources.of(value)
        size = stack_of(value.type, op.length).bytes
        what, where = ("argument", "") if by is None else (by.op.name, _place_of(by))
        return DroppedStack(what, names, str(value.type), size, where)

    stacks = tuple([stack(values[index]) for index in decision.stacks(graph)])
    return PlannedLoop(decision, op.length, _place_of(eqn), stacks, products)


class _Sources:
    """Which equations values of a step come from, those of the loops in it among them."""

    def __init__(self, body: Graph) -> None:
        self._made = {value: inner for inner in body.equations for value in inner.results}
        self._aliases = find_aliases(body.equations)

    def of(self, value: Value) -> tuple[Equation | None, tuple[str, ...]]:
        """The equation, None for a parameter; and the names that `checkpoint_name` gave the value."""
        root = self._aliases.root(value)
        by, names = self._made.get(root), self._aliases.labels(root)
        if by is None or not isinstance(by.op, Scan):
            return by, names
        inside, more = _Sources(by.op.body).of(by.op.body.results[by.results.index(root)])
        return inside or by, (*names, *more)


def _place_of(eqn: Equation) -> str:
    return "" if eqn.loc is None else f"{relative(eqn.loc.file)}:{eqn.loc.line}"
