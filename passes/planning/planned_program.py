"""A program as plans hold it: its kernels, each with a digest of what it computes, and the problem that they are.

A kernel is addressed by its place and its digest: a plan can be read from a file and applied without solving again, and
a program that has changed is noticed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.ir.errors import CompileError
from rematc.ir.registry import OPS
from rematc.passes.planning.problem import Problem, Stages, problem_of

#: How many kernels an error names.
NAMED = 3


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value that a kernel writes to memory.

    Attributes:
        type: element type and shape, as text.
        size: bytes that it takes while it is live; 0 for results of the program and what is in the host's memory.
        replaces: the value whose memory it takes where nothing reads that one any more; -1 for none.
        is_result: whether it is live until the end.
        origin: what of a loop's step it is, as `output of tanh from model.py:5, 4 steps`; "" where it is of no loop.
    """

    type: str
    size: int
    replaces: int = -1
    is_result: bool = False
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What runs as one, once or several times.

    Attributes:
        op: what it computes, without what is fused into it.
        digest: a hash of its ops with their attributes, the types, and the places of the kernels that it reads from.
        names: those that `checkpoint_name` gave to what it writes.
        where: file and line in the user's code; "" where they are not known.
        fused: names and lines of what is computed as a part of it.
        time: nanoseconds that it takes.
        flops: its floating-point operations.
        workspace: bytes that it takes only while it runs.
        is_repeatable: whether it may run again.
        reads: the values that it reads from memory, by their place among all.
        writes: those that it writes; the values of all kernels in order are the program's.
        inside: how many products its regions run, in all steps of loops.
    """

    op: str
    digest: str
    names: tuple[str, ...]
    where: str
    fused: tuple[str, ...]
    time: int
    flops: int
    workspace: int
    is_repeatable: bool
    reads: tuple[int, ...]
    writes: tuple[StoredValue, ...]
    inside: int = 0

    @property
    def type(self) -> str:
        """The types of what it writes."""
        return ", ".join(value.type for value in self.writes)

    @property
    def size(self) -> int:
        """Bytes of what it writes."""
        return sum(value.size for value in self.writes)

    @property
    def is_product(self) -> bool:
        """Whether it is a product of matrices, or a convolution."""
        return self.op in OPS and OPS[self.op].is_product

    def __str__(self) -> str:
        described = f"{' '.join(self.names) or self.op}, {self.type or 'no value'}"
        return f"{described}, at {self.where}" if self.where else described


@dataclass(frozen=True)
class PlannedProgram:
    """A program that is planned, without its equations.

    Attributes:
        kernels: in the order in which they run.
    """

    kernels: tuple[Kernel, ...]

    @functools.cached_property
    def values(self) -> tuple[StoredValue, ...]:
        """What the kernels write, in order."""
        return tuple(value for kernel in self.kernels for value in kernel.writes)

    @functools.cached_property
    def producers(self) -> tuple[int, ...]:
        """For each value the place of the kernel that writes it."""
        return tuple(place for place, kernel in enumerate(self.kernels) for _ in kernel.writes)

    @functools.cached_property
    def problem(self) -> Problem:
        """What is planned."""
        return problem_of(
            cost=[kernel.time for kernel in self.kernels],
            reads=[kernel.reads for kernel in self.kernels],
            size=[value.size for value in self.values],
            producer=self.producers,
            results=[place for place, value in enumerate(self.values) if value.is_result],
            workspace=[kernel.workspace for kernel in self.kernels],
            is_repeatable=[kernel.is_repeatable for kernel in self.kernels],
            replaces=[value.replaces for value in self.values],
        )

    @property
    def products(self) -> int:
        """How many products all kernels run."""
        return sum(kernel.is_product + kernel.inside for kernel in self.kernels)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of what all kernels compute."""
        return digest_of([kernel.digest for kernel in self.kernels])

    def label(self, place: int) -> str:
        """What texts call a kernel: its name or op, and its place."""
        kernel = self.kernels[place]
        return f"{kernel.names[0] if kernel.names else kernel.op}.{place}"

    def check_same(self, planned: PlannedProgram) -> None:
        """Raise CompileError unless a plan that was made for that program is one for this program."""
        pairs = list(zip(planned.kernels, self.kernels, strict=False))
        changed = [place for place, (old, new) in enumerate(pairs) if old.digest != new.digest]
        counts = len(planned.kernels), len(self.kernels)
        if not changed and counts[0] == counts[1]:
            return
        lines = [f"  kernel {place}: {pairs[place][0]}; now {pairs[place][1]}" for place in changed[:NAMED]]
        if len(changed) > NAMED:
            lines.append(f"  and {len(changed) - NAMED} others")
        if not changed:
            added = counts[1] > counts[0]
            lines = [f"  kernel {len(pairs)}: {(self if added else planned).kernels[len(pairs)]}"]
            lines[0] += "; was not there" if added else "; is no longer there"
        raise CompileError(
            f"the plan was made for another program, of {counts[0]} kernels; this one has {counts[1]}. Make a new "
            "plan, with a budget. What does not match first:\n" + "\n".join(lines)
        )

    def check_stages(self, stages: Stages) -> None:
        """Raise CompileError for stages that this program cannot run in."""
        is_repeatable = [kernel.is_repeatable for kernel in self.kernels]
        check_stages(stages, is_repeatable, lambda place: str(self.kernels[place]))


def check_stages(stages: Stages, is_repeatable: Sequence[bool], name: Callable[[int], str]) -> None:
    """Raise CompileError, which calls kernels by name, for stages that a program of such kernels cannot run in."""
    count, last = len(is_repeatable), 0
    for begin, again in zip(stages.begins, stages.again, strict=True):
        if not last < begin < count:
            raise CompileError(f"the plan has a stage that begins at kernel {begin}, after {last}, of {count}")
        last = begin
        for place in again:
            if not 0 <= place < begin:
                raise CompileError(f"the plan runs kernel {place} again at kernel {begin}, before it has run")
            if not is_repeatable[place]:
                raise CompileError(f"the plan runs {name(place)}, again, which must not be repeated")
        if tuple(sorted(set(again))) != again:
            raise CompileError(f"the plan runs kernels again at kernel {begin} in another order than the program's")


def described(op: str, names: Sequence[str]) -> str:
    """What reports call a value."""
    return f"named {' and '.join(map(repr, names))}" if names else f"output of {op}"


def digest_of(texts: Sequence[str]) -> str:
    """A hash of texts, of 12 hexadecimal digits."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "backslashreplace")
        digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()[:12]
