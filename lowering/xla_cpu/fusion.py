"""Analysis: which instructions XLA on the CPU writes to memory, and which are parts of the kernels that read them.

Before:  %0 = negate %x   %1 = exponential %0   %2 = add %1, %1   %3 = reduce_sum %2   %4 = multiply %1, %3
After:   written: exponential (two kernels read it, which costs time twice), reduce_sum (with add before it), multiply

First reductions, of windows that touch each other as well: a library evaluates each with the elementwise work that only
it needs, matrix products among it, and that follows as long as there is one reader (XLA's `LibraryRewriter` with
YNNPACK); since jaxlib 0.12 what is only repeated at the end stays out. Then the rest, from the last instruction to the
first, as XLA's `CpuInstructionFusion` does it: an instruction becomes a part of every kernel that reads it and can hold
it, and is written if there are others, unless it

- takes long and several kernels would evaluate it, or one kernel once for each place an element is repeated to;
- is a concatenation or a padded array, and a kernel reads it by two ways, or copies of one user in several kernels do;
- reads more than it writes, and not all its readers can hold it: to evaluate it twice would read more;
- would stand in a kernel too often.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Set
from itertools import count

from rematc.lowering.xla_cpu.instructions import Instruction, Kind, Program
from rematc.passes.kernels import LIBRARY_DTYPES, LIBRARY_ELEMENTS

_LIBRARY_OPS = frozenset(
    (
        *("abs", "add", "ceil", "convert", "cosine", "divide", "erf", "exponential", "exponential_minus_one", "floor"),
        *("integer_power", "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "power"),
        *("round_nearest_even", "rsqrt", "sign", "sine", "sqrt", "subtract", "tan", "tanh"),
    )
)
#: Of these what it evaluates since jaxlib 0.12 (`Target.library_has_trigonometry`).
_TRIGONOMETRY = frozenset(("cosine", "sine", "tan"))
_LIBRARY_MOVES = frozenset(("broadcast_in_dim", "iota", "pad", "transpose"))
#: How often XLA has the code of one instruction in a kernel at most.
_MOST_CODE = 15
#: How many instructions are searched for a way between two readers of a value.
_SEARCHED = 64


def fuse(program: Program) -> None:
    """Decide for each instruction whether it is written, and which kernels evaluate it."""
    _fuse_reductions(program)
    for instruction in reversed(program.instructions):
        _decide(instruction)
        for user in instruction.users:
            if user.kind is Kind.BITCAST and user.is_written and user.group is None and not instruction.is_fused:
                user.buffer = instruction


def takes(user: Instruction) -> bool:
    """Whether the kernel of an instruction can evaluate what it reads."""
    return user.group is None and user.kind in (Kind.LOOP, Kind.BITCAST)


# -- reductions --------------------------------------------------------------------------------------------------------


def _fuse_reductions(program: Program) -> None:
    ops = _LIBRARY_OPS if program.target.library_has_trigonometry else _LIBRARY_OPS - _TRIGONOMETRY
    for start in reversed(program.instructions):
        if start.kind is Kind.REDUCTION and start.group is None:
            start.group = start
            start.root = start
            if _is_evaluated(start):
                chain = _grown(start, ops)
                start.root = chain[-1] if program.target.library_repeats else _before_repeats(chain)


def _grown(start: Instruction, ops: Set[str]) -> list[Instruction]:
    """Add to a reduction's group what is evaluated with it; from it to what the group gives, each read by the next."""
    chain, added = [start], [start]
    inside: Counter[Instruction] = Counter()
    while True:
        while added:
            for operand in dict.fromkeys(added.pop().operands):
                inside[operand] += 1
                is_only_here = operand.group is None and inside[operand] == len(operand.users)
                if is_only_here and (operand.is_joined or _is_supported(operand, ops)):
                    operand.group = start
                    added.append(operand)
        users = chain[-1].users
        if len(users) != 1 or users[0].group is not None or not _is_supported(users[0], ops):
            return chain
        users[0].group = start
        chain.append(users[0])
        added.append(users[0])


def _before_repeats(chain: list[Instruction]) -> Instruction:
    """The last of a chain before what only repeats it, which leaves the group."""
    while True:
        end = next(place for place in reversed(range(len(chain))) if chain[place].kind is not Kind.BITCAST)
        if chain[end].name != "broadcast_in_dim":
            return chain[-1]
        for one in chain[end:]:
            one.group = None
        del chain[end:]


def _is_supported(instruction: Instruction, ops: Set[str]) -> bool:
    if instruction.kind is Kind.BITCAST or instruction.name == "constant":
        return True
    if instruction.kind is Kind.REDUCTION:
        return _is_evaluated(instruction)
    if instruction.kind is not Kind.LOOP:
        return False
    if any(one.type.dtype not in LIBRARY_DTYPES for one in (instruction, *instruction.operands)):
        return False
    return instruction.name in _LIBRARY_MOVES or (instruction.name in ops and _is_large(instruction))


def _is_evaluated(reduction: Instruction) -> bool:
    """Whether the library evaluates a reduction."""
    return reduction.type.dtype in LIBRARY_DTYPES and _is_large(reduction)


def _is_large(instruction: Instruction) -> bool:
    return max(instruction.elements, *(operand.elements for operand in instruction.operands)) >= LIBRARY_ELEMENTS


# -- loops -------------------------------------------------------------------------------------------------------------


