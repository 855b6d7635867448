"""Which stage runs in parts, along what, and in how many.

The stage is that around the largest value that can be held in parts alone. It grows through what is larger than one
part of that value: what is no larger may as well be whole. Of several stages it is the smallest that borders on nothing
more, so that a head ends at the hidden layer that it reads, and not with the program.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.slicings import SAME
from rematc.ir.values import Value
from rematc.passes.slicing.stages import Stage, Stages, bytes_of

#: How many numbers of parts are tried: of no fewer than asked for, and of fewer. Each takes as long as the last.
_MORE, _FEWER = 3, 2


@dataclass(frozen=True, slots=True)
class Cut:
    """A stage that runs in parts.

    Attributes:
        seed: its largest value.
        dimension: of that value, along which it is cut.
        count: how many parts there are.
        stage: the equations.
        border: bytes of the largest value that is cut and exists whole.
        uncut: bytes of what each part reads whole, but for parameters.
        is_again: whether it computes again what others have computed.
        is_through: whether it goes as far as the dimension does (`cut_through`).
    """

    seed: Value
    dimension: int
    count: int
    stage: Stage
    border: int
    uncut: int
    is_again: bool = False
    is_through: bool = False

    @property
    def largest(self) -> int:
        """Bytes of the largest value that is made in parts, of whatever takes no memory of its own, too."""
        return max(bytes_of(value.type) for value, d in self.stage.made.items() if d != SAME)

    @property
    def first(self) -> Value:
        """The first value of the stage that is written to memory and as large as the one that it is cut around."""
        size, made = bytes_of(self.seed.type), self.stage.made
        written = (value for eqn in self.stage.slicings if not eqn.op.is_fusible for value in eqn.results)
        return next((value for value in written if value in made and bytes_of(value.type) == size), self.seed)


@dataclass(frozen=True, slots=True)
class Limit:
    """What no slice is to have more bytes than.

    Attributes:
        written: of a value that is in memory.
        made: of any, also of those that are computed where they are read, such as logits in a wider element type.
    """

    written: int
    made: int


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

    The value has at least `least` bytes. Of values that are computed alike, as in layers, the last one is tried: less
    waits for what it gives. Where so many parts divide no dimension, there are a few more, or else as many
    as there can be.
    """
    refusals: list[Refusal] = []
    refused = set[tuple[object, ...]]()
    for seed in largest_first(stages.graph):
        alike = stages.kind_of(seed)
        if bytes_of(seed.type) < least:
            break
        found = None if alike in refused else best_cut(stages, seed, count)
        if found is not None:
            return found
        refused.add(alike)
        if not refusals:
            refusals = [_refusal(stages, seed, d, count) for d in range(seed.type.rank)]
    return refusals


def best_cut(stages: Stages, seed: Value, count: int) -> Cut | None:
    """The cut around a value in so many parts, or a few more, along that dimension where least exists whole."""
    cuts = [cut for d in range(seed.type.rank) for cut in _cuts(stages, seed, d, count)]
    return min(cuts, key=lambda cut: _merit(cut, count), default=None)


