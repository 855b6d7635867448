"""Analysis: which values of a program are in memory, and which kernels read them, whatever the backend.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = add %1, %b   %3 = dot_general %2, %v   %4 = sine %0
         return %3, %4
After:   in memory: %0, which a product gives, %2, which one takes, %3 and %4; %0 is read by the kernels of %2 and %4

An op says how its results are stored (`Storage`). What is fused into what reads it is in memory nevertheless where
something reads it that takes its operands from there (a product, a loop), or where several kernels would do it and it
is heavy work, or reads more than it gives. What a backend does beyond that is said beside the backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from rematc.ir.core import Equation
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.indexing import ScatterAdd
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant, Iota
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Kernels:
    """What a program has in memory.

    Attributes:
        stored: the values that are in memory, in the order in which they are written.
        first_read: for each of them the index of the first equation whose kernel reads it; -1 where none does.
        last_read: the same of the last one.
    """

    stored: Sequence[Value]
    first_read: dict[Value, int]
    last_read: dict[Value, int]


_NOBODY = (-1, -1)


def kernels(equations: Sequence[Equation], results: Iterable[Value]) -> Kernels:
    """What is in memory of equations in order; `results` are read after the last one."""
    # By the first and the last kernel, which tell one reader from several, and when a value dies.
    readers: dict[Value, tuple[int, int]] = {}
    taken: set[Value] = set(results)
    stored: list[Value] = []

    merged = _scattered_into(equations)
    repeated = {value for eqn in equations if isinstance(eqn.op, (BroadcastInDim, Iota)) for value in eqn.results}

    def read(value: Value, by: tuple[int, int]) -> None:
        first, last = readers.get(value, _NOBODY)
        readers[value] = by if first < 0 else (min(first, by[0]), max(last, by[1]))

    for index in range(len(equations) - 1, -1, -1):
        eqn = equations[index]
        storage = eqn.op.storage
        if storage is Storage.WRITTEN or len(eqn.results) != 1:
            if merged.isdisjoint(eqn.results):
                stored.extend(eqn.results)
            for value in eqn.operands:
                read(value, (index, index))
                if not isinstance(eqn.op, Reduction):
                    taken.add(value)
            continue
        (result,) = eqn.results
        own = readers.get(result, _NOBODY)
        if storage is Storage.ALIAS or storage is Storage.BITCAST:
            if own[0] >= 0:
                read(eqn.operands[0], own)
            if result in taken:
                taken.add(eqn.operands[0])
            continue
        if _is_in_memory(eqn, own, result in taken or not merged.isdisjoint(eqn.operands), repeated):
            stored.append(result)
            own = (index, index)
        if own[0] >= 0:
            for value in eqn.operands:
                read(value, own)
    stored.reverse()
    ends = {value: readers.get(value, _NOBODY) for value in stored}
    return Kernels(
        stored,
        {value: first for value, (first, _) in ends.items()},
        {value: last for value, (_, last) in ends.items()},
    )


def _scattered_into(equations: Sequence[Equation]) -> set[Value]:
    """What is scattered into zeros and then added to something: XLA scatters it into that."""
    uses = Counter(value for eqn in equations for value in eqn.operands)
    zeros: set[Value] = set()
    found: set[Value] = set()
    scattered: set[Value] = set()
    for eqn in equations:
        if _is_zero(eqn, zeros):
            zeros.update(eqn.results)
        elif isinstance(eqn.op, ScatterAdd) and eqn.operands[0] in zeros and uses[eqn.results[0]] == 1:
            scattered.update(eqn.results)
        elif isinstance(eqn.op, Add):
            found.update(scattered.intersection(eqn.operands[:1]) or scattered.intersection(eqn.operands[1:]))
    return found


def _is_zero(eqn: Equation, zeros: Set[Value]) -> bool:
    if isinstance(eqn.op, Constant):
        return eqn.op.data.count(0) == len(eqn.op.data)
    return isinstance(eqn.op, BroadcastInDim) and eqn.operands[0] in zeros


def _is_in_memory(eqn: Equation, readers: tuple[int, int], is_taken: bool, repeated: Set[Value]) -> bool:
    """Whether the result of an equation that can be fused is written."""
    if not eqn.operands:
        return False
    if is_taken or readers[0] == readers[1]:
        return is_taken
    large = {value for value in eqn.operands if value.type.size >= eqn.results[0].type.size}
    reads_more = len(large - repeated) > 1
    return reads_more or eqn.op.weight is Weight.HEAVY or eqn.op.storage is Storage.FUSED_ONCE
