"""Running combinations: an associative scan.

Lines are cut into runs of four. The running combinations within each run are three combinations of strided slices; the
last of each are a line a quarter as long, whose running combinations (found likewise) are combined into the runs after
them. That is work in proportion to the elements, in log4 n rounds. On XLA's CPU backend it takes 0.2 to 0.6 times as
long as jnp.cumsum from 10^4 to 10^6 elements (benchmarks/cumulative.py), where the obvious forms, log2 n shifted
additions or a windowed sum, take up to 20 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops import cumulative
from rematc.ir.ops.transcendental import LogPlusOne
from rematc.ir.types import F32
from rematc.ir.values import Value
from rematc.passes.legalize.rules import expands

#: What runs along a line: one array, or several that are combined together.
Lines = tuple[Value, ...]
Combine = Callable[[Builder, Lines, Lines], Lines]

_RUN = 4
#: A line of at most this many elements is one run.
_WHOLE = 8


@expands(
    cumulative.CumulativeSum,
    cumulative.CumulativeProduct,
    cumulative.CumulativeMax,
    cumulative.CumulativeMin,
    cumulative.CumulativeLogsumexp,
    cumulative.LinearRecurrence,
)
def running(b: Builder, op: cumulative.Cumulative | cumulative.LinearRecurrence, *operands: Value) -> Sequence[Value]:
    """Floats of 16 bits and less are combined in float32 and rounded once."""
    *_, last = operands
    if not last.type.size:
        return [last]
    dtype = last.type.dtype
    wide = F32 if dtype.is_float and dtype.bits < F32.bits else dtype
    turned = (op.dimension,) if op.is_reversed else ()
    lines = tuple([b.reverse(b.convert(x, wide), turned) for x in operands])
    found = _scanned(b, lines, op.dimension, _COMBINED_BY[type(op)])[-1]
    return [b.convert(b.reverse(found, turned), dtype)]


def _scanned(b: Builder, lines: Lines, dimension: int, combine: Combine) -> Lines:
    rounds: list[tuple[list[Lines], int]] = []
    while (n := lines[0].type.shape[dimension]) > 1:
        prefixes = _prefixes_of_runs(b, lines, dimension, combine)
        rounds.append((prefixes, n))
        lines = prefixes[-1]
    found = lines
    for prefixes, n in reversed(rounds):
        after = [_after(b, found, own, dimension, combine) for own in prefixes]
        found = tuple([_interleaved(b, parts, dimension, n) for parts in zip(*after, strict=True)])
    return found


def _prefixes_of_runs(b: Builder, lines: Lines, dimension: int, combine: Combine) -> list[Lines]:
    """For each place in a run, the combination of all runs' elements up to it."""
    n = lines[0].type.shape[dimension]
    length = _RUN if n > _WHOLE else n
    # What stands behind the end is combined with nothing that is kept.
    padded = [_extended(b, x, dimension, -n % length) for x in lines]
    prefixes: list[Lines] = []
    for place in range(length):
        own = tuple([_every(b, x, dimension, place, length) for x in padded])
        prefixes.append(combine(b, prefixes[-1], own) if prefixes else own)
    return prefixes


def _after(b: Builder, totals: Lines, own: Lines, dimension: int, combine: Combine) -> Lines:
    """Combinations within runs, combined with those of all runs before; the first run has none."""
    count = own[0].type.shape[dimension]
    if count == 1:
        return own
    before = tuple([_part(b, x, dimension, 0, count - 1) for x in totals])
    later = combine(b, before, tuple([_part(b, x, dimension, 1, count) for x in own]))
    first = [_part(b, x, dimension, 0, 1) for x in own]
    return tuple([b.concatenate(pair, dimension) for pair in zip(first, later, strict=True)])


def _interleaved(b: Builder, parts: Sequence[Value], dimension: int, n: int) -> Value:
    """The first elements of all parts, then the second ones, and so on: the first n."""
    shape = parts[0].type.shape
    columns = [b.reshape(x, (*shape[: dimension + 1], 1, *shape[dimension + 1 :])) for x in parts]
    whole = b.reshape(
        b.concatenate(columns, dimension + 1),
        (*shape[:dimension], shape[dimension] * len(parts), *shape[dimension + 1 :]),
    )
    return _part(b, whole, dimension, 0, n)


def _extended(b: Builder, x: Value, dimension: int, count: int) -> Value:
    high = [count if d == dimension else 0 for d in range(x.type.rank)]
    return b.pad(x, b.zeros(x.type.with_shape(())), [0] * x.type.rank, high)


def _every(b: Builder, x: Value, dimension: int, start: int, stride: int) -> Value:
    rank = x.type.rank
    starts, strides = [start if d == dimension else 0 for d in range(rank)], [1] * rank
    strides[dimension] = stride
    return b.slice(x, starts, x.type.shape, strides)


def _part(b: Builder, x: Value, dimension: int, start: int, limit: int) -> Value:
    rank = x.type.rank
    limits = [limit if d == dimension else size for d, size in enumerate(x.type.shape)]
    return b.slice(x, [start if d == dimension else 0 for d in range(rank)], limits)


def _each(combine: Callable[[Builder, Value, Value], Value]) -> Combine:
    def apply(b: Builder, earlier: Lines, later: Lines) -> Lines:
        return (combine(b, earlier[0], later[0]),)

    return apply


def _log_add_exp(b: Builder, x: Value, y: Value) -> Value:
    """log(e^x + e^y) as the greater one plus log(1 + e^-|x - y|); two equal infinities are the sum."""
    difference = b.subtract(x, y)
    rest = b.emit1(LogPlusOne(), b.exponential(b.negate(b.abs(difference))))
    is_nan = b.compare(difference, difference, "NE")
    return b.select(is_nan, b.add(x, y), b.add(b.maximum(x, y), rest))


def _recurrence(b: Builder, earlier: Lines, later: Lines) -> Lines:
    """y -> a y + x, first by the earlier and then by the later pair (a, x)."""
    (a, x), (c, z) = earlier, later
    return (b.multiply(c, a), b.add(b.multiply(c, x), z))


_COMBINED_BY: dict[type, Combine] = {
    cumulative.CumulativeSum: _each(Builder.add),
    cumulative.CumulativeProduct: _each(Builder.multiply),
    cumulative.CumulativeMax: _each(Builder.maximum),
    cumulative.CumulativeMin: _each(Builder.minimum),
    cumulative.CumulativeLogsumexp: _each(_log_add_exp),
    cumulative.LinearRecurrence: _recurrence,
}
