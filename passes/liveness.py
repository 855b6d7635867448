"""Analysis: the temporary memory that a program needs, predicted from its graph.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   the largest sum of what is in memory at once: %0 with %1, or %1 alone; parameters and results do not count

Values live from the equation that computes them to the last one that reads them, in program order, which is the order
of the staged schedule: barriers keep XLA close to it. What XLA fuses into its readers takes no memory; it is read where
these are. XLA computes elementwise functions that take long once, and writes them where several read them. What this
leaves out: XLA's own order within a segment, buffers that it reuses in place, and what its kernels take for themselves.
"""

from __future__ import annotations

from collections import Counter

from rematc.ir.core import Equation, Graph, Value
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import OptimizationBarrier, is_alias

#: Elementwise ops that XLA does not evaluate twice to save memory.
_EXPENSIVE = frozenset(
    (
        *("atan2", "cbrt", "cosine", "divide", "erf", "exponential", "exponential_minus_one", "log", "log_plus_one"),
        *("logistic", "power", "rsqrt", "sine", "sqrt", "tan", "tanh"),
    )
)


def predicted_peak(graph: Graph) -> int:
    """The peak of temporary memory in bytes, of a graph after the passes."""
    stored = _stored(graph)
    kept = {_source(value, stored.alias) for value in graph.results}
    read = _last_reads(graph, stored.values | kept)
    change = [0] * (len(graph.equations) + 2)
    inside = [0] * (len(graph.equations) + 2)
    for index, eqn in enumerate(graph.equations):
        inside[index] = max(map(predicted_peak, eqn.op.regions()), default=0) + _copied(eqn)
        for value in eqn.results:
            if value in stored.values and value not in kept:
                change[index] += value.type.bytes
                change[max(read.get(value, index), index) + 1] -= value.type.bytes
    live = peak = 0
    for now, within in zip(change, inside, strict=True):
        live += now
        peak = max(peak, live + within)
    return peak


def _copied(eqn: Equation) -> int:
    """Bytes of what a convolution reads and writes in another order: XLA's kernels have one order of dimensions."""
    op = eqn.op
    if not isinstance(op, Convolution):
        return 0
    spatial = range(len(op.window_strides))
    image = (0, len(spatial) + 1, *[1 + index for index in spatial])
    kernel = (len(spatial) + 1, len(spatial), *spatial)
    found = (op.dimensions.input, op.dimensions.kernel, op.dimensions.output)
    arrays = zip((*eqn.operands, *eqn.results), found, (image, kernel, image), strict=True)
    return sum(value.type.bytes for value, order, direct in arrays if order != direct)


class _Stored:
    """Values that are written to memory; `alias` has for each other name of a value the value."""

    def __init__(self) -> None:
        self.values: set[Value] = set()
        self.alias: dict[Value, Value] = {}


def _stored(graph: Graph) -> _Stored:
    found = _Stored()
    uses = Counter(value for eqn in graph.equations for value in eqn.operands)
    for eqn in graph.equations:
        match eqn.op:
            case OptimizationBarrier():
                found.alias.update(zip(eqn.results, eqn.operands, strict=True))
                found.values.update(_source(value, found.alias) for value in eqn.operands)
            case op if is_alias(op) or isinstance(op, Reshape):
                found.alias[eqn.results[0]] = eqn.operands[0]
            case op if not op.is_fusible:
                found.values.update(eqn.results)
                if op.is_product or op.regions():
                    found.values.update(_source(value, found.alias) for value in eqn.operands)
            case op if op.name in _EXPENSIVE and uses[eqn.results[0]] > 1:
                found.values.update(eqn.results)
    found.values.difference_update(graph.params)
    return found


def _source(value: Value, alias: dict[Value, Value]) -> Value:
    while value in alias:
        value = alias[value]
    return value


def _last_reads(graph: Graph, written: set[Value]) -> dict[Value, int]:
    """For each value the index of the last equation whose evaluation reads it, through what is fused."""
    read: dict[Value, int] = {}
    for index in range(len(graph.equations) - 1, -1, -1):
        eqn = graph.equations[index]
        if isinstance(eqn.op, OptimizationBarrier):
            for value, result in zip(eqn.operands, eqn.results, strict=True):
                read[value] = max(read.get(value, -1), read.get(result, -1))
            continue
        # What is written is evaluated at its place, the rest as a part of what reads it.
        is_evaluated = any(value in written for value in eqn.results)
        at = index if is_evaluated else max([read.get(value, -1) for value in eqn.results], default=-1)
        for value in eqn.operands:
            read[value] = max(read.get(value, -1), at)
    return read
