"""Import of sorts: which operands are the keys, and in which order, is read off the comparator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rematc.compiler.frontends.stablehlo.attributes import word
from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.elementwise import constant_array, total_order_key
from rematc.ir.ops.complex_parts import Imag, Real
from rematc.ir.ops.logical import Not
from rematc.ir.ops.sorting import Sort
from rematc.ir.values import Array, Value

_TURNED = {"LT": "GT", "GT": "LT", "EQ": "EQ"}


@dataclass(frozen=True, slots=True)
class Side:
    """One scalar that a comparator compares.

    Attributes:
        operand: of which operand of the sort.
        is_second: whether of the second element of the pair.
        part: real or imag, "" for the number itself.
        has_one_zero: whether -0.0 was made 0.0 before.
        has_one_nan: whether all NaNs were made one before.
    """

    operand: int
    is_second: bool
    part: str = ""
    has_one_zero: bool = False
    has_one_nan: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """What a comparator sorts by.

    Attributes:
        side: the first of the two scalars compared.
        direction: LT or GT; EQ inside of ties.
        is_total: whether floats are compared in IEEE 754's total order.
    """

    side: Side
    direction: str
    is_total: bool


@imports("stablehlo.sort")
def sort(block: Block, operation: Any) -> Sequence[Value]:
    """`sort`; keys that are no operands as they stand go in front and are dropped afterwards."""
    operands = block.operands(operation)
    keys = _Comparator(block, operation).keys()
    if not keys or any(key.direction == "EQ" for key in keys):
        block.fail(
            operation,
            "has a comparator that is no lexicographic order of its operands (a < b, or a < b or (a == b and ...)); "
            "sort by keys that are computed before",
        )
    op_keys = _joined(keys)
    descending = op_keys[0].direction == "GT"
    columns = [_column(block, key, operands[key.side.operand], descending) for key in op_keys]
    dimension = attributes(operation).integer("dimension", -1) % operands[0].type.rank
    if columns == operands[: len(columns)]:
        return block.b.emit(Sort(dimension, len(columns), descending), *operands)
    results = block.b.emit(Sort(dimension, len(columns), descending), *columns, *operands)
    return results[len(columns) :]


def _joined(keys: Sequence[Key]) -> list[Key]:
    """The keys, with real and imaginary part of one number in one, as the IR sorts complex numbers."""
    if len({key.direction for key in keys}) > 1:
        return list(keys)
    found: list[Key] = []
    for key in keys:
        before = found[-1] if found else None
        is_rest = before is not None and replace(before, side=replace(before.side, part="imag")) == key
        if is_rest and before is not None and before.side.part == "real" and _is_plain(key):
            found[-1] = replace(key, side=replace(key.side, part=""))
        else:
            found.append(key)
    return found


def _is_plain(key: Key) -> bool:
    """Whether the IR's order is the comparator's: zeros are equal, and so are NaNs, where that matters."""
    return not key.is_total or (key.side.has_one_zero and key.side.has_one_nan)


def _column(block: Block, key: Key, x: Value, descending: bool) -> Value:
    """What to sort by: greatest first if `descending`, whatever the key's own direction."""
    b = block.b
    if key.side.part:
        x = b.emit1(Real() if key.side.part == "real" else Imag(), x)
    turns = (key.direction == "GT") != descending
    if x.type.dtype.is_float and (turns or not _is_plain(key)):
        zero = b.zeros(x.type)
        x = total_order_key(b, b.select(b.compare(x, zero, "EQ"), zero, x) if _is_plain(key) else x)
    return b.emit1(Not(), x) if turns else x


