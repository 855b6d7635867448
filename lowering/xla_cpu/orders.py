"""Analysis: the two schedulers that XLA on the CPU has.

Before:  kernels a(x), b(x), c(b), d(a, c) and what they read
After:   breadth first a, b, c, d: each in turn makes those ready whose last operand it is, first come, first served;
         depth first b, c, a, d: the operands of d in turn, each after all that it needs

Breadth first is the usual one (`BFScheduler`): XLA does not wait with what is ready, so that kernels run at the same
time. From jaxlib 0.12 on barriers are gone by then: what read their results comes after all that they read, without a
turn between. Depth first (`DFSMemoryScheduler`) computes things when they are needed, those first that lead back to the
most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.lowering.xla_cpu.instructions import Instruction, Kind, postorder


@dataclass(frozen=True, slots=True)
class Kernels:
    """What there is to order.

    Attributes:
        kernels: kernels, each by the instruction whose result it writes, and what needs none, in program order; the
            last one reads the results.
        operands: what each reads from memory.
        readers: the kernels that read what each writes.
        replaceable: for each kernel what it reads only where it writes: it may write its result over that.
        is_body: whether this is a loop's body, which takes its parameters from one tuple.
        keeps_barriers: whether barriers are still there, and take turns of their own.
    """

    kernels: Sequence[Instruction]
    operands: dict[Instruction, list[Instruction]]
    readers: dict[Instruction, list[Instruction]]
    replaceable: dict[Instruction, list[Instruction]]
    is_body: bool
    keeps_barriers: bool


Scheduler = Callable[[Kernels], "list[Instruction]"]


def breadth_first(given: Kernels) -> list[Instruction]:
    """The order in which kernels become ready."""
    order: list[Instruction] = []
    passed = () if given.keeps_barriers else ("barrier", "after")
    waiting = {kernel: len(given.operands[kernel]) for kernel in given.kernels}
    ready = deque(kernel for kernel in given.kernels if not waiting[kernel])
    while ready:
        kernel = ready.popleft()
        order.append(kernel)
        let_through: list[Instruction] = []
        for reader in given.readers[kernel]:
            waiting[reader] -= 1
            if not waiting[reader]:
                (let_through if reader.name in passed else ready).append(reader)
        ready.extendleft(reversed(let_through))
    return order


def depth_first(given: Kernels) -> list[Instruction]:
    """Operands before what reads them, of the operands of a kernel those first that lead back to the most.

    That is the number of readers beyond one of all kernels on the way, then the bytes that these write. A kernel that
    several ways lead to counts for each, but no sum is larger than the number of all kernels, and than the bytes of
    all that come before in a walk over the operands from first to last.
    """
    # First what nothing reads, then what leads to the end, which is the last kernel.
    roots = [kernel for kernel in given.kernels if not given.readers[kernel]]
    walked = postorder(roots, given.operands.__getitem__)
    readers_beyond: dict[Instruction, int] = {}
    written: dict[Instruction, int] = {}
    total = 0
    for kernel in walked:
        is_ignored = kernel.name == "parameter" and not given.is_body
        size = 0 if kernel.kind is Kind.SOURCE or kernel.buffer is not None else kernel.size
        total += size
        own = 0 if is_ignored else max(len(given.readers[kernel]) - 1, 0)
        operands = given.operands[kernel]
        readers_beyond[kernel] = min(own + sum(readers_beyond[operand] for operand in operands), len(walked))
        written[kernel] = min(size + sum(written[operand] for operand in operands), total)
    chosen = {
        kernel: sorted(operands, key=lambda operand: (-readers_beyond[operand], -written[operand]))
        for kernel, operands in given.operands.items()
    }
    return postorder(roots, chosen.__getitem__)
