"""The IR as text.

    graph @loss(%x: f32[4,8], %w: f32[8,8]) -> (f32[]) {
      %0: f32[4,8] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]} loc("model.py":12:8)
      %1: f32[] = reduce_sum %0 {dimensions=[0,1]} loc("loss"("model.py":13:9))
      return %1
    }

The text depends on the graph alone: parameters print under their name hints, all other values under their number.
`rematc.ir.parser.parse_graph` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.fields import record_of
from rematc.ir.literals import quoted
from rematc.ir.locations import Location
from rematc.ir.types import TensorType
from rematc.ir.values import Value

UNDEFINED = "%?"
_SYMBOL = re.compile(r"[A-Za-z0-9_.]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]+")


def print_graph(graph: Graph, *, locations: bool = True) -> str:
    """The graph as text that ends with a line break; without locations where only the computation matters."""
    return _Printer(locations).graph(graph) + "\n"


def print_excerpt(graph: Graph, index: int, around: int = 3) -> str:
    """The equations around one of a graph, one line each, that one marked by `>`; the graph may break any law."""
    names = name_values(graph)
    printer = _Printer(locations=True)
    lines = []
    for at in range(max(0, index - around), min(len(graph.equations), index + around + 1)):
        head, *rest = printer.equation(graph.equations[at], names).split("\n")
        mark = ">" if at == index else " "
        lines.append(f"{mark} {head}{' ...' if rest else ''}")
    return "\n".join(lines)


def print_equations(equations: Iterable[Equation], names: Mapping[Value, str]) -> str:
    """Equations in order, one a line, without locations: what they compute, of values that have names.

    Their results are numbered from 0, and known by these numbers in what follows.
    """
    printer = _Printer(locations=False)
    local: dict[Value, str] = {}
    count = 0
    lines = []
    for eqn in equations:
        local |= {value: names[value] for value in eqn.operands if value not in local and value in names}
        for value in eqn.results:
            local[value] = f"%{count}"
            count += 1
        lines.append(printer.equation(eqn, local))
    return "\n".join(lines)


def name_values(graph: Graph) -> dict[Value, str]:
    """The name of each value in the graph's text: hints for parameters, numbers for the rest."""
    names: dict[Value, str] = {}
    taken: dict[str, int] = {}
    for index, param in enumerate(graph.params):
        names.setdefault(param, "%" + _unique(_identifier(param.name, index), taken))
    count = 0
    for eqn in graph.equations:
        for value in eqn.results:
            if value not in names:
                names[value] = f"%{count}"
                count += 1
    return names


def _identifier(hint: str | None, index: int) -> str:
    """`params['w']` as `params_w`. Numbers alone are names of results, so a hint that starts with a digit gets `_`."""
    name = hint or ""
    if not _SYMBOL.fullmatch(name):
        name = _NOT_IN_NAMES.sub("_", name).strip("_")
    if not name:
        return f"arg{index}"
    return f"_{name}" if name[0].isdigit() else name


def _unique(name: str, taken: dict[str, int]) -> str:
    """`name`, or the first of `name_1`, `name_2`, ... that is free; `taken` counts what was tried of each name."""
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 0
    return candidate


class _Printer:
    """Prints graphs; `rematc.ir.forms.Writer` for the fields of ops."""

    def __init__(self, locations: bool) -> None:
        self._locations = locations
        self._indent = ""
        self._types: dict[TensorType, str] = {}
        # By identity: equal ops may print differently (0.0 and -0.0), and hashing one costs as much as printing it.
        self._ops: dict[int, str] = {}
        self._locs: dict[int, str] = {}

    def graph(self, graph: Graph) -> str:
        """The graph without a line break at its end."""
        names = name_values(graph)
        outer = self._indent
        self._indent = inner = outer + "  "
        params = ", ".join([f"{names[param]}: {self._type(param.type)}" for param in graph.params])
        results = ", ".join([self._type(value.type) for value in graph.results])
        lines = [f"graph {_symbol(graph.name)}({params}) -> ({results}) {{"]
        lines.extend([inner + self.equation(eqn, names) for eqn in graph.equations])
        returned = _joined(graph.results, names)
        lines.append(f"{inner}return {returned}" if returned else f"{inner}return")
        lines.append(outer + "}")
        self._indent = outer
        return "\n".join(lines)

    def region(self, graph: Graph) -> str:
        return self.graph(graph)

    def equation(self, eqn: Equation, names: Mapping[Value, str]) -> str:
        """One equation; names that are missing print as `%?`."""
        text = self._op(eqn.op, _joined(eqn.operands, names))
        if eqn.results:
            results = ", ".join([f"{names.get(value, UNDEFINED)}: {self._type(value.type)}" for value in eqn.results])
            text = f"{results} = {text}"
        return f"{text} {self._loc(eqn.loc)}" if eqn.loc is not None and self._locations else text

    def _op(self, op: Op, operands: str) -> str:
        head = f"{op.name} {operands}" if operands else op.name
        fields = self._ops.get(id(op))
        if fields is None:
            fields = record_of(type(op)).write_fields(op, self)
            if not op.regions():  # what a region prints as depends on its indentation
                self._ops[id(op)] = fields
        return f"{head} {{{fields}}}" if fields else head

    def _type(self, type: TensorType) -> str:
        text = self._types.get(type)
        if text is None:
            text = self._types[type] = str(type)
        return text

    def _loc(self, loc: Location) -> str:
        text = self._locs.get(id(loc))
        if text is None:
            place = f"{quoted(loc.file)}:{loc.line}:{loc.column}"
            text = f"loc({quoted(loc.function)}({place}))" if loc.function else f"loc({place})"
            self._locs[id(loc)] = text
        return text


def _joined(values: Iterable[Value], names: Mapping[Value, str]) -> str:
    return ", ".join([names.get(value, UNDEFINED) for value in values])


def _symbol(name: str) -> str:
    return f"@{name}" if _SYMBOL.fullmatch(name) else f"@{quoted(name)}"
