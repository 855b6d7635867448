"""From the text of an HLO module to data, a line at a time, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rematc.lowering.hlo.module import Computation, HloModule, Instruction, SourceLine

_HEADER = re.compile(r"^(ENTRY\s+)?%?([\w.\-]+)\s*(\(.*)?\{\s*$")
_RESULT = re.compile(r"^\s*(ROOT\s+)?%?([\w.\-]+)\s=\s")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_OPERAND = re.compile(r"%?([A-Za-z_][\w.\-]*)\s*$")
_COMMENT = re.compile(r"/\*.*?\*/")
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]')
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ROW = re.compile(r"^(\d+)\s+(.*)$")
_FIELD = re.compile(r"(\w+)=(\d+)")


def parse_hlo(text: str) -> HloModule:
    """Read a module. Nothing is raised: lines that are not understood are counted."""
    return _Reader().read(text)


class _Reader:
    """The state of reading: the table or the computation that is open."""

    def __init__(self) -> None:
        self.name = ""
        self.computations: dict[str, Computation] = {}
        self.entry: str | None = None
        self.tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
        self.unread = 0

    def read(self, text: str) -> HloModule:
        lines = iter(text.splitlines())
        table: dict[int, str] | None = None
        for line in lines:
            stripped = line.strip()
            if not stripped:
                table = None
            elif stripped in self.tables:
                table = self.tables[stripped]
            elif table is not None and (row := _ROW.match(stripped)):
                table[int(row[1])] = row[2]
            elif stripped.startswith("HloModule"):
                self.name = stripped.split()[1].rstrip(",") if " " in stripped else ""
            elif header := _HEADER.match(line):
                self._computation(header[2], header[1] is not None, lines)
            else:
                self.unread += 1
        return HloModule(self.name, self.computations, self.entry, self._frames(), self.unread)

    def _computation(self, name: str, is_entry: bool, lines: Iterator[str]) -> None:
        instructions: dict[str, Instruction] = {}
        root = last = None
        for line in lines:
            if line.startswith("}"):
                break
            if not line.strip():
                continue
            instruction = _instruction(line)
            if instruction is None:
                self.unread += 1
                continue
            instructions[instruction.name] = last = instruction
            if instruction.is_root:
                root = instruction
        else:
            self.unread += 1  # the text ends inside
        self.computations[name] = Computation(name, instructions, root or last)
        if is_entry:
            self.entry = name

    def _frames(self) -> dict[int, SourceLine]:
        """Stack frames point to locations, and these to names of files; numbers as the tables have them."""
        locations: dict[int, SourceLine] = {}
        for index, row in self.tables["FileLocations"].items():
            fields = dict(_FIELD.findall(row))
            file = self.tables["FileNames"].get(int(fields.get("file_name_id", 0)))
            if file is not None and "line" in fields:
                locations[index] = SourceLine(file.strip('"'), int(fields["line"]))
        frames: dict[int, SourceLine] = {}
        for index, row in self.tables["StackFrames"].items():
            location = locations.get(int(dict(_FIELD.findall(row)).get("file_location_id", 0)))
            if location is not None:
                frames[index] = location
        return frames


def _instruction(line: str) -> Instruction | None:
    """`[ROOT] %name = shape opcode(operands), attributes`."""
    head = _RESULT.match(line)
    if head is None:
        return None
    shape_end = _shape_end(line, head.end())
    opcode = None if shape_end is None else _OPCODE.match(line, shape_end)
    if shape_end is None or opcode is None:
        return None
    pieces, end = _operands(line, opcode.end())
    if end is None:
        return None
    shape, literal = line[head.end() : shape_end], line[opcode.end() : end]
    operands = () if opcode[1] in ("constant", "parameter") else tuple([_name(piece) for piece in pieces if piece])
    attributes = line[end + 1 :].lstrip(", ")
    return Instruction(head[2], shape, opcode[1], operands, literal, attributes, head[1] is not None)


def _name(piece: str) -> str:
    found = _OPERAND.search(piece)
    return "" if found is None else found[1]


def _shape_end(line: str, start: int) -> int | None:
    """Where the shape that begins at `start` ends: at the first space outside parentheses."""
    if start >= len(line) or line[start] != "(":
        end = line.find(" ", start)
        return None if end < 0 else end
    depth = 0
    for found in _STRUCTURE.finditer(line, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return None


def _operands(line: str, start: int) -> tuple[list[str], int | None]:
    """What stands between commas from `start` to the closing parenthesis, and where this is."""
    pieces: list[str] = []
    depth, begin = 0, start
    for found in _STRUCTURE.finditer(line, start):
        match found[0]:
            case "(" | "{" | "[":
                depth += 1
            case ")" if depth == 0:
                pieces.append(_COMMENT.sub("", line[begin : found.start()]).strip())
                return pieces, found.start()
            case ")" | "}" | "]":
                depth -= 1
            case "," if depth == 0:
                pieces.append(_COMMENT.sub("", line[begin : found.start()]).strip())
                begin = found.end()
    return pieces, None
