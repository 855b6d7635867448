"""Analysis: which values of a program are in memory, and which kernels read them, whatever the backend.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = add %1, %b   %3 = dot_general %2, %v   %4 = sine %0
         return %3, %4
After:   in memory: %0, which a product gives, %2, which one takes, %3 and %4; %0 is read by the kernels of %2 and %4

An op says how its results are stored (`Storage`). What is fused into what reads it is in memory nevertheless where
something reads it that takes its operands from there (a product, a loop), or where several kernels would do it and it
is heavy work, or reads more than it gives; on devices to which bytes are dearer than work (`Fusion`) only where
that moves fewer of them. What a backend does beyond that is said beside the backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from rematc.ir.core import Equation
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import Gather, ScatterAdd, Scattering
from rematc.ir.ops.logical import Xor
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant, Iota
from rematc.ir.types import BF16, F32, F64
from rematc.ir.values import Value
from rematc.passes.readers import is_renamed


@dataclass(frozen=True, slots=True)
class Fusion:
    """What a device's compiler has kernels compute that could also read it.

    Attributes:
        repeats_work: what several kernels read, as a tanh, in each of them where that moves fewer bytes. On GPUs XLA
            weighs time, and bytes take longer there; its modules for TPUs have it so, too.
        slow: bytes that could be moved in the time that an element of a slow function (`SLOW`) takes. XLA for an H100
            writes a tanh that two sums read, and not that of a gelu, whose kernels move as much: 8 tells them apart.
        code: how many ops, at most, a kernel applies for an element, those that read other places, as a pad, once for
            each; what would take more is written. XLA for GPUs bounds the code of a kernel. 32 was found with the
            associative scan of a state-space model; other scans, wavelets and shifts are predicted at 0.75 to 1.37 by
            it, which were at 0.87 to 1.85. 0: not bounded, and what pads and joins is computed in one kernel alone.
        fuses_gathers: what a gather picks, and what it picks from: on GPUs, not on TPUs.
        fuses_scatters: the updates of a scatter, which adds them as it computes them: on GPUs, not on TPUs.
        reduces_alone: whether a kernel that reduces many elements computes with them only what nothing else reads. What
            another one reads as well is written, light work and conversions among it: on CPUs a library reduces.
        normalized: the elements of a row that is read, reduced, and read once more with what came out in one kernel, as
            that of a softmax, at most. Such a kernel, of XLA's emitter for Triton, writes over nothing that it reads.
        feeds_products: whether a product computes elements of its operands from what these follow from.
        rows: the elements of a row, at most, whose sum or maximum such a product computes as well. XLA's modules for
            v4, v5e and v5p do so for 1,280 and not for 1,408, those for a v6e for 3,072 and not for 4,096 (heads of 64
            and 128, in 16 and 32 bits): the powers of two below.
    """

    repeats_work: bool = False
    slow: int = 0
    code: int = 0
    fuses_gathers: bool = False
    fuses_scatters: bool = False
    reduces_alone: bool = False
    normalized: int = 0
    feeds_products: bool = False
    rows: int = 0


#: On CPUs what is heavy is computed once.
CPU = Fusion(reduces_alone=True)
GPU = Fusion(repeats_work=True, slow=8, code=32, fuses_gathers=True, fuses_scatters=True, normalized=16_384)
TPU = Fusion(repeats_work=True, feeds_products=True, rows=1024)
TPU_V6E = replace(TPU, rows=2048)


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
#: XLA's library for CPUs takes an op that has this many elements, or an operand of it, of numbers of these types.
LIBRARY_ELEMENTS = 4096
LIBRARY_DTYPES = (BF16, F32, F64)
#: Functions that GPUs take so long for that it counts beside the bytes, as measured by what XLA for an H100 writes.
SLOW = frozenset(("tanh", "log", "sine", "cosine", "tan", "power", "atan2"))
#: How many kernels that read a value, or values that one is computed from, are told apart.
_MANY = 8


def kernels(equations: Sequence[Equation], results: Iterable[Value], fusion: Fusion = CPU) -> Kernels:
    """What is in memory of equations in order; `results` are read after the last one."""
    # By the first and the last kernel, which tell one reader from several, and when a value dies.
    readers: dict[Value, tuple[int, int]] = {}
    taken: set[Value] = set(results)
    stored: list[Value] = []

    merged = _scattered_into(equations)
    rule = _ByBytes(equations, fusion, taken) if fusion.repeats_work else _ByWork(equations)
    reducing = _reducing(equations) if fusion.reduces_alone else frozenset[int]()
    reduced: set[Value] = set()

    def read(value: Value, by: tuple[int, int]) -> None:
        first, last = readers.get(value, _NOBODY)
        readers[value] = by if first < 0 else (min(first, by[0]), max(last, by[1]))
        if by[0] in reducing and by[0] == by[1]:
            reduced.add(value)

    for index in range(len(equations) - 1, -1, -1):
        eqn = equations[index]
        if _is_kernel(eqn, fusion):
            if merged.isdisjoint(eqn.results):
                stored.extend(eqn.results)
            rule.write(index)
            for value in eqn.operands:
                read(value, (index, index))
            taken.update(_from_memory(eqn, fusion))
            continue
        result = eqn.results[0]
        for other in eqn.results[1:]:
            if other in readers:
                read(result, readers[other])
        own = readers.get(result, _NOBODY)
        if is_renamed(eqn):
            if own[0] >= 0:
                read(eqn.operands[0], own)
                rule.fuse(index)
            if result in taken:
                taken.add(eqn.operands[0])
            continue
        is_taken = not (taken.isdisjoint(eqn.results) and merged.isdisjoint(eqn.operands))
        is_shared = own[0] != own[1] and ((result in reduced and not is_repeat(eqn)) or rule.is_in_memory(eqn))
        if eqn.operands and (is_taken or is_shared):
            stored.extend(eqn.results)
            own = (index, index)
            rule.write(index)
        elif own[0] >= 0:
            rule.fuse(index)
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


def is_repeat(eqn: Equation) -> bool:
    """Whether a result only repeats something smaller: each kernel is given one of its own (`own_broadcasts`)."""
    return isinstance(eqn.op, BroadcastInDim) and eqn.operands[0].type.size < eqn.results[0].type.size


def is_outer(eqn: Equation) -> bool:
    """Whether an equation is a product of matrices that XLA makes one of elements, each sum having one term."""
    return isinstance(eqn.op, DotGeneral) and eqn.op.is_outer(eqn.operands[0].type)


def _is_kernel(eqn: Equation, fusion: Fusion) -> bool:
    """Whether an equation is in no kernel but its own, and what it gives in memory, whatever reads that."""
    storage = eqn.op.storage
    is_fused = storage is Storage.FUSED or (storage is not Storage.WRITTEN and len(eqn.results) == 1)
    return not (is_fused or is_outer(eqn) or _is_picked(eqn, fusion))


def _is_picked(eqn: Equation, fusion: Fusion) -> bool:
    """Whether it is a gather that is computed where it is read."""
    return fusion.fuses_gathers and isinstance(eqn.op, Gather)


def _from_memory(eqn: Equation, fusion: Fusion) -> Sequence[Value]:
    """The operands of a kernel that it does not compute itself: all, none, or what a scatter writes over."""
    if fusion.fuses_scatters and isinstance(eqn.op, Scattering):
        return eqn.operands[:1]
    is_fed = fusion.feeds_products and isinstance(eqn.op, (DotGeneral, Convolution))
    return () if is_fed or isinstance(eqn.op, Reduction) else eqn.operands


def _reducing(equations: Sequence[Equation]) -> frozenset[int]:
    """The places of those that reduce so many elements that a library does it on CPUs."""
    return frozenset(
        index
        for index, eqn in enumerate(equations)
        if isinstance(eqn.op, Reduction)
        and eqn.operands[0].type.dtype in LIBRARY_DTYPES
        and eqn.operands[0].type.size >= LIBRARY_ELEMENTS
    )


class _Rule(Protocol):
    """Whether what several kernels read, and each could compute, is in memory; asked from the last equation on."""

    def write(self, index: int) -> None:
        """Note that an equation is a kernel."""

    def fuse(self, index: int) -> None:
        """Note that an equation is a part of the kernels that read its result."""

    def is_in_memory(self, eqn: Equation) -> bool:
        """Whether the result of an equation that can be fused is written, several kernels reading it."""


class _ByWork:
    """Heavy work is done once, and no operands are read several times over where one result could be."""

    def __init__(self, equations: Sequence[Equation]) -> None:
        #: What is repeated, counted, or random bits of that: no large operand is read for it.
        self._repeated = set[Value]()
        for eqn in equations:
            is_such = eqn.op.storage is Storage.BITCAST or isinstance(eqn.op, (Threefry2x32, Xor))
            if isinstance(eqn.op, (BroadcastInDim, Iota)) or (is_such and self._repeated.issuperset(self._large(eqn))):
                self._repeated.update(eqn.results)

    def write(self, index: int) -> None:
        """Nothing is noted."""

    def fuse(self, index: int) -> None:
        """Nothing is noted."""

    def is_in_memory(self, eqn: Equation) -> bool:
        """Whether it is heavy, or reads more than it gives."""
        if is_outer(eqn):
            return False
        reads_more = len(self._large(eqn) - self._repeated) > 1
        return reads_more or eqn.op.weight is Weight.HEAVY or eqn.op.storage is Storage.FUSED_ONCE

    @staticmethod
    def _large(eqn: Equation) -> set[Value]:
        return {value for value in eqn.operands if value.type.size >= eqn.results[0].type.size}


class _ByBytes:
    """What several kernels read is written where they would take longer without it.

    Each takes as long as the bytes that it moves, those that the value is computed from and those that it writes, or as
    the slow functions in it; with the value in memory it reads that. XLA for GPUs weighs time like that in its pass
    `PriorityFusion`.
    """

    def __init__(self, equations: Sequence[Equation], fusion: Fusion, results: Set[Value]) -> None:
        self._equations = equations
        self._kernels: dict[Value, frozenset[int]] = {}
        self._code = _Code(fusion.code) if fusion.code else None
        self._sources = _sources(equations, fusion, results, self._code)
        self._work = _work(equations, self._sources, fusion.slow) if fusion.slow else {}

    def write(self, index: int) -> None:
        """It reads its operands itself."""
        self._read(index, frozenset((index,)))

    def fuse(self, index: int) -> None:
        """The kernels that read its results read its operands."""
        known = [self._kernels.get(value, frozenset[int]()) for value in self._equations[index].results]
        self._read(index, frozenset[int]().union(*known))

    def _read(self, index: int, by: frozenset[int]) -> None:
        for value in self._equations[index].operands:
            known = self._kernels.get(value, frozenset())
            if len(known) < _MANY:
                self._kernels[value] = known | by

    def is_in_memory(self, eqn: Equation) -> bool:
        """Whether that moves fewer bytes, or its code is too much."""
        result = eqn.results[0]
        if result in self._code.written if self._code else eqn.op.storage is Storage.FUSED_ONCE:
            return True
        own, work = sum(value.type.bytes for value in eqn.results), self._work.get(result, 0)
        read = sum(value.type.bytes for value in self._sources[result])
        others = [self._others(index, self._sources[result]) for index in self._kernels.get(result, ())]
        again = sum(max(work, read + more) for more in others)
        once = max(work, read + own) + sum(own + more for more in others)
        return again >= once

    def _others(self, index: int, sources: Set[Value]) -> int:
        """Bytes that a kernel moves besides: what it writes, unless that is few, and what else it reads."""
        eqn = self._equations[index]
        read = {source for value in eqn.operands for source in self._sources.get(value, (value,))} - sources
        written = () if isinstance(eqn.op, Reduction) else eqn.results
        return sum(value.type.bytes for value in (*read, *written))


def _work(equations: Sequence[Equation], sources: dict[Value, frozenset[Value]], slow: int) -> dict[Value, int]:
    """For each value the bytes that could be moved in the time of the slow functions between its sources and it."""
    found: dict[Value, int] = {}
    for eqn in equations:
        for value in eqn.results:
            if sources[value] != frozenset((value,)):
                own = slow * value.type.size if eqn.op.name in SLOW else 0
                found[value] = own + max([found.get(operand, 0) for operand in eqn.operands], default=0)
    return found


def _sources(
    equations: Sequence[Equation], fusion: Fusion, results: Set[Value], code: _Code | None
) -> dict[Value, frozenset[Value]]:
    """For each value what in memory it is computed from, as far as that is known before what several kernels read is.

    Of a value of too many, or of too much code, it is itself; and so it is of one that a gather picks: as many bytes
    are read, whatever from.
    """
    taken = set(results)
    for eqn in reversed(equations):
        if is_renamed(eqn) and eqn.results[0] in taken:
            taken.update(eqn.operands)
        elif _is_kernel(eqn, fusion):
            taken.update(_from_memory(eqn, fusion))
    found: dict[Value, frozenset[Value]] = {}
    for eqn in equations:
        is_written = _is_picked(eqn, fusion) or _is_kernel(eqn, fusion)
        own = frozenset[Value]().union(*[found.get(value, frozenset((value,))) for value in eqn.operands])
        is_source = is_written or (not taken.isdisjoint(eqn.results) and bool(eqn.operands)) or len(own) > _MANY
        if not is_source and code is not None:
            is_source = code.is_written(eqn)
        for value in eqn.results:
            found[value] = frozenset((value,)) if is_source else own
    return found


class _Code:
    """How many ops an element of a value takes from what is in memory.

    What elementwise ops read is computed at the same place, once; what a pad, a slice or a concatenation reads is
    computed anew, at another one.

    Attributes:
        written: the values that would take more than the limit.
    """

    def __init__(self, limit: int) -> None:
        self.written: set[Value] = set()
        self._limit = limit
        #: For each value the ops that are applied at the element's own place, along the longest way to it.
        self._here: dict[Value, int] = {}
        #: For each value those that read elsewhere and are reached from there; for each of these all that it takes.
        self._moving: dict[Value, frozenset[Value]] = {}
        self._elsewhere: dict[Value, int] = {}

    def is_written(self, eqn: Equation) -> bool:
        """Whether an equation's result takes too many; asked of equations in order, those whose results are fused."""
        result = eqn.results[0]
        if not eqn.operands:
            return False
        if eqn.op.is_elementwise or is_renamed(eqn):
            self._here[result] = 1 + max([self._here.get(value, 0) for value in eqn.operands], default=0)
            moving = [self._moving.get(value, frozenset[Value]()) for value in eqn.operands]
            self._moving[result] = frozenset[Value]().union(*moving)
        else:
            self._elsewhere[result] = 1 + sum(self._of(value) for value in eqn.operands)
            self._moving[result] = frozenset((result,))
        if self._of(result) <= self._limit:
            return False
        self.written.add(result)
        self._here[result] = 0
        self._moving[result] = frozenset()
        return True

    def _of(self, value: Value) -> int:
        return self._here.get(value, 0) + sum(self._elsewhere[other] for other in self._moving.get(value, ()))


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
