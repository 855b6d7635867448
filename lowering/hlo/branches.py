"""Conditionals of an HLO module: their branches, and those whose branch is known."""

from __future__ import annotations

import re

from rematc.lowering.hlo.module import Computation, HloModule, Instruction, called_computations

_HANDS_ON = ("copy", "bitcast", "reshape", "convert")
_COMMENT = re.compile(r"/\*.*?\*/")
_ODD = re.compile(r"[({\s]*(-?\d*[13579])[)}\s]*$")


def branch_names(conditional: Instruction) -> tuple[str, ...]:
    """The computations of a conditional's branches, in order of their index."""
    called = called_computations(conditional)
    names = called.get("branch_computations", ())
    return names or (*called.get("true_computation", ()), *called.get("false_computation", ()))


def known_branch(conditional: Instruction, around: Computation, module: HloModule) -> int | None:
    """The index of the branch that is taken whatever the arguments are: the second of two, of an odd index.

    So the strategy `conditional` of the pass `barriers` keeps what it recomputes: XLA does not know that a number that
    was or'ed with an odd one is never 0. None where the branch depends on the index.
    """
    if len(called_computations(conditional).get("branch_computations", ())) != 2 or not conditional.operands:
        return None
    computation: Computation | None = around
    index = around.instructions.get(conditional.operands[0])
    for _ in range(16):
        if index is None or computation is None:
            return None
        if index.opcode == "fusion":
            computation = module.computations.get(*called_computations(index).get("calls", ("",)))
            index = None if computation is None else computation.root
        elif index.opcode in _HANDS_ON and index.operands:
            index = computation.instructions.get(index.operands[0])
        else:
            break
    if index is None or computation is None or index.opcode != "or":
        return None
    operands = [_through(computation.instructions.get(name), computation) for name in index.operands]
    is_odd = any(one is not None and one.opcode == "constant" and _is_odd(one.literal) for one in operands)
    return 1 if is_odd else None


def _is_odd(literal: str) -> bool:
    return _ODD.match(_COMMENT.sub("", literal)) is not None


def _through(instruction: Instruction | None, computation: Computation) -> Instruction | None:
    """The instruction that this one hands on, or broadcasts."""
    for _ in range(16):
        if instruction is None or instruction.opcode not in (*_HANDS_ON, "broadcast") or not instruction.operands:
            return instruction
        instruction = computation.instructions.get(instruction.operands[0])
    return None
