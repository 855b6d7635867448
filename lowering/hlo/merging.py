"""Which products of a module are repeated, so that XLA would merge them if no barrier kept it from doing so.

Value numbering over a module as it enters XLA: two instructions are equal if opcode, shape, attributes and operands
are, and an optimization barrier hands its operands on. Calls are followed, and of a conditional the branch with most
products: what only a conditional keeps apart counts as repeated. The body of a loop is numbered by itself, since XLA
merges nothing across loops.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rematc.lowering.hlo.module import Computation, HloModule, Instruction, called_computations
from rematc.lowering.hlo.products import Product, product_of
from rematc.lowering.hlo.trips import trip_count

#: A value's number, or those of a tuple's parts.
_Number = int | tuple["_Number", ...]

_METADATA = re.compile(r",?\s*(metadata|backend_config|frontend_attributes|origin)=\{(?:[^{}]|\{[^{}]*\})*\}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_CALLED_NAME = re.compile(r"=%?[\w.\-]+")
_INDEX = re.compile(r"\bindex=(\d+)")
#: Two of them are never equal.
_EFFECTS = ("rng", "infeed", "outfeed", "send", "recv", "after-all", "rng-get-and-update-state")
_NESTING = 100
_INSTRUCTIONS = 3_000_000


class TooLargeError(Exception):
    """The module's calls spread to more instructions than are looked at."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """The products of a module.

    Attributes:
        all: how often each is executed.
        merged: the same if those that are equal were merged.
    """

    all: Counter[Product]
    merged: Counter[Product]

    @property
    def repeated(self) -> Counter[Product]:
        """What would be merged: recomputation, where a module comes from reverse mode under a policy."""
        return self.all - self.merged


def repeated_products(module: HloModule) -> Repetition:
    """Find the products that are computed again. Raises TooLargeError."""
    numbering = _Numbering(module)
    if module.entry is not None:
        entry = module.computations[module.entry]
        numbering.scope(entry, 1, 0)
    return Repetition(numbering.all, numbering.merged)


class _Numbering:
    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.all: Counter[Product] = Counter()
        self.merged: Counter[Product] = Counter()
        self.bodies: dict[object, int] = {}
        self.body_of: dict[str, int] = {}
        self.visited = 0
        self.next = 0

    def fresh(self) -> int:
        self.next += 1
        return self.next

    def scope(self, computation: Computation, times: int, nesting: int) -> None:
        """Number what cannot be merged with anything outside: the entry, or a loop's body that runs `times`."""
        _Scope(self, times, {}).values(computation, [], nesting)

    def body(self, name: str) -> int:
        """A number for a computation's text, the same for two that differ in names only."""
        if name in self.body_of:
            return self.body_of[name]
        computation = self.module.computations.get(name)
        if computation is None:
            return self.fresh()
        self.body_of[name] = self.fresh()  # of one that calls itself
        places = {instruction: index for index, instruction in enumerate(computation.instructions)}
        rows = tuple(
            [
                (one.opcode, one.shape, tuple([places.get(operand, -1) for operand in one.operands]), *self.key(one))
                for one in computation.instructions.values()
            ]
        )
        root = places.get(computation.root.name, -1) if computation.root is not None else -1
        self.body_of[name] = self.bodies.setdefault((rows, root), self.fresh())
        return self.body_of[name]

    def key(self, instruction: Instruction) -> tuple[object, ...]:
        """What tells an instruction from others besides opcode, shape and operands."""
        literal = instruction.literal if instruction.opcode in ("constant", "parameter") else ""
        if not instruction.attributes:
            return (literal,)
        attributes = _METADATA.sub("", _STRING.sub(_kept_string, instruction.attributes))
        called = called_computations(instruction)
        names = {name for names in called.values() for name in names}
        bodies = tuple([(attribute, tuple(map(self.body, called[attribute]))) for attribute in sorted(called)])
        if names:
            attributes = _CALLED_NAME.sub(lambda found: "" if found[0].lstrip("=%") in names else found[0], attributes)
        return literal, attributes, bodies


def _kept_string(found: re.Match[str]) -> str:
    """Strings without braces, which would end metadata too early."""
    return found[0].replace("{", "(").replace("}", ")")


