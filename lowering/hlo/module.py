"""HLO modules as XLA prints them, read into data.

What is read is what analyses need: computations, instructions with their shapes, opcodes, operands and attributes, and
the tables of source lines. Of a line that is written in a way unknown here only the count is kept, so that a new
version of XLA makes a reading incomplete, never wrong without notice.

Reference: https://openxla.org/xla/hlo_dump, and the text of modules that jaxlib 0.10 and 0.12 print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: What stands for parts of a shape: `f32[4,8]{1,0}`, `pred[]`, `(f32[2], s32[])`.
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\]")
_COMMENT = re.compile(r"/\*.*?\*/")
_DIMENSION = re.compile(r"<=|\s|\?")


@dataclass(frozen=True, slots=True)
class Shape:
    """An array's element type and sizes; a tuple's are those of its first array.

    Attributes:
        dtype: element type as XLA names it, "" for what is no array.
        sizes: of the dimensions.
    """

    dtype: str
    sizes: tuple[int, ...]

    @staticmethod
    def of(text: str) -> Shape:
        """The shape that this text spells. A dynamic dimension counts with its bound."""
        found = _ARRAY.search(text)
        if found is None:
            return Shape("", ())
        sizes = [_DIMENSION.sub("", size) for size in found[2].split(",")]
        return Shape(found[1], tuple([int(size) for size in sizes if size.isdigit()]))

    @staticmethod
    def part(text: str, index: Sequence[int]) -> str:
        """The text of a part of a tuple's shape; the tuple's own where there is no such part."""
        for at in index:
            inside = _COMMENT.sub("", text.strip()).removeprefix("(").removesuffix(")")
            parts = _split(inside)
            if not text.strip().startswith("(") or at >= len(parts):
                return text
            text = parts[at]
        return text

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


def _split(text: str) -> list[str]:
    """What commas separate that stand in no brackets."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One line of a computation.

    Attributes:
        name: its name in the module.
        shape: its shape's text.
        opcode: `dot`, `fusion`, `while`, ...
        operands: names of instructions of the same computation.
        literal: what stands in the parentheses.
        attributes: what follows them, without the comma.
        is_root: whether the computation returns it.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    literal: str
    attributes: str
    is_root: bool


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """A function of the module.

    Attributes:
        name: its name.
        instructions: by name, in the order in which they are printed: of a scheduled module that of execution.
        root: the instruction that it returns; None where it was not read.
    """

    name: str
    instructions: Mapping[str, Instruction]
    root: Instruction | None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, eq=False)
class HloModule:
    """A module.

    Attributes:
        name: its name.
        computations: by name.
        entry: the name of the one that runs; None where none was found.
        frames: the innermost source line of each stack frame that instructions name.
        unread: how many lines were written in a way unknown here.
    """

    name: str
    computations: Mapping[str, Computation]
    entry: str | None
    frames: Mapping[int, SourceLine]
    unread: int


_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_CALLED_LISTS = re.compile(r"\b(calls|branch_computations|called_computations)=\{([^{}]*)\}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def called_computations(instruction: Instruction) -> dict[str, tuple[str, ...]]:
    """The computations that an instruction names, by the attribute that names them."""
    if "=" not in instruction.attributes:
        return {}
    attributes = _STRING.sub('""', instruction.attributes)
    found: dict[str, tuple[str, ...]] = {attribute: (name,) for attribute, name in _CALLED.findall(attributes)}
    for attribute, names in _CALLED_LISTS.findall(attributes):
        found[attribute] = tuple([name.strip().lstrip("%") for name in names.split(",") if name.strip()])
    return found


_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"\bstack_frame_id=(\d+)")
_SOURCE = re.compile(r'\bsource_file="((?:[^"\\]|\\.)*)" source_line=(\d+)')


def source_line(instruction: Instruction, module: HloModule) -> SourceLine | None:
    """The user's line that an instruction comes from, if the module says."""
    if found := _FRAME.search(instruction.attributes):
        return module.frames.get(int(found[1]))
    if found := _SOURCE.search(instruction.attributes):
        return SourceLine(found[1], int(found[2]))
    return None


def op_name(instruction: Instruction) -> str:
    """What XLA says of the operations that an instruction comes from, "" where it says nothing."""
    found = _OP_NAME.search(instruction.attributes)
    return "" if found is None else found[1]


def provenance(instruction: Instruction) -> str:
    """The name of the operation that an instruction comes from, "" where it has none.

    What XLA puts in front of it where it inlines a call is left out. Those of products in modules of ours are all
    different (`rematc.lowering.writer.Writer.product`); JAX's say no more than the primitive.
    """
    return ";".join([name.rpartition("/")[2] for name in op_name(instruction).split(";")])


def integers(attributes: str, name: str) -> tuple[int, ...]:
    """The numbers of an attribute `name={1,2}`; () where it is not there."""
    found = re.search(rf"\b{name}=\{{([\d,\s]*)\}}", attributes)
    return () if found is None else tuple([int(part) for part in found[1].split(",") if part.strip()])
