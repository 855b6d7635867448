"""StableHLO text to a graph: `from_stablehlo`.

The text goes through jaxlib's MLIR bindings, which parse and verify it; then its operations are walked, and each
becomes an equation, or a few. Functions that are called become `call` ops, regions graphs. Reductions, scatters and
sorts have bodies; those that the IR has an op for (sums, extrema, lexicographic order) are recognized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.stablehlo import (
    chlo,
    control,
    custom_calls,
    elementwise,
    indexing,
    linear_algebra,
    normalization,
    placements,
    random_bits,
    reductions,
    shaping,
    sorting,
    unsupported,
)
from rematc.compiler.frontends.stablehlo.block import Block
from rematc.compiler.frontends.stablehlo.custom_calls import called_computations
from rematc.compiler.frontends.stablehlo.literals import blobs_of
from rematc.compiler.frontends.stablehlo.placements import placed_arguments, placed_by_attributes, placed_results
from rematc.compiler.frontends.stablehlo.reading import Source, tensor_type
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.spelling import suggestion
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode

#: Importing a family enters its rules in `rematc.compiler.frontends.stablehlo.block.RULES`.
FAMILIES = (
    chlo,
    control,
    custom_calls,
    elementwise,
    indexing,
    linear_algebra,
    normalization,
    placements,
    random_bits,
    reductions,
    shaping,
    sorting,
    unsupported,
)


def from_stablehlo(text: str, *, entry: str = "main", file: str = "<stablehlo>") -> Graph:
    """The graph that a StableHLO module spells.

    Args:
        text: the module as MLIR prints it; StableHLO, CHLO and `func` operations, static shapes.
        entry: the function that becomes the graph.
        file: how errors and locations call the text. Operations that carry locations of their own keep them.

    Raises:
        ParseError: the text is no such module; with line and column.
        CompileError: it has no such function, or an operation that the IR has no op for, at its location.
    """
    source = Source(file, text)
    with source.module() as module:
        graph = _Module(source, module).function(entry, None)
    # What bodies and comparators were recognized by is left over.
    return DeadCode().run(graph)


class _Module:
    """The functions of one module, each imported once."""

    def __init__(self, source: Source, module: Any) -> None:
        self.source = source
        self._functions = {
            operation.attributes["sym_name"].value: operation
            for operation in module.body.operations
            if operation.operation.name == "func.func"
        }
        self._graphs: dict[str, Graph] = {}
        self._meshes = {
            operation.attributes["sym_name"].value: operation.attributes["mesh"]
            for operation in module.body.operations
            if operation.operation.name == "sdy.mesh"
        }
        self._blobs: dict[str, str] | None = None

    def blob(self, key: str) -> str | None:
        """The hexadecimal of a resource's bytes."""
        if self._blobs is None:
            self._blobs = blobs_of(self.source.text)
        return self._blobs.get(key)

    def mesh(self, symbol: str) -> Any:
        """The attribute that a mesh of devices is."""
        return self._meshes[symbol]

    def placed(self, block: Block, operation: Any, results: Sequence[Value]) -> Sequence[Value]:
        """The results of an operation where its attributes say."""
        return placed_by_attributes(block, operation, results)

    def function(self, symbol: str, loc: Location | None) -> Graph:
        """The graph of a function, those that it calls first."""
        if symbol not in self._functions:
            hint = suggestion(symbol, self._functions)
            listed = ", ".join(sorted(self._functions)) or "none"
            raise CompileError(f"the module has no function '{symbol}'{hint} Its functions: {listed}", loc)
        # Calls may be as deep as there are functions, so they are walked with a list and not by recursion.
        waiting, entered = [symbol], set()
        while waiting:
            current = waiting[-1]
            if current in self._graphs:
                waiting.pop()
                continue
            called = [name for name in _called(self._functions[current]) if name in self._functions]
            missing = [name for name in called if name not in self._graphs]
            if current in entered and missing:
                self._fail_recursive(current)
            entered.add(current)
            if missing:
                waiting += missing
                continue
            self._graphs[current] = self._imported(current)
            waiting.pop()
        return self._graphs[symbol]

    def _fail_recursive(self, symbol: str) -> None:
        raise CompileError(
            f"function '{symbol}' calls itself; write the recursion as a while",
            self.source.location(self._functions[symbol].location) or self.source.place_of(f"@{symbol}"),
        )

    def _imported(self, symbol: str) -> Graph:
        function = self._functions[symbol]
        loc = self.source.location(function.location) or self.source.place_of(f"@{symbol}")
        if not function.regions[0].blocks:
            raise CompileError(f"function '{symbol}' has no body in the module; link it in", loc)
        blocks = list(function.regions[0].blocks)
        if len(blocks) > 1:
            raise CompileError(f"function '{symbol}' has {len(blocks)} blocks; use case and while for branches", loc)
        block = Block(Builder(symbol), self)
        for argument in blocks[0].arguments:
            type = tensor_type(argument.type, loc)
            block.env[argument] = block.b.parameter(type, Source.name_in(argument.location))
        placed_arguments(block, function, blocks[0].arguments)
        return block.b.build(*placed_results(block, function, block.run(blocks[0])))


def _called(function: Any) -> list[str]:
    """The functions that a function calls, those in its regions included."""
    found: dict[str, None] = {}
    rest = [block for region in function.regions for block in region.blocks]
    while rest:
        for operation in rest.pop().operations:
            for name in ("callee", "decomposition"):
                if operation.operation.name in ("func.call", "stablehlo.composite") and name in operation.attributes:
                    found[operation.attributes[name].value] = None
            found.update(dict.fromkeys(called_computations(operation.operation)))
            rest += [block for region in operation.regions for block in region.blocks]
    return list(found)