class _Scope:
    """One table of values that could be merged with each other."""

    def __init__(self, numbering: _Numbering, times: int, table: dict[object, int]) -> None:
        self.numbering = numbering
        self.times = times
        self.table = table

    def values(self, computation: Computation, arguments: list[_Number], nesting: int) -> _Number:
        """Number a computation's live instructions; the root's number."""
        if nesting > _NESTING:
            raise TooLargeError
        numbers: dict[str, _Number] = {}
        live = _live(computation)
        for name, instruction in computation.instructions.items():
            if name not in live:
                continue
            self.numbering.visited += 1
            if self.numbering.visited > _INSTRUCTIONS:
                raise TooLargeError
            operands = [numbers.get(operand, -1) for operand in instruction.operands]
            numbers[name] = self.number(instruction, operands, computation, arguments, nesting)
        return -1 if computation.root is None else numbers.get(computation.root.name, -1)

    def number(
        self,
        instruction: Instruction,
        operands: list[_Number],
        computation: Computation,
        arguments: list[_Number],
        nesting: int,
    ) -> _Number:
        match instruction.opcode:
            case "parameter" if instruction.literal.isdigit() and int(instruction.literal) < len(arguments):
                return arguments[int(instruction.literal)]
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                return self._element(instruction, operands)
            case "opt-barrier" | "optimization-barrier" if len(operands) == 1:
                return operands[0]
            case "call" | "conditional":
                called = self._called(instruction, operands)
                if called is not None:
                    return self.values(called[0], called[1], nesting + 1)
            case "while":
                return self._loop(instruction, operands, computation, nesting)
            case opcode if opcode in _EFFECTS or "has_side_effect=true" in instruction.attributes:
                return self.numbering.fresh()
        key = (instruction.opcode, instruction.shape, tuple(operands), *self.numbering.key(instruction))
        product = product_of(instruction, computation, self.numbering.module)
        if product is not None:
            self.numbering.all[product] += self.times
            if key not in self.table:
                self.numbering.merged[product] += self.times
        return self._interned(key)

    def _interned(self, key: object) -> int:
        if key not in self.table:
            self.table[key] = self.numbering.fresh()
        return self.table[key]

    def _element(self, instruction: Instruction, operands: list[_Number]) -> _Number:
        found = _INDEX.search(instruction.attributes)
        index = 0 if found is None else int(found[1])
        match operands:
            case [tuple() as parts] if index < len(parts):
                part: _Number = parts[index]
                return part
        return self._interned(("get-tuple-element", tuple(operands), index))

    def _called(self, instruction: Instruction, operands: list[_Number]) -> tuple[Computation, list[_Number]] | None:
        """The computation that is entered, and its arguments."""
        called = called_computations(instruction)
        computations = self.numbering.module.computations
        if instruction.opcode == "call":
            found = computations.get(*called.get("to_apply", ("",)))
            return None if found is None else (found, operands)
        names = called.get("branch_computations") or (
            *called.get("true_computation", ()),
            *called.get("false_computation", ()),
        )
        branches = [
            (_products_in(computations[name], self.numbering.module), index, computations[name])
            for index, name in enumerate(names)
            if name in computations and index + 1 < len(operands)
        ]
        if not branches:
            return None
        _, index, branch = max(branches, key=lambda one: one[0])
        return branch, [operands[index + 1]]

    def _loop(self, loop: Instruction, operands: list[_Number], around: Computation, nesting: int) -> _Number:
        called = called_computations(loop)
        body = self.numbering.module.computations.get(*called.get("body", ("",)))
        key = ("while", tuple(operands), *self.numbering.key(loop))
        if key not in self.table and body is not None:
            trips = trip_count(loop, around, self.numbering.module)
            self.numbering.scope(body, self.times * (1 if trips is None else trips), nesting + 1)
        return self._interned(key)


def _products_in(computation: Computation, module: HloModule) -> int:
    """How many multiplications a branch has outside calls and loops: enough to tell the branch that computes."""
    found = [product_of(one, computation, module) for one in computation.instructions.values()]
    return sum(product.multiplications for product in found if product is not None)


def _live(computation: Computation) -> set[str]:
    """The instructions that the root needs."""
    if computation.root is None:
        return set()
    live = {computation.root.name}
    for name in reversed(list(computation.instructions)):
        if name in live:
            live.update(computation.instructions[name].operands)
    return live
