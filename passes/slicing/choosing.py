"""Which stage runs in parts, along what, and in how many.

The stage is that around the largest value that can be held in parts alone. It grows through what is larger than one
part of that value: what is no larger may as well be whole. Of several stages it is the smallest that borders on nothing
more, so that a head ends at the hidden layer that it reads, and not with the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.values import Value
from rematc.passes.slicing.stages import Stage, Stages, bytes_of


@dataclass(frozen=True, slots=True)
class Cut:
    """A stage that runs in parts.

    Attributes:
        seed: its largest value.
        dimension: of that value, along which it is cut.
        count: how many parts there are.
        stage: the equations.
        border: bytes of the largest value that is cut and exists whole.
    """

    seed: Value
    dimension: int
    count: int
    stage: Stage
    border: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value is not held in parts along a dimension.

    Attributes:
        seed: the value.
        dimension: of it.
        cause: the equation that needs more than parts; None for a value that is a result, or has no parts.
        why: what it does, or what else is the reason, as it follows the equation's name or the value's type.
        loc: where the value is computed.
    """

    seed: Value
    dimension: int
    cause: Equation | None
    why: str
    loc: Location | None


def cut_of(stages: Stages, count: int, least: int = 0) -> Cut | list[Refusal]:
    """The cut in so many parts around the largest value for which there is one; else why there is none for the largest.

    The value has at least `least` bytes. Where so many parts divide no dimension, there are a few more, or else as many
    as there can be.
    """
    refusals: list[Refusal] = []
    for seed in _largest_first(stages.graph):
        if bytes_of(seed.type) < least:
            break
        found = [cut for d in range(seed.type.rank) for cut in _cuts(stages, seed, d, count)]
        if found:
            return min(found, key=lambda cut: (cut.count < count, abs(cut.count - count), cut.border, cut.dimension))
        if not refusals:
            refusals = [_refusal(stages, seed, d, count) for d in range(seed.type.rank)]
    return refusals


def _largest_first(graph: Graph) -> Iterator[Value]:
    """Values that are written to memory, or would be, if they were not cut."""
    values = [value for eqn in graph.equations if not eqn.op.is_fusible for value in eqn.results]
    yield from sorted(values, key=lambda value: -bytes_of(value.type))


def _cuts(stages: Stages, seed: Value, dimension: int, count: int) -> Iterator[Cut]:
    """The best cut of a value along a dimension, if there is one."""
    size = seed.type.shape[dimension]
    for parts in _near(count, size):
        best = None
        for more_than in _thresholds(stages, seed, parts):
            stage = stages.around(seed, dimension, more_than)
            if seed not in stage.made or stages.is_read_outside(stage, seed) or parts not in stage.counts():
                continue
            border = _border(stages, stage)
            if best is None or border < best.border:
                best = Cut(seed, dimension, parts, stage, border)
            if border <= bytes_of(seed.type) // parts:
                break
        if best is not None and best.border < bytes_of(seed.type):
            yield best
            return


def _near(count: int, size: int) -> list[int]:
    """Numbers of parts into which a size can be cut: so many, or a few more; else fewer."""
    divisors = [parts for parts in range(2, size + 1) if size % parts == 0]
    return [*[parts for parts in divisors if parts >= count], *[parts for parts in divisors[::-1] if parts < count]]


def _thresholds(stages: Stages, seed: Value, parts: int) -> list[int]:
    """Sizes of values from that of the seed down to one of its parts: a stage grows through what is larger."""
    whole = bytes_of(seed.type)
    sizes = {bytes_of(value.type) for value in stages.producer}
    return sorted({size for size in sizes if whole // parts <= size < whole} | {whole // parts}, reverse=True)


def _border(stages: Stages, stage: Stage) -> int:
    """Bytes of the largest value that is cut and exists whole, made inside or outside; parameters are there anyway."""
    outside = [value for value, d in stage.reads if d is not None and value in stages.producer]
    return max([bytes_of(value.type) for value in (*outside, *stages.whole(stage))], default=0)


def _refusal(stages: Stages, seed: Value, dimension: int, count: int) -> Refusal:
    stage = stages.around(seed, dimension, bytes_of(seed.type) // count)
    own = stages.producer[seed]

    def refused(cause: Equation | None, why: str) -> Refusal:
        return Refusal(seed, dimension, cause, why, own.loc)

    if seed not in stage.made:
        return refused(_cause(stages, stage, own), _why(stages, stage, own))
    for value in (seed, *sorted(stages.whole(stage), key=lambda value: -bytes_of(value.type))):
        if bytes_of(value.type) <= bytes_of(seed.type) // count:
            break
        reader = next((eqn for eqn in stages.readers.get(value, ()) if eqn not in stage.slicings), None)
        if reader is not None:
            return refused(_cause(stages, stage, reader), _why(stages, stage, reader))
        if stages.is_read_outside(stage, value):
            return refused(None, "is a result of the function, or what is made of it")
    return refused(None, f"has no parts along dimension {dimension} that all around it has, too")


def _cause(stages: Stages, stage: Stage, eqn: Equation) -> Equation:
    """The equation for which one that is not in the stage has to wait; itself, if it needs its operands whole."""
    late = next((value for value in eqn.operands if value in stage.after), None)
    while late is not None:
        eqn = stages.producer[late]
        if eqn in stage.slicings:
            return eqn
        late = next((value for value in eqn.operands if value in stage.after), None)
    return eqn


def _why(stages: Stages, stage: Stage, eqn: Equation) -> str:
    return "sums over it what is read there again" if _cause(stages, stage, eqn) in stage.slicings else "needs it whole"