def _decide(instruction: Instruction) -> None:
    """Whether an instruction is a part of the kernels of its users, for all of which this is decided."""
    instruction.kernel = instruction
    if instruction.group is not None:
        root = instruction.kernel = instruction.group.root
        instruction.is_written = instruction is root
        instruction.is_fused = not instruction.is_written
        within = (user for user in instruction.users if user.group is instruction.group)
        instruction.is_direct = instruction.is_elementwise and all(user is root or user.is_direct for user in within)
        return
    if instruction.kind not in (Kind.LOOP, Kind.BITCAST):
        instruction.is_written = instruction.kind is not Kind.SOURCE
        instruction.is_fused = instruction.name == "constant"
        return
    instruction.is_written = True
    holders = [user for user in instruction.users if takes(user)]
    is_needed_elsewhere = len(holders) < len(instruction.users)
    if not holders or not _is_worth_fusing(instruction, holders, is_needed_elsewhere):
        return
    kernels = {user.kernel for user in holders}
    instruction.is_fused = True
    instruction.is_written = is_needed_elsewhere
    instruction.kernel = kernels.pop() if len(kernels) == 1 and not is_needed_elsewhere else None
    instruction.is_direct = instruction.is_elementwise and all(
        user is user.kernel or user.is_direct for user in holders
    )


def _is_worth_fusing(instruction: Instruction, holders: list[Instruction], is_needed_elsewhere: bool) -> bool:
    instruction.is_reread = any(user.name == "broadcast_in_dim" or user.is_reread for user in holders)
    if instruction.is_expensive:
        kernels = {user.kernel for user in holders}
        if is_needed_elsewhere or instruction.is_reread or len(kernels) > 1 or None in kernels:
            return False
    if instruction.is_read_once and not _are_read_once(holders):
        return False
    if _reads_more(instruction) and not _is_held_on_all_ways(instruction):
        instruction.is_kept_whole = True
        return False
    # Code is shared between users with the same indices.
    aligned = [user.emitted for user in holders if user.elements == instruction.elements]
    others = [user.emitted for user in holders if user.elements != instruction.elements]
    instruction.emitted = max(aligned, default=0) + sum(others)
    return instruction.emitted <= _MOST_CODE or instruction.name == "broadcast_in_dim"


def _are_read_once(holders: list[Instruction]) -> bool:
    """Whether each is in a kernel of its own, by one way to what that kernel gives."""
    kernels = [user.kernel for user in holders]
    return None not in kernels and len({*kernels}) == len(kernels) and all(user.emitted == 1 for user in holders)


def _reads_more(instruction: Instruction) -> bool:
    """Whether more than one operand is as large as the result, and all together are larger."""
    if instruction.kind is Kind.BITCAST or len(instruction.operands) < 2:
        return False
    rank = _true_rank(instruction)
    large = [
        operand
        for operand in instruction.operands
        if operand.name not in ("broadcast_in_dim", "iota")
        and not (operand.name == "constant" and operand.elements == 1)
        and _true_rank(operand) >= rank
    ]
    read = sum(operand.elements for operand in dict.fromkeys(instruction.operands))
    return len(large) > 1 and read > instruction.elements


def _true_rank(instruction: Instruction) -> int:
    return sum(size > 1 for size in instruction.type.shape)


def _is_held_on_all_ways(instruction: Instruction) -> bool:
    """Whether all between an instruction and its users can be in one kernel with both.

    Searched back from the users, and, where that takes long, in program order up to the last user; a user that is far
    from the first one both ways is as good as out of reach.
    """
    if any(_is_cut(instruction, user) for user in instruction.users):
        return False
    found = _is_held_back(instruction)
    return _is_held_forth(instruction) if found is None else found


def _is_held_back(instruction: Instruction) -> bool | None:
    """The same by the operands of the users, what comes before the instruction left out; None where it takes long."""
    users = set(instruction.users)
    ways = [(user, False) for user in instruction.users]
    seen: dict[Instruction, bool] = {}
    while ways:
        reached, is_cut = ways.pop()
        if is_cut and reached in users:
            return False
        if seen.get(reached, False) or (reached in seen and not is_cut):
            continue
        seen[reached] = is_cut
        if len(seen) > _SEARCHED:
            return None
        for operand in reached.operands:
            if operand.index > instruction.index and operand.kind is not Kind.SOURCE:
                ways.append((operand, is_cut or _is_cut(operand, reached)))
    return True


def _is_held_forth(instruction: Instruction) -> bool:
    targets = set(instruction.users)
    last = max(user.index for user in targets)
    number = count()
    ways = [(user.index, next(number), user, False) for user in targets]
    heapq.heapify(ways)
    seen: dict[Instruction, bool] = {}
    while ways and len(targets) > 1:
        index, _, reached, is_cut = heapq.heappop(ways)
        if is_cut and reached in targets:
            return False
        if seen.get(reached, False) or (reached in seen and not is_cut):
            continue
        seen[reached] = is_cut
        if len(seen) > _SEARCHED:
            return False
        for user in reached.users:
            if index < user.index <= last:
                heapq.heappush(ways, (user.index, next(number), user, is_cut or _is_cut(reached, user)))
    return True


def _is_cut(instruction: Instruction, user: Instruction) -> bool:
    if not (takes(instruction) and takes(user)) or instruction.is_kept_whole:
        return True
    return instruction.is_expensive and (len(instruction.users) > 1 or user.name == "broadcast_in_dim")
