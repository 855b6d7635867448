"""A block of StableHLO on its way into a graph, and the registry of rules that take its operations there.

A rule is a function of (block, operation) that emits equations and returns the operation's results. Rules stand in
modules of this folder by family; `rematc.compiler.frontends.stablehlo.importing` gathers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from rematc.compiler.frontends.stablehlo.attributes import Attributes, unread
from rematc.compiler.frontends.stablehlo.reading import Source, tensor_type
from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value

Rule = Callable[["Block", Any], Sequence[Value]]
RULES: dict[str, Rule] = {}
#: Why an operation that StableHLO has is no op of the IR.
REASONS: dict[str, str] = {}
_R = TypeVar("_R", bound=Rule)

#: A constant of at most this many bytes that a region reads is written again inside it.
_SMALL = 64
#: The operation that keeps whatever attributes it has.
_KEEPS_ALL = "stablehlo.custom_call"
#: Attributes with a dialect's prefix that rules read, by operation, besides those that place results.
_READ = {"func.call": ("mhlo.frontend_attributes",)}


def imports(*names: str) -> Callable[[_R], _R]:
    """Decorator: this function imports the operations of these names."""

    def enter(rule: _R) -> _R:
        for name in names:
            if name in RULES:
                raise ValueError(f"two rules import '{name}'")
            RULES[name] = rule
        return rule

    return enter


class Surroundings(Protocol):
    """What a block needs of the module around it."""

    @property
    def source(self) -> Source: ...

    def function(self, symbol: str, loc: Location | None) -> Graph: ...

    def blob(self, key: str) -> str | None: ...

    def mesh(self, symbol: str) -> Any: ...

    def placed(self, block: Block, operation: Any, results: Sequence[Value]) -> Sequence[Value]: ...


@dataclass(frozen=True, slots=True)
class Region:
    """A region as a graph, and what it reads of the block around it.

    Attributes:
        graph: parameters are the captured values, then the region's own arguments.
        captured: the values captured.
    """

    graph: Graph
    captured: tuple[Value, ...]


@dataclass(slots=True)
class Block:
    """One block being imported.

    Attributes:
        b: what the equations are written through.
        module: what is around.
        env: the values so far, by MLIR value; of tuples, the values in order.
        constants: the arrays of values that are constants.
    """

    b: Builder
    module: Surroundings
    env: dict[Any, Value | tuple[Value, ...]] = field(default_factory=dict)
    constants: dict[Value, Array] = field(default_factory=dict)
    _definitions: dict[Value, Equation] = field(default_factory=dict)
    _seen: int = 0

    # -- reading operations --------------------------------------------------------------------------------------

    def operands(self, operation: Any) -> list[Value]:
        return [self.value(operand, operation) for operand in operation.operands]

    def value(self, operand: Any, operation: Any) -> Value:
        """The value of an operand."""
        found = self.env[operand]
        if isinstance(found, tuple):
            self.fail(operation, "reads a tuple; only get_tuple_element, func.call and returns can")
        return found

    def result_types(self, operation: Any) -> list[TensorType]:
        return [tensor_type(result.type, None) for result in operation.results]

    def location(self, operation: Any) -> Location | None:
        return self.module.source.location(operation.location)

    def place(self, operation: Any) -> Location:
        """The operation's location for an error: where it has none, the first operation of its name in the text."""
        return self.location(operation) or self.module.source.place_of(operation.operation.name)

    def constant_of(self, value: Value, operation: Any, what: str) -> Array:
        """The array of an operand that must be a constant."""
        found = self.constants.get(value)
        if found is None:
            self.fail(operation, f"takes {what} that are not constant; make them constant, and all shapes static")
        return found

    def fail(self, operation: Any, what: str) -> NoReturn:
        """Raise CompileError at the operation: `'stablehlo.sort' <what>`."""
        raise CompileError(f"'{operation.name}' {what}", self.place(operation))

    def defined_by(self, value: Value, op: type[Op]) -> Equation | None:
        """The equation of this op that gives a value."""
        for eqn in self.b.equations[self._seen :]:
            self._definitions.update(dict.fromkeys(eqn.results, eqn))
        self._seen = len(self.b.equations)
        found = self._definitions.get(value)
        return found if found is not None and isinstance(found.op, op) else None

    def filled_with(self, value: Value, number: float) -> bool:
        """Whether a value is a constant, or the broadcast of one, all of whose elements are this number."""
        spread = self.defined_by(value, BroadcastInDim)
        found = self.constants.get(spread.operands[0] if spread is not None else value)
        return found is not None and found.dtype.kind != "c" and bool((found.astype(np.float64) == number).all())

    # -- writing -------------------------------------------------------------------------------------------------

    def literal(self, array: Array) -> Value:
        """A constant, remembered as such."""
        value = self.b.constant(array)
        self.constants[value] = array
        return value

    def run(self, block: Any) -> list[Value]:
        """Import the operations of an MLIR block whose arguments are in `env`; the values that it returns."""
        for view in block.operations:
            operation = view.operation  # a view of one kind of operation may have attributes that hide its name
            if operation.name in ("stablehlo.return", "func.return"):
                return self.flat(operation)
            self._equation(operation)
        return []

    def flat(self, operation: Any) -> list[Value]:
        """The operands, tuples taken apart."""
        found: list[Value] = []
        for operand in operation.operands:
            value = self.env[operand]
            found += value if isinstance(value, tuple) else (value,)
        return found

    def _equation(self, operation: Any) -> None:
        rule = RULES.get(operation.name)
        if rule is None:
            reason = REASONS.get(operation.name) or (
                "the IR has no such op; express it by ops that it has (docs/stablehlo.md)"
            )
            self.fail(operation, f"cannot be imported: {reason}")
        left = None if operation.name == _KEEPS_ALL else unread(operation, _READ.get(operation.name, ()))
        if left is not None:
            self.fail(operation, f"has {left}, which the IR does not have; take it out of the text")
        with self.b.at(self.location(operation)):
            try:
                results = rule(self, operation)
                self._define(operation, self.module.placed(self, operation, results))
            except CompileError as error:
                # Looking for the place in the text takes its length, so it is done for errors alone.
                if error.loc is None:
                    error.loc = self.place(operation)
                raise

    def _define(self, operation: Any, results: Sequence[Value]) -> None:
        """Let the results of an operation be known."""
        if operation.name in ("stablehlo.tuple", "stablehlo.get_tuple_element"):
            is_tuple = "tuple<" in str(operation.results[0].type)
            self.env[operation.results[0]] = tuple(results) if is_tuple else results[0]
            return
        for result, value in zip(operation.results, results, strict=True):
            expected = tensor_type(result.type, None)
            if value.type != expected:
                raise CompileError(f"'{operation.name}' gives {expected} in the text, and {value.type} in the IR")
            self.env[result] = value

    # -- regions -------------------------------------------------------------------------------------------------

    def region(self, operation: Any, index: int, name: str, captured: Sequence[Any] | None = None) -> Region:
        """A region as a graph.

        Args:
            operation: what owns it.
            index: which of its regions.
            name: name of the graph.
            captured: the MLIR values around that it gets as parameters; by default those that it reads, but for
                small constants, which are written again inside.
        """
        block = operation.regions[index].blocks[0]
        read = list(captures(block))
        outer = [value for value in read if not self._is_small(value)] if captured is None else list(captured)
        inner = Block(Builder(name), self.module)
        for value in outer:
            inner.env[value] = inner.b.parameter(self.value(value, operation).type)
        for argument in block.arguments:
            inner.env[argument] = inner.b.parameter(tensor_type(argument.type, None))
        for value in read:
            if value not in inner.env:
                inner.env[value] = inner.literal(self.constants[self.value(value, operation)])
        results = inner.run(block)
        return Region(inner.b.build(*results), tuple([self.value(value, operation) for value in outer]))

    def body(self, operation: Any, index: int = 0, name: str = "") -> Graph:
        """A region that reads nothing of the block around it but constants."""
        found = self.region(operation, index, name or operation.name.rpartition(".")[2])
        if found.captured:
            self.fail(operation, "has a region that reads values from outside; pass them as operands")
        return found.graph

    def shared_captures(self, operation: Any) -> list[Any]:
        """The MLIR values that any region of an operation reads from outside, but for small constants."""
        found: dict[Any, None] = {}
        for region in operation.regions:
            found.update(dict.fromkeys(captures(region.blocks[0])))
        return [value for value in found if not self._is_small(value)]

    def _is_small(self, value: Any) -> bool:
        found = self.env.get(value)
        array = self.constants.get(found) if isinstance(found, Value) else None
        return array is not None and array.nbytes <= _SMALL


def captures(block: Any) -> Iterable[Any]:
    """The MLIR values that a block and the regions inside read, and that are defined outside, each once."""
    inside: set[Any] = set()
    found: dict[Any, None] = {}
    for part in _blocks(block):
        inside.update(part.arguments)
        for operation in part.operations:
            inside.update(operation.results)
    for part in _blocks(block):
        for operation in part.operations:
            found.update(dict.fromkeys(operand for operand in operation.operands if operand not in inside))
    return found


def _blocks(block: Any) -> Iterator[Any]:
    """A block and all those inside, outer ones first."""
    rest = [block]
    while rest:
        current = rest.pop()
        yield current
        for operation in current.operations:
            for region in operation.regions:
                rest += list(region.blocks)


def attributes(operation: Any) -> Attributes:
    """The attributes of an operation."""
    return Attributes(operation)


def literal_of(value: complex, type: TensorType) -> Array:
    """A scalar of an element type."""
    return np.asarray(value).astype(type.dtype.numpy)
