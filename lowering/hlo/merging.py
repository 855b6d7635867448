"""Which products of a module are repeated, so that XLA would merge them if nothing kept it from doing so.

Value numbering over a module as it enters XLA: two instructions are equal if opcode, shape, attributes and operands
are, and an optimization barrier hands its operands on. Calls are followed, and branches of conditionals: what only a
function or a conditional keeps apart counts as repeated.

Loops are followed too. An entry of a loop's state is what it begins with, how often the loop runs, and what a step
makes of it; what a loop has stacked is, row by row, what a step put there. So the step of a backward loop that reads
the carry which the forward loop saved, and multiplies it by the same weights, repeats the forward loop's product.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rematc.lowering.hlo.branches import branch_names, known_branch
from rematc.lowering.hlo.module import Computation, HloModule, Instruction, Shape, called_computations, integers
from rematc.lowering.hlo.numbers import Counter as Counted
from rematc.lowering.hlo.numbers import Number, Numbers
from rematc.lowering.hlo.products import Product, product_of
from rematc.lowering.hlo.trips import stride, trip_count

_METADATA = re.compile(r",?\s*(metadata|backend_config|frontend_attributes|origin)=\{(?:[^{}]|\{[^{}]*\})*\}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_CALLED_NAME = re.compile(r"=%?[\w.\-]+")
_INDEX = re.compile(r"\bindex=(\d+)")
#: The attribute of calls whose body XLA leaves where it is.
_NOT_INLINED = 'inlineable="false"'
#: The attribute of those that have nothing to do with recomputation.
_NO_RECOMPUTATION = 'recomputes="false"'
#: Two of them are never equal.
_EFFECTS = ("rng", "infeed", "outfeed", "send", "recv", "after-all", "rng-get-and-update-state")
_NESTING = 100
#: How often a loop's entries are told apart by what a step makes of them.
_REFINEMENTS = 2
_INSTRUCTIONS = 3_000_000


class TooLargeError(Exception):
    """The module's calls spread to more instructions than are looked at."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """The products of a module.

    Attributes:
        all: how often each is executed.
        merged: the same if those that are equal were merged.
        looped: how many of those repeated stand in loops, where XLA merges nothing with what is outside.
        barriers: how many optimization barriers, calls that are not inlined, and conditionals whose branch is known,
            stand outside of loops.
        equal: pairs of products, by their names, that compute the same value somewhere.
    """

    all: Counter[Product]
    merged: Counter[Product]
    looped: int = 0
    barriers: int = 0
    equal: frozenset[tuple[Product, Product]] = frozenset()

    @property
    def repeated(self) -> Counter[Product]:
        """What would be merged: recomputation, where a module comes from reverse mode under a policy."""
        return self.all - self.merged


def repeated_products(module: HloModule) -> Repetition:
    """Find the products that are computed again. Raises TooLargeError."""
    numbering = _Numbering(module)
    if module.entry is not None:
        _Scope(numbering, 1).values(module.computations[module.entry], [], 0)
    equal = frozenset(numbering.equal)
    return Repetition(numbering.all, numbering.merged, numbering.looped, numbering.barriers, equal)


class _Numbering:
    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.numbers = Numbers()
        self.all: Counter[Product] = Counter()
        self.merged: Counter[Product] = Counter()
        self.looped = 0
        self.barriers = 0
        self.bodies: dict[object, int] = {}
        self.body_of: dict[str, int] = {}
        self.seen: dict[object, Product] = {}
        self.equal: set[tuple[Product, Product]] = set()
        self.visited = 0

    def body(self, name: str) -> int:
        """A number for a computation's text, the same for two that differ in names only."""
        if name in self.body_of:
            return self.body_of[name]
        computation = self.module.computations.get(name)
        if computation is None:
            return self.numbers.fresh()
        self.body_of[name] = self.numbers.fresh()  # of one that calls itself
        places = {instruction: index for index, instruction in enumerate(computation.instructions)}
        rows = tuple(
            [
                (one.opcode, one.shape, tuple([places.get(operand, -1) for operand in one.operands]), *self.key(one))
                for one in computation.instructions.values()
            ]
        )
        root = places.get(computation.root.name, -1) if computation.root is not None else -1
        self.body_of[name] = self.bodies.setdefault((rows, root), self.numbers.fresh())
        return self.body_of[name]

    def key(self, instruction: Instruction) -> tuple[object, ...]:
        """What tells an instruction from others besides opcode, shape and operands."""
        literal = instruction.literal if instruction.opcode in ("constant", "parameter") else ""
        if not instruction.attributes:
            return literal, ""
        attributes = _METADATA.sub("", _STRING.sub(_kept_string, instruction.attributes))
        called = called_computations(instruction)
        names = {name for names in called.values() for name in names}
        bodies = tuple([(attribute, tuple(map(self.body, called[attribute]))) for attribute in sorted(called)])
        if names:
            attributes = _CALLED_NAME.sub(lambda found: "" if found[0].lstrip("=%") in names else found[0], attributes)
        return literal, attributes, bodies

    def count(self, product: Product, key: object, times: int, is_in_loop: bool) -> None:
        """Count a product that is executed so often."""
        self.all[product] += times
        first = self.seen.setdefault(key, product)
        if first is product:
            self.merged[product] += times
            return
        self.equal.add((first, product))
        if is_in_loop:
            self.looped += times

    def alternatives(self, evaluate: Sequence[Callable[[], Number]]) -> list[Number]:
        """Number branches of which one is taken: of each kind of product those of the branch with most of them count.

        None of them is there for another one to use.
        """
        numbers: list[Number] = []
        before, merged_before = self.all, self.merged
        found: list[tuple[Counter[Product], Counter[Product]]] = []
        new: dict[object, Product] = {}
        for branch in evaluate:
            self.all, self.merged = Counter(), Counter()
            count = len(self.seen)
            numbers.append(branch())
            found.append((self.all, self.merged))
            for key in list(itertools.islice(reversed(self.seen), len(self.seen) - count)):
                new[key] = self.seen.pop(key)
        self.seen.update(new)
        self.all, self.merged = before, merged_before
        for kind in dict.fromkeys(product.kind for counted, _ in found for product in counted):
            of_kind = [(_of_kind(counted, kind), _of_kind(merged, kind)) for counted, merged in found]
            most, most_merged = max(of_kind, key=lambda pair: (pair[0].total(), pair[1].total()))
            self.all, self.merged = self.all + most, self.merged + most_merged
        return numbers


