"""What the instructions of a module come from: the phase, the stage, the user's function and the value.

They are read from the names that `rematc.lowering.labels` gives, as XLA hands them on: behind those of the functions
around them, and where it makes one instruction of several, beside each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rematc.ir.locations import Location
from rematc.lowering.hlo.module import (
    Computation,
    HloModule,
    Instruction,
    called_computations,
    op_name,
    provenance,
    source_line,
)
from rematc.lowering.labels import UNKNOWN
from rematc.passes.memory_timeline import BACKWARD, FORWARD, RECOMPUTED

_EQUATION = r"[a-z][a-z0-9_]*_\d+"
_LABEL = re.compile(
    rf"(?:^|/)(forward|recompute(?:/\d+)?|backward)/([^/]+)/((?:\w+\(\)/)?(?:{_EQUATION}/)*{_EQUATION})(?:#(\d+))?(?=/|$)"
)
#: The number that the writer gives a product (`rematc.lowering.writer.Writer.product`).
_NUMBERED = re.compile(r"#\d+$")
#: The name of what stands for a whole program, where XLA has nothing closer.
_CALL = "rematc_call"
_PHASES = {"forward": FORWARD, "recompute": RECOMPUTED, "backward": BACKWARD}
#: What gives a value another name or shape: what comes before it is the same value.
_SAME = ("bitcast", "copy", "get-tuple-element", "transpose", "reshape", "convert")


@dataclass(frozen=True, slots=True)
class Origin:
    """What an instruction comes from.

    Attributes:
        phase: `FORWARD`, `RECOMPUTED` or `BACKWARD`.
        stage: the stage of the backward pass that it recomputes for; 0 where there is none, or more than one.
        function: the user's function; "" where it is not known.
        equation: the equation, as `tanh_3`, which defines `%3` in the text of the graph after the passes, behind those
            that it stands in: `scan_9/tanh_3`.
        product: the number of the matrix product or convolution; 0 of what is none.
    """

    phase: str
    stage: int
    function: str
    equation: str
    product: int

    @property
    def value(self) -> str:
        """The value that the equation defines: `%9/%3`."""
        return "/".join(
            [part if part.endswith("()") else f"%{part.rpartition('_')[2]}" for part in self.equation.split("/")]
        )

    @property
    def part(self) -> str:
        """The phase with its stage, as in names: `recompute/2`."""
        name = "recompute" if self.phase == RECOMPUTED else self.phase
        return f"{name}/{self.stage}" if self.stage else name


def origin_in(name: str) -> Origin | None:
    """The origin that an `op_name` says; of several that XLA made one of, the first. None where it says none.

    In loops of JAX's a label stands inside of the loop's: the innermost one holds.
    """
    found = list(_LABEL.finditer(name.partition(";")[0]))
    if not found:
        return None
    part, function, equation, product = found[-1].groups()
    phase, _, stage = part.partition("/")
    known = "" if function == UNKNOWN else function
    return Origin(_PHASES[phase], int(stage or 0), known, equation, int(product or 0))


def location_of(instruction: Instruction, module: HloModule) -> Location | None:
    """The user's line, with the function where it is known; None where the module does not say."""
    line, origin = source_line(instruction, module), origin_in(op_name(instruction))
    function = _NUMBERED.sub("", provenance(instruction)) if origin is None else origin.function
    function = "" if function == _CALL else function
    return None if line is None else Location(line.file, line.line, 0, function)


def origins_of(module: HloModule) -> dict[str, Origin]:
    """The origins of instructions by their names, which are unique in a module; of as many as are known."""
    found = {name: origin_in(op_name(instruction)) for name, instruction in sources_of(module).items()}
    return {name: origin for name, origin in found.items() if origin is not None}


def sources_of(module: HloModule) -> dict[str, Instruction]:
    """For instructions by their names the one that says what they come from: itself, where it says so.

    XLA gives some instructions that it makes no name. These are as what only names their value in another way, else as
    the computation that they call, else as an operand.
    """
    found: dict[str, Instruction] = {}
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if source_line(instruction, module) is not None or origin_in(op_name(instruction)) is not None:
                found[instruction.name] = instruction
    for computation in module.computations.values():
        _add_unnamed(computation, module, found)
    return found


def _add_unnamed(computation: Computation, module: HloModule, found: dict[str, Instruction]) -> None:
    for instruction in reversed(list(computation.instructions.values())):
        if instruction.opcode in _SAME and instruction.name in found and instruction.operands:
            found.setdefault(instruction.operands[0], found[instruction.name])
    for instruction in computation.instructions.values():
        if instruction.name in found or instruction.opcode in ("parameter", "constant"):
            continue
        source = _of_called(instruction, module, found) or _of_operands(instruction, found)
        if source is not None:
            found[instruction.name] = source


def _of_called(instruction: Instruction, module: HloModule, found: Mapping[str, Instruction]) -> Instruction | None:
    for names in called_computations(instruction).values():
        for name in names:
            computation = module.computations.get(name)
            if computation is not None and computation.root is not None and computation.root.name in found:
                return found[computation.root.name]
    return None


def _of_operands(instruction: Instruction, found: Mapping[str, Instruction]) -> Instruction | None:
    return next((found[operand] for operand in reversed(instruction.operands) if operand in found), None)