class _Comparator:
    """The region of a sort, read as a lexicographic order."""

    def __init__(self, around: Block, sort: Any) -> None:
        block = sort.regions[0].blocks[0]
        self._around = around
        self._arguments = {argument: index for index, argument in enumerate(block.arguments)}
        operations = list(block.operations)
        self._by_result = {result: operation for operation in operations for result in operation.results}
        self._returned = operations[-1].operands[0]

    def keys(self) -> list[Key]:
        """The keys, most important first; none where the comparator is something else."""
        return self._order(self._returned)

    def _order(self, value: Any) -> list[Key]:
        """`c`, `c or (e and rest)`, `select(e, rest, c)`: c compares, e is whether the same are equal."""
        found: list[Key] = []
        while True:
            key = self._comparison(value)
            if key is not None:
                return [*found, key]
            split = self._split(value)
            if split is None:
                return []
            first, tie, value = split
            if first.direction == "EQ" or tie.direction != "EQ" or not _same_scalar(tie.side, first.side):
                return []
            found.append(first)

    def _split(self, value: Any) -> tuple[Key, Key, Any] | None:
        """Comparison, equality, and what decides where there is equality."""
        operation = self._by_result.get(value)
        if operation is None:
            return None
        name, operands = operation.operation.name, list(operation.operands)
        if name == "stablehlo.select":
            tie, first = self._comparison(operands[0]), self._comparison(operands[2])
            return (first, tie, operands[1]) if first and tie else None
        if name != "stablehlo.or":
            return None
        for one, other in (operands, operands[::-1]):
            first, rest = self._comparison(one), self._by_result.get(other)
            if first is None or rest is None or rest.operation.name != "stablehlo.and":
                continue
            pair = list(rest.operands)
            for left, right in (pair, pair[::-1]):
                tie = self._comparison(left)
                if tie is not None and tie.direction == "EQ":
                    return first, tie, right
        return None

    def _comparison(self, value: Any) -> Key | None:
        operation = self._by_result.get(value)
        if operation is None or operation.operation.name != "stablehlo.compare":
            return None
        direction = word(operation.attributes["comparison_direction"])
        sides = [self._side(operand) for operand in operation.operands]
        first, second = sides
        if direction not in _TURNED or first is None or second is None:
            return None
        if replace(first, is_second=not first.is_second) != second:
            return None
        if first.is_second:
            first, direction = second, _TURNED[direction]
        has_type = "compare_type" in operation.attributes
        is_total = has_type and word(operation.attributes["compare_type"]) == "TOTALORDER"
        return Key(first, direction, is_total)

    def _side(self, value: Any) -> Side | None:
        """The scalar that a value is, if it is an argument, a part of one, or that with zeros and NaNs made alike."""
        has_one_zero = has_one_nan = False
        part = ""
        while value not in self._arguments:
            operation = self._by_result.get(value)
            if operation is None:
                return None
            name, operands = operation.operation.name, list(operation.operands)
            if name in ("stablehlo.real", "stablehlo.imag") and not part:
                part, value = name.rpartition(".")[2], operands[0]
                continue
            if name != "stablehlo.select":
                return None
            kind = self._replaced(operands[0], operands[1], operands[2])
            if not kind:
                return None
            has_one_zero, has_one_nan = has_one_zero or kind == "zero", has_one_nan or kind == "nan"
            value = operands[2]
        index = self._arguments[value]
        return Side(index // 2, bool(index % 2), part, has_one_zero, has_one_nan)

    def _replaced(self, condition: Any, constant: Any, value: Any) -> str:
        """zero for `select(x == 0, 0, x)`, nan for `select(x != x, nan, x)`; x as it was before or after the other."""
        compare, made = self._by_result.get(condition), self._constant(constant)
        if compare is None or compare.operation.name != "stablehlo.compare" or made is None:
            return ""
        direction = word(compare.attributes["comparison_direction"])
        left, right = list(compare.operands)
        if not self._descends(left, value):
            return ""
        if direction == "NE" and left == right and np.isnan(made).all():
            return "nan"
        other = self._constant(right)
        if direction == "EQ" and other is not None and not other.any() and not made.any():
            return "zero"
        return ""

    def _descends(self, earlier: Any, value: Any) -> bool:
        """Whether `value` is `earlier`, or that with something replaced."""
        while value != earlier:
            operation = self._by_result.get(value)
            if operation is None or operation.operation.name != "stablehlo.select":
                return False
            value = operation.operands[2]
        return True

    def _constant(self, value: Any) -> Any:
        """The number of a constant in the region or around it, as float64."""
        operation = self._by_result.get(value)
        if operation is not None and operation.operation.name == "stablehlo.constant":
            found: Array | None = constant_array(self._around, operation)
        else:
            outer = self._around.env.get(value)
            found = self._around.constants.get(outer) if isinstance(outer, Value) else None
        return None if found is None or found.dtype.kind == "c" else found.astype(np.float64)


def _same_scalar(x: Side, y: Side) -> bool:
    return (x.operand, x.part) == (y.operand, y.part)
