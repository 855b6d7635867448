"""How often a while loop of an HLO module runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rematc.lowering.hlo.module import Computation, HloModule, Instruction, called_computations

_KNOWN = re.compile(r'"known_trip_count":\{"n":"?(\d+)"?\}')
_INDEX = re.compile(r"\bindex=(\d+)")
_DIRECTION = re.compile(r"\bdirection=(\w+)")
_INTEGER = re.compile(r"-?\d+$")
#: Instructions that hand their operand on.
_TRANSPARENT = ("copy", "bitcast", "convert", "reshape", "optimization-barrier", "opt-barrier")


@dataclass(frozen=True, slots=True)
class _Linear:
    """An integer: a constant, or an entry of the loop's state plus one.

    Attributes:
        entry: the state's entry; None for a constant.
        offset: the constant, or what is added.
    """

    entry: int | None
    offset: int


def trip_count(loop: Instruction, around: Computation, module: HloModule) -> int | None:
    """How often a while loop's body runs: as XLA notes it, or from a condition that compares a counter; else None."""
    if known := _KNOWN.search(loop.attributes):
        return int(known[1])
    called = called_computations(loop)
    condition = module.computations.get(*called.get("condition", ("",)))
    body = module.computations.get(*called.get("body", ("",)))
    if condition is None or body is None or condition.root is None or not loop.operands:
        return None
    compared = _comparison(condition, module)
    if compared is None:
        return None
    direction, counter, bound = compared
    if direction == "GT":
        direction, counter, bound = "LT", bound, counter
    start = _initial(counter, loop, around)
    end = _initial(bound, loop, around)
    if direction != "LT" or counter.entry is None or start is None or end is None:
        return None
    step = _next(counter.entry, body, module)
    if step is None or step.entry != counter.entry or step.offset <= 0:
        return None
    if bound.entry is not None and _next(bound.entry, body, module) != _Linear(bound.entry, 0):
        return None
    return max(-(-(end - start) // step.offset), 0)


def stride(entry: int, body: Computation, module: HloModule) -> int | None:
    """What a step adds to an entry of the loop's state; None where that is no constant."""
    after = _next(entry, body, module)
    return None if after is None or after.entry != entry else after.offset


def _comparison(condition: Computation, module: HloModule) -> tuple[str, _Linear, _Linear] | None:
    """Direction and both sides of the condition's root, looked for in fusions and calls."""
    scope = _Scope(condition, module, None)
    root = condition.root
    while root is not None and root.opcode in ("fusion", "call"):
        entered = scope.enter(root)
        if entered is None:
            return None
        scope = entered
        root = scope.computation.root
    if root is None or root.opcode != "compare" or len(root.operands) != 2:
        return None
    direction = _DIRECTION.search(root.attributes)
    left, right = (scope.linear(name) for name in root.operands)
    if direction is None or left is None or right is None:
        return None
    return direction[1], left, right


def _initial(value: _Linear, loop: Instruction, around: Computation) -> int | None:
    """The value when the loop begins."""
    if value.entry is None:
        return value.offset
    state = _through(around.instructions.get(loop.operands[0]), around)
    if state is None or state.opcode != "tuple" or value.entry >= len(state.operands):
        return None
    constant = _through(around.instructions.get(state.operands[value.entry]), around)
    if constant is None or constant.opcode != "constant" or not _INTEGER.match(constant.literal):
        return None
    return int(constant.literal) + value.offset


def _through(instruction: Instruction | None, computation: Computation) -> Instruction | None:
    """The instruction that this one hands on."""
    for _ in range(64):
        if instruction is None or instruction.opcode not in _TRANSPARENT or not instruction.operands:
            return instruction
        instruction = computation.instructions.get(instruction.operands[0])
    return None


def _next(entry: int, body: Computation, module: HloModule) -> _Linear | None:
    """An entry of the state after a step, in terms of the state before it."""
    root = body.root
    if root is None or root.opcode != "tuple" or entry >= len(root.operands):
        return None
    return _Scope(body, module, None).linear(root.operands[entry])


class _Scope:
    """A computation whose parameter is a loop's state, or one that such a computation calls."""

    def __init__(self, computation: Computation, module: HloModule, arguments: list[_Linear | None] | None) -> None:
        self.computation = computation
        self.module = module
        self.arguments = arguments

    def enter(self, call: Instruction) -> _Scope | None:
        """The computation of a fusion or a call, its parameters as the operands have them."""
        called = called_computations(call)
        names = called.get("calls") or called.get("to_apply") or ("",)
        computation = self.module.computations.get(names[0])
        if computation is None:
            return None
        return _Scope(computation, self.module, [self.linear(name) for name in call.operands])

    def linear(self, name: str, depth: int = 0) -> _Linear | None:
        """An instruction's value as a `_Linear`; None where it is something else."""
        instruction = self.computation.instructions.get(name)
        if instruction is None or depth > 12:
            return None
        match instruction.opcode:
            case "constant" if _INTEGER.match(instruction.literal):
                return _Linear(None, int(instruction.literal))
            case "parameter" if self.arguments is not None and instruction.literal.isdigit():
                index = int(instruction.literal)
                return self.arguments[index] if index < len(self.arguments) else None
            case "get-tuple-element" if self.arguments is None:
                source = self.computation.instructions.get(instruction.operands[0]) if instruction.operands else None
                index_of = _INDEX.search(instruction.attributes)
                is_state = source is not None and source.opcode == "parameter"
                return _Linear(int(index_of[1]), 0) if is_state and index_of else None
            case "add" if len(instruction.operands) == 2:
                left, right = (self.linear(operand, depth + 1) for operand in instruction.operands)
                if left is None or right is None or (left.entry is not None and right.entry is not None):
                    return None
                entry = left.entry if left.entry is not None else right.entry
                return _Linear(entry, left.offset + right.offset)
            case opcode if opcode in _TRANSPARENT and instruction.operands:
                return self.linear(instruction.operands[0], depth + 1)
            case "fusion" | "call":
                entered = self.enter(instruction) if depth < 8 else None
                root = None if entered is None else entered.computation.root
                return None if entered is None or root is None else entered.linear(root.name, depth + 1)
        return None
