"""The StableHLO writer: text of one module, and the registry of lowering rules.

A rule is a function of (writer, equation) that appends lines of StableHLO. Rules stand in
`lowering/ops/<family>.py`, mirroring `ir/ops/`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import MissingRuleError
from rematc.ir.facts import Effect
from rematc.ir.locations import Location
from rematc.ir.ops.mapped import Manual, Spec
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value
from rematc.lowering.labels import Labels
from rematc.lowering.target import Target
from rematc.passes.phases import Phases


@dataclass(frozen=True, slots=True)
class Callback:
    """A call of a Python function in a module: a `custom_call` of `CALLBACK` with the index of this as its config.

    Attributes:
        function: takes the operands as NumPy arrays and gives a sequence of the results.
        operands: their types.
        results: their types.
        is_ordered: whether the call waits for a token, its first operand, and gives one, its first result.
        has_effect: whether it must not be left out, merged or repeated.
    """

    function: Callable[..., Sequence[Array]]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    is_ordered: bool
    has_effect: bool


Rule = Callable[["Writer", Equation], None]
RULES: dict[type[Op], Rule] = {}
_R = TypeVar("_R", bound=Rule)

UNKNOWN = "loc(unknown)"
TOKEN = "!stablehlo.token"
#: The name under which modules call Python functions, until they are compiled for a platform.
CALLBACK = "rematc_callback"
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")


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


def quoted(text: str) -> str:
    """A string literal of MLIR: control characters and what is not ASCII as escaped bytes."""
    if text.isascii() and text.isprintable():
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    else:
        data = text.encode(errors="backslashreplace")  # a file's name may have bytes that are no characters
        plain = (chr(byte) if 32 <= byte < 127 and byte not in b'\\"' else f"\\{byte:02X}" for byte in data)
        escaped = "".join(plain)
    return f'"{escaped}"'


def symbol(name: str) -> str:
    """A symbol, or the name of an attribute, as MLIR spells it: as it is where it can be."""
    return name if _BARE.fullmatch(name) else quoted(name)


def braced(names: Iterable[str]) -> str:
    """Axes of a mesh as Shardy spells them: `{"x", "y"}`."""
    return f"{{{', '.join(map(quoted, names))}}}"


def meshed(place: Manual, spec: Spec) -> str:
    """How Shardy spells what one device has of an array: `<mesh<["x"=2]>, [{"x"}, {}]>`.

    Where devices compute by themselves along some axes alone, dimensions are open for the others.
    """
    mesh = ", ".join([f"{quoted(name)}={size}" for name, size in zip(place.axes, place.sizes, strict=True)])
    is_open = set(place.manual) < set(place.axes)
    rows = [[*map(quoted, row), *["?"] * is_open] for row in spec]
    return f"<mesh<[{mesh}]>, [{', '.join([f'{{{chr(44).join(row)}}}' for row in rows])}]>"


class Writer:
    """Appends the lines of one module.

    Rules use `name` for operands, `define` for results, and `line` to write. A rule whose op owns a graph writes it
    inside `scope`, or has it written as a function with `function`.

    Attributes:
        target: where the module is to run, for ops that are calls of a platform's kernels.
        lines: the module's lines so far, without its head and foot.
        token: what the last op with an ordered effect gave, for the next one to wait for; None where there is none.
        callbacks: the Python functions that the module calls.
        barriers: how many optimization barriers stand in it.
        memories: in which kinds of memory it places values, besides the device's own.
        calls: the functions of libraries that it calls by name, and the user's line of the first call of each.
        meshes: the frontend's meshes of devices that the module's constraints name.
        partitions: over how many devices they spread it at most; 0 where there are none.
        constrained_at: the user's line of one of them.
        loc_aliases: the lines that define the aliases of locations.
        foreign: the lines of functions that a frontend wrote.
        is_inside: whether what is written is part of a function that is called, of a loop or of a branch.
        place: where devices compute by themselves, while that is written.
        is_tuned: whether something is written in one of several ways, the one that this platform is fast with.
    """

    def __init__(self, target: Target, phases: Phases | None = None) -> None:
        """Nothing is written yet.

        `phases` are those of the program's equations, for the labels in locations.
        """
        self.target = target
        self._labels = Labels(phases or {})
        self.lines: list[str] = []
        self.loc_aliases: list[str] = []
        self.token: str | None = None
        self.callbacks: list[Callback] = []
        self.barriers = 0
        self.memories: set[str] = set()
        self.calls: dict[str, Location | None] = {}
        self.meshes: dict[Any, None] = {}
        self.partitions = 0
        self.constrained_at: Location | None = None
        self.is_inside = False
        self.is_tuned = False
        self.place: Manual | None = None
        self._names: dict[Value, str] = {}
        self._types: dict[TensorType, str] = {}
        self._locs: dict[tuple[Location | None, str], str] = {(None, ""): UNKNOWN}
        self._count = 0
        self._products = 0
        self._symbols: dict[Graph, str] = {}
        # By identity first: hashing a graph costs its size. The graphs are held so that no other one gets their id.
        self._symbol_of_id: dict[int, tuple[Graph, str]] = {}
        self.foreign: list[str] = []
        self._foreign: dict[Any, str] = {}
        self._taken = {"main"}
        self._pending: deque[tuple[str, Graph, Labels]] = deque()
        self._nonzero: set[Value] = set()
        self._made: dict[Value, int] = {}
        self._constant: set[Value] = set()

    # -- names ---------------------------------------------------------------------------------------------------

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

    def define_all(self, values: Sequence[Value], effect: Effect = Effect.NONE) -> str:
        """Name all results of an op: `%0 = ` or `%0:2 = `, or nothing for none; the op must come next.

        An op with an ordered effect has one more result in front, the token for the next one.
        """
        is_ordered = effect is Effect.ORDERED
        count = len(values) + is_ordered
        if not count:
            return ""
        name = self.fresh()
        parts = [name] if count == 1 else [f"{name}#{index}" for index in range(count)]
        if is_ordered:
            self.token = parts[0]
        self._names.update(zip(values, parts[is_ordered:], strict=True))
        return f"{name} = " if count == 1 else f"{name}:{count} = "

    def bind(self, value: Value, name: str) -> None:
        """Let `value` be known under a name that some line defines already."""
        self._names[value] = name

    @contextmanager
    def scope(self, is_inside: bool = False) -> Iterator[None]:
        """A graph of its own: its names are forgotten afterwards, those outside are not seen.

        `is_inside` where XLA has a computation of its own for it.

        Graphs may share their values (partial evaluation splits one into two), so names hold for one graph only.
        """
        outer, self._names = self._names, {}
        known = self._nonzero, self._made, self._constant
        was_inside, self.is_inside = self.is_inside, self.is_inside or is_inside
        self._nonzero, self._made, self._constant = set(), {}, set()
        try:
            yield
        finally:
            self._names = outer
            self.is_inside = was_inside
            self._nonzero, self._made, self._constant = known

    # -- functions -----------------------------------------------------------------------------------------------

    def function(self, body: Graph) -> str:
        """The symbol of the private function with this body; equal bodies share one."""
        known = self._symbol_of_id.get(id(body))
        if known is not None:
            return known[1]
        symbol = self._symbols.get(body)
        if symbol is None:
            symbol = self._symbols[body] = self._fresh_symbol(body.name)
            self._pending.append((symbol, body, Labels(self._labels.phases, f"{symbol}()")))
        self._symbol_of_id[id(body)] = (body, symbol)
        return symbol

    def pending_functions(self) -> Iterator[tuple[str, Graph]]:
        """The functions that are called but not yet written, those found meanwhile included; each is written next."""
        while self._pending:
            symbol, body, self._labels = self._pending.popleft()
            yield symbol, body

    def foreign_function(self, name: str, key: Any, write: Callable[[str], Sequence[str]]) -> str:
        """The symbol of a private function that a frontend writes: `write` gives its lines, for a symbol."""
        symbol = self._foreign.get(key)
        if symbol is None:
            symbol = self._foreign[key] = self._fresh_symbol(name)
            self.foreign += write(symbol)
        return symbol

    def _fresh_symbol(self, name: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
        base = f"_{base}" if base[0].isdigit() else base
        symbol, count = base, 0
        while symbol in self._taken:
            count += 1
            symbol = f"{base}_{count}"
        self._taken.add(symbol)
        return symbol

    # -- text ----------------------------------------------------------------------------------------------------

    def type(self, type: TensorType) -> str:
        found = self._types.get(type)
        if found is None:
            found = self._types[type] = tensor(type)
        return found

    def types(self, values: Sequence[Value]) -> str:
        return ", ".join([self.type(value.type) for value in values])

    def loc(self, loc: Location | None) -> str:
        """A reference to the location's alias, which stands at the end of the module.

        Around the position stands the label of the equation that is being written, where it has one.
        """
        label = self._labels.label(loc)
        found = self._locs.get((loc, label))
        if found is None:
            found = self._locs[loc, label] = (
                self._alias(f"{quoted(label)}{self._around(loc)}") if label else (self._position(loc))
            )
        return found

    def _position(self, loc: Location | None) -> str:
        """A reference to the alias of a position alone."""
        found = self._locs.get((loc, ""))
        if found is not None or loc is None:
            return found or UNKNOWN
        place = f"{quoted(loc.file)}:{loc.line}:{loc.column}"
        text = f"{quoted(loc.function)}({place})" if loc.function else place
        found = self._locs[loc, ""] = self._alias(text)
        return found

    def _alias(self, text: str) -> str:
        self.loc_aliases.append(f"#loc{len(self.loc_aliases) + 1} = loc({text})")
        return f"loc(#loc{len(self.loc_aliases)})"

    def _around(self, loc: Location | None) -> str:
        """What follows a name in a location: the position, whose innermost name is the user's function."""
        if loc is None:
            return ""
        around = self._position(loc).removeprefix("loc")
        return around if loc.function else f'(""{around})'

    def product(self, text: str, loc: Location | None) -> None:
        """A line that is a matrix product or a convolution, with a location of its own: `loc("layer#7"(#loc1))`.

        By its name the check finds it in XLA's module (`rematc.lowering.hlo.module.provenance`). The innermost name
        stays the user's function.
        """
        self._products += 1
        name = self._labels.label(loc) or ("" if loc is None else loc.function)
        named = f"{quoted(f'{name}#{self._products}')}{self._around(loc)}"
        self.lines.append(f"    {text} {self._alias(named)}")

    def line(self, text: str, loc: Location | None) -> None:
        """One line of StableHLO with its location."""
        self.lines.append(f"    {text} {self.loc(loc)}")

    def raw(self, text: str) -> None:
        """One line as it stands: braces and the insides of regions."""
        self.lines.append(f"    {text}")

    def returned(self, op: str, names: Sequence[str], types: Sequence[str]) -> None:
        """The line that ends a region, or a function."""
        self.raw(f"{op} {', '.join(names)} : {', '.join(types)} {UNKNOWN}" if names else f"{op} {UNKNOWN}")

    def tokens(self, effect: Effect) -> list[str]:
        """The token for something of this effect to wait for: one if it is ordered, else none."""
        if effect is not Effect.ORDERED:
            return []
        assert self.token is not None, "the function around an ordered effect takes a token"
        return [self.token]

    def token_types(self, effect: Effect) -> list[str]:
        """The types of `tokens`."""
        return [TOKEN] if effect is Effect.ORDERED else []

    def equation(self, eqn: Equation) -> None:
        """Lower one equation by its op's rule."""
        rule = RULES.get(type(eqn.op))
        if rule is None:
            raise MissingRuleError(f"lowering of '{eqn.op.name}' needs a rule in lowering/ops", eqn.loc)
        found = self._labels.phases.get(eqn)
        if found is None:
            rule(self, eqn)
            return
        around = self._labels
        self._labels = around.of(eqn, found)
        rule(self, eqn)
        self._labels = around

    def body(self, graph: Graph) -> None:
        """Lower all equations of a graph whose parameters are bound."""
        around = self._labels
        self._labels = around.inside(graph)
        for eqn in graph.equations:
            self.equation(eqn)
            if self._constant.issuperset(eqn.operands):
                self._constant.update(eqn.results)
            else:
                self._made.update(dict.fromkeys(eqn.results, self._count))
        self._labels = around

    # -- what is known of values -----------------------------------------------------------------------------------

    def latest(self, values: Iterable[Value]) -> Value | None:
        """The one that is computed last; what follows from constants alone, and may be computed at any time, is none.

        Values of the graph that is being written: its parameters are there from the beginning.
        """
        varying = [value for value in values if value not in self._constant]
        return max(varying, key=lambda value: self._made.get(value, -1), default=None)

    def note_nonzero(self, value: Value) -> None:
        """Say that no element of a value is zero."""
        self._nonzero.add(value)

    def is_nonzero(self, value: Value) -> bool:
        """Whether it is known that no element is zero."""
        return value in self._nonzero