def cut_to(stages: Stages, seed: Value, limit: Limit) -> Cut | None:
    """The cut around a value into parts within a limit; into as many as there can be, where these are not enough."""
    own = limit.made if stages.producer[seed].op.is_fusible else limit.written
    cut = best_cut(stages, seed, -(-bytes_of(seed.type) // own))
    if cut is not None and cut.largest > limit.made * cut.count:
        cut = best_cut(stages, seed, -(-cut.largest // limit.made))
    return cut


def cuts_through(stages: Stages, count: int, least: int = 0) -> Iterator[Cut]:
    """Cuts of all that has a dimension of a value, as a batch goes through a step, in about so many parts.

    For each value of `least` bytes or more, the largest first, there is that along which least exists whole. Of values
    that are computed alike only the last is tried.
    """
    refused = set[tuple[object, ...]]()
    for seed in largest_first(stages.graph):
        if bytes_of(seed.type) < least:
            return
        alike = stages.kind_of(seed)
        if alike in refused:
            continue
        refused.add(alike)
        best = cut_through(stages, seed, count)
        if best is not None:
            yield best


def cut_through(stages: Stages, seed: Value, count: int, *, is_again: bool = False) -> Cut | None:
    """The cut of all that has a dimension of this value, where least exists whole, in about so many parts.

    What is computed again may be what is large alone: scores of samples, say, are there, and weights of all come next.
    """
    found = [cut for d in range(seed.type.rank) for cut in _cuts_through(stages, seed, d, count, is_again=is_again)]
    return min(found, key=lambda cut: (cut.border, *_merit(cut, count)), default=None)


def _cuts_through(stages: Stages, seed: Value, dimension: int, count: int, *, is_again: bool) -> Iterator[Cut]:
    for parts in near(count, seed.type.shape[dimension]):
        more = (0, bytes_of(seed.type) // parts) if is_again else (0,)
        grown = [stages.around(seed, dimension, more_than) for more_than in more]
        fitting = [stage for stage in grown if seed in stage.made and stage.has_parts(parts)]
        for stage in fitting:
            yield Cut(seed, dimension, parts, stage, _border(stages, stage), _uncut(stages, stage), is_again, True)
        if fitting:
            return


def _merit(cut: Cut, count: int) -> tuple[bool, int, int, int, int]:
    """Less is better."""
    return cut.count < count, abs(cut.count - count), cut.border, cut.uncut, cut.dimension


def largest_first(graph: Graph) -> Iterator[Value]:
    """Values that are written to memory, or would be, if they were not cut; of equally large ones the last first."""
    values = [value for eqn in reversed(graph.equations) if not eqn.op.is_fusible for value in eqn.results]
    yield from sorted(values, key=lambda value: -bytes_of(value.type))


def _cuts(stages: Stages, seed: Value, dimension: int, count: int) -> Iterator[Cut]:
    """The best cut of a value along a dimension, if there is one."""
    for parts in near(count, seed.type.shape[dimension]):
        best = None
        for stage in stages_around(stages, seed, dimension, parts):
            if stages.is_read_outside(stage, seed):
                continue
            border = _border(stages, stage)
            if best is None or border < best.border:
                best = Cut(seed, dimension, parts, stage, border, _uncut(stages, stage))
            if border <= bytes_of(seed.type) // parts:
                break
        if best is not None and best.border < bytes_of(seed.type):
            yield best
            return


def stages_around(stages: Stages, seed: Value, dimension: int, parts: int) -> Iterator[Stage]:
    """The stages that make a value in so many parts, from the smallest on."""
    for more_than in _thresholds(stages, seed, parts):
        stage = stages.around(seed, dimension, more_than)
        if seed in stage.made and stage.has_parts(parts):
            yield stage


def near(count: int, size: int) -> list[int]:
    """Numbers of parts into which a size can be cut: so many, or a few more; else fewer."""
    divisors = _divisors(size)
    first = bisect_left(divisors, count)
    return [*divisors[first : first + _MORE], *divisors[max(0, first - _FEWER) : first][::-1]]


@functools.cache
def _divisors(size: int) -> tuple[int, ...]:
    return tuple([parts for parts in range(2, size + 1) if size % parts == 0])


def _thresholds(stages: Stages, seed: Value, parts: int) -> list[int]:
    """Sizes of values from that of the seed down to one of its parts: a stage grows through what is larger."""
    whole = bytes_of(seed.type)
    sizes = {bytes_of(value.type) for value in stages.producer}
    return sorted({size for size in sizes if whole // parts <= size < whole} | {whole // parts}, reverse=True)


def _border(stages: Stages, stage: Stage) -> int:
    """Bytes of the largest value that is cut and exists whole, made inside or outside; parameters are there anyway."""
    outside = [stages.least_bytes(*read) for read in stage.reads if read[1] is not None and stages.is_made(read[0])]
    return max([*outside, *[bytes_of(value.type) for value in stages.whole(stage)]], default=0)


def _uncut(stages: Stages, stage: Stage) -> int:
    """Bytes of what each part reads whole; parameters are there anyway."""
    uncut = {value for value, d in stage.reads if d is None and stages.is_made(value)}
    return sum(bytes_of(value.type) for value in uncut)


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