def _of_kind(counts: Counter[Product], kind: Product) -> Counter[Product]:
    return Counter({product: count for product, count in counts.items() if product.kind == kind})


def _kept_string(found: re.Match[str]) -> str:
    """Strings without braces, which would end metadata too early."""
    return found[0].replace("{", "(").replace("}", ")")


class _Scope:
    """Computations that run so often, or a step of a loop; with `times` 0 they are numbered without counting."""

    def __init__(self, numbering: _Numbering, times: int, is_in_loop: bool = False) -> None:
        self.numbering = numbering
        self.numbers = numbering.numbers
        self.times = times
        self.is_in_loop = is_in_loop

    def values(self, computation: Computation, arguments: Sequence[Number], nesting: int) -> Number:
        """Number a computation's live instructions; the root's number."""
        if nesting > _NESTING:
            raise TooLargeError
        numbers: dict[str, Number] = {}
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
        operands: list[Number],
        computation: Computation,
        arguments: Sequence[Number],
        nesting: int,
    ) -> Number:
        match instruction.opcode:
            case "parameter" if instruction.literal.isdigit() and int(instruction.literal) < len(arguments):
                return arguments[int(instruction.literal)]
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                return self._element(instruction, operands)
            case "opt-barrier" | "optimization-barrier" if len(operands) == 1:
                self.numbering.barriers += not self.is_in_loop and self.times > 0
                return operands[0]
            case "reshape" if len(operands) == 1:
                return self.numbers.reshaped(operands[0], Shape.of(instruction.shape))
            case "broadcast" if len(operands) == 1 and self._adds_ones(instruction, computation):
                return self.numbers.reshaped(operands[0], Shape.of(instruction.shape))
            case "dynamic-slice" if operands:
                return self._slice(instruction, operands)
            case "call":
                called = self._computation(instruction, "to_apply")
                if called is not None:
                    attributes = instruction.attributes
                    is_kept = _NOT_INLINED in attributes and _NO_RECOMPUTATION not in attributes
                    self.numbering.barriers += is_kept and not self.is_in_loop and self.times > 0
                    return self.values(called, operands, nesting + 1)
            case "conditional" if len(operands) > 1:
                return self._conditional(instruction, operands, computation, nesting)
            case "while" if len(operands) == 1:
                return self._loop(instruction, operands[0], computation, nesting)
            case opcode if opcode in _EFFECTS or "has_side_effect=true" in instruction.attributes:
                return self.numbers.fresh()
        key = self._key(instruction, operands)
        product = product_of(instruction, computation, self.numbering.module)
        if product is not None and self.times:
            self.numbering.count(product, key, self.times, self.is_in_loop)
        return self.numbers.interned(key)

    def _key(self, instruction: Instruction, operands: Sequence[Number]) -> tuple[object, ...]:
        return instruction.opcode, instruction.shape, tuple(operands), *self.numbering.key(instruction)

    def _computation(self, instruction: Instruction, attribute: str) -> Computation | None:
        return self.numbering.module.computations.get(*called_computations(instruction).get(attribute, ("",)))

    def _element(self, instruction: Instruction, operands: list[Number]) -> Number:
        found = _INDEX.search(instruction.attributes)
        index = 0 if found is None else int(found[1])
        match operands:
            case [tuple() as parts] if index < len(parts):
                part: Number = parts[index]
                return part
        return self.numbers.interned(("get-tuple-element", instruction.shape, tuple(operands), str(index)))

    def _adds_ones(self, broadcast: Instruction, computation: Computation) -> bool:
        operand = computation.instructions.get(broadcast.operands[0])
        if operand is None:
            return False
        before, after = Shape.of(operand.shape).sizes, Shape.of(broadcast.shape).sizes
        places = integers(broadcast.attributes, "dimensions")
        return list(places) == sorted(places) and math.prod(before) == math.prod(after) != 0

    def _slice(self, instruction: Instruction, operands: list[Number]) -> Number:
        """A row of a stack is what the loop put there; another slice is told by what it sweeps over."""
        stack, *indices = operands
        row = self.numbers.row(stack, indices, Shape.of(instruction.shape))
        if row is not None:
            return row
        swept = tuple([self.numbers.index(index) or index for index in indices])
        key = ("dynamic-slice", instruction.shape, (stack,), "", swept)
        return self.numbers.interned(key)

    def _conditional(
        self, instruction: Instruction, operands: list[Number], computation: Computation, nesting: int
    ) -> Number:
        names = branch_names(instruction)
        branches = [self.numbering.module.computations.get(name) for name in names]
        known = known_branch(instruction, computation, self.numbering.module)
        if known is not None and (taken := branches[known]) is not None and known + 1 < len(operands):
            self.numbering.barriers += not self.is_in_loop and self.times > 0
            return self.values(taken, [operands[known + 1]], nesting + 1)
        self.numbering.alternatives(
            [
                partial(self.values, branch, [argument], nesting + 1)
                for branch, argument in zip(branches, operands[1:], strict=False)
                if branch is not None
            ]
        )
        return self.numbers.interned(self._key(instruction, operands))

    # -- loops -------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Instruction, state: Number, around: Computation, nesting: int) -> Number:
        body = self._computation(loop, "body")
        result = self.numbers.interned(self._key(loop, [state]))
        if body is None:
            return result
        trips = trip_count(loop, around, self.numbering.module)
        step = _Scope(self.numbering, self.times * (1 if trips is None else trips), True)
        entries = None
        if body.root is not None and body.root.opcode == "tuple":
            begin = state if isinstance(state, tuple) else self._parts(state, body.root)
            entries = self._entries(begin, body, trips, nesting)
        if entries is None:  # a state whose entries are not told apart: what is computed of it equals nothing else
            step.values(body, [self.numbers.fresh()], nesting + 1)
            return result
        after = step.values(body, [entries], nesting + 1)
        assert isinstance(after, tuple), "the root of the body is a tuple"
        return tuple([self._final(*row) for row in zip(entries, after, strict=True)])

    def _parts(self, state: int, root: Instruction) -> tuple[Number, ...]:
        count = len(root.operands)
        return tuple([self.numbers.interned(("get-tuple-element", "", (state,), str(index))) for index in range(count)])

    def _entries(
        self, begin: tuple[Number, ...], body: Computation, trips: int | None, nesting: int
    ) -> tuple[Number, ...] | None:
        """The numbers of the state's entries in a step: refined by what a step makes of them."""
        assert body.root is not None, "the caller has looked"
        fixed = _handed_on(body)
        shapes = [body.instructions[name].shape for name in body.root.operands if name in body.instructions]
        if not len(shapes) == len(body.root.operands) == len(begin):
            return None
        entries: list[Number] = []
        for index, (first, shape) in enumerate(zip(begin, shapes, strict=True)):
            counter = None if index in fixed or trips is None else self._counter(index, first, body, trips)
            if counter is not None:
                fixed.add(index)
                entries.append(counter)
            else:
                entries.append(first if index in fixed else self._state(shape, first, str(trips)))
        dry = _Scope(self.numbering, 0)
        for _ in range(_REFINEMENTS):
            after = dry.values(body, [tuple(entries)], nesting + 1)
            if not isinstance(after, tuple) or len(after) != len(entries):
                return None
            rows = zip(entries, after, shapes, strict=True)
            entries = [
                entry if index in fixed else self._state(shape, entry, made)
                for index, (entry, made, shape) in enumerate(rows)
            ]
        return tuple(entries)

    def _state(self, shape: str, of: Number, by: object) -> int:
        return self.numbers.interned(("state", shape, (of,), "", by))

    def _counter(self, index: int, first: Number, body: Computation, trips: int) -> int | None:
        """The number of an entry that counts steps."""
        start, step = self.numbers.constant(first), stride(index, body, self.numbering.module)
        if start is None or step is None:
            return None
        number = self.numbers.interned(("counter", "", (), str(start), (step, trips)))
        self.numbers.counters[number] = Counted(start, step, trips)
        return number

    def _final(self, entry: Number, after: Number) -> Number:
        """What the loop gives."""
        if entry == after:
            return entry
        stacked = self.numbers.stacked(after, entry)
        return self.numbers.interned(("final", "", (entry, after))) if stacked is None else stacked


def _handed_on(body: Computation) -> set[int]:
    """The entries of a loop's state that a step leaves as they are."""
    assert body.root is not None, "the caller has looked"
    fixed: set[int] = set()
    for index, name in enumerate(body.root.operands):
        made = body.instructions.get(name)
        if made is None or made.opcode != "get-tuple-element" or not made.operands:
            continue
        source = body.instructions.get(made.operands[0])
        found = _INDEX.search(made.attributes)
        if source is not None and source.opcode == "parameter" and found is not None and int(found[1]) == index:
            fixed.add(index)
    return fixed


def _live(computation: Computation) -> set[str]:
    """The instructions that the root needs."""
    if computation.root is None:
        return set()
    live = {computation.root.name}
    for name in reversed(list(computation.instructions)):
        if name in live:
            live.update(computation.instructions[name].operands)
    return live
