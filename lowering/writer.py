"""The StableHLO writer: text of one module, and the registry of lowering rules.

A rule is a function of (writer, equation) that appends lines of StableHLO. Rules stand in
`lowering/ops/<family>.py`, mirroring `ir/ops/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rematc.ir.core import Equation, Graph, Op, Value
from rematc.ir.errors import MissingRuleError
from rematc.ir.locations import Location
from rematc.ir.types import TensorType

Rule = Callable[["Writer", Equation], None]
RULES: dict[type[Op], Rule] = {}
_R = TypeVar("_R", bound=Rule)


def lowers(*ops: type[Op]) -> Callable[[_R], _R]:
    """Decorator: this function lowers these ops."""

    def enter(rule: _R) -> _R:
        for op in ops:
            if op in RULES:
                raise ValueError(f"two lowering rules for '{op.name}'")
            RULES[op] = rule
        return rule

    return enter


def tensor(type: TensorType) -> str:
    """A tensor type in StableHLO text: `tensor<4x8xf32>`."""
    dims = "".join([f"{size}x" for size in type.shape])
    return f"tensor<{dims}{type.dtype.mlir}>"


def ints(values: Iterable[int]) -> str:
    """`[1, 2, 3]`."""
    return f"[{', '.join(map(str, values))}]"


def array(values: Sequence[int]) -> str:
    """`array<i64: 1, 2>`: MLIR's dense array attribute."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


class Writer:
    """Appends the lines of one module.

    Rules use `name` for operands, `define` for results, and `line` to write.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.functions: list[str] = []
        self._names: dict[Value, str] = {}
        self._types: dict[TensorType, str] = {}
        self._locs: dict[Location | None, str] = {}
        self._loc_lines: list[str] = []
        self._count = 0

    def name(self, value: Value) -> str:
        """The SSA name of a value already defined."""
        return self._names[value]

    def names(self, values: Sequence[Value]) -> str:
        return ", ".join([self._names[value] for value in values])

    def fresh(self) -> str:
        """A new SSA name, for a helper value of a rule."""
        self._count += 1
        return f"%{self._count - 1}"

    def define(self, value: Value) -> str:
        """Name a result; the line that defines it must come next."""
        name = self._names[value] = self.fresh()
        return name

    def bind(self, value: Value, name: str) -> None:
        """Let `value` be known under a name that some line defines already."""
        self._names[value] = name

    def type(self, type: TensorType) -> str:
        found = self._types.get(type)
        if found is None:
            found = self._types[type] = tensor(type)
        return found

    def types(self, values: Sequence[Value]) -> str:
        return ", ".join([self.type(value.type) for value in values])

    def loc(self, loc: Location | None) -> str:
        """A reference to the location's alias, which stands at the end of the module."""
        found = self._locs.get(loc)
        if found is not None:
            return found
        if loc is None:
            found = "loc(unknown)"
        else:
            alias = f"#loc{len(self._loc_lines) + 1}"
            place = f'"{_escape(loc.file)}":{loc.line}:{loc.column}'
            text = f'"{_escape(loc.function)}"({place})' if loc.function else place
            self._loc_lines.append(f"{alias} = loc({text})")
            found = f"loc({alias})"
        self._locs[loc] = found
        return found

    def line(self, text: str, loc: Location | None) -> None:
        """One line of StableHLO with its location."""
        self.lines.append(f"    {text} {self.loc(loc)}")

    def raw(self, text: str) -> None:
        """One line as it stands: braces and the insides of regions."""
        self.lines.append(f"    {text}")

    def equation(self, eqn: Equation) -> None:
        """Lower one equation by its op's rule."""
        rule = RULES.get(type(eqn.op))
        if rule is None:
            raise MissingRuleError(f"lowering of '{eqn.op.name}' needs a rule in lowering/ops", eqn.loc)
        rule(self, eqn)

    def body(self, graph: Graph) -> None:
        """Lower all equations of a graph whose parameters are bound."""
        for eqn in graph.equations:
            self.equation(eqn)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
