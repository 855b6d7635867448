"""The laws of the IR, checked on a graph.

A graph that breaks one is a fault of whoever made it: the pass that ran last, or the text that was parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError, VerifierError
from rematc.ir.locations import Location
from rematc.ir.printer import print_excerpt
from rematc.ir.registry import OPS
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Law:
    """A law that each equation obeys.

    Attributes:
        text: what holds.
        breach: says how an equation breaks it, given the values defined before it; "" if it does not.
        is_local: whether it concerns the equation alone: then it holds wherever the equation stands.
    """

    text: str
    breach: Callable[[Equation, set[Value]], str]
    is_local: bool


def _unregistered(eqn: Equation, defined: set[Value]) -> str:
    if OPS.get(eqn.op.name) is type(eqn.op):
        return ""
    return f"{type(eqn.op).__name__} is not the op registered as '{eqn.op.name}'"


def _undefined(eqn: Equation, defined: set[Value]) -> str:
    if defined.issuperset(eqn.operands):
        return ""
    missing = [str(index) for index, value in enumerate(eqn.operands) if value not in defined]
    return f"operand {', '.join(missing)} of '{eqn.op.name}' has no definition before it"


def _redefined(eqn: Equation, defined: set[Value]) -> str:
    if defined.isdisjoint(eqn.results) and (len(eqn.results) == 1 or len(set(eqn.results)) == len(eqn.results)):
        return ""
    return f"a result of '{eqn.op.name}' is a value that is defined already"


def _mistyped(eqn: Equation, defined: set[Value]) -> str:
    try:
        check_types(eqn)
    except CompileError as error:
        return error.message
    return ""


LAWS = (
    Law("an op is the one registered under its name", _unregistered, is_local=True),
    Law(
        "an operand is defined before it is used, in its own graph: a region reads nothing around it",
        _undefined,
        is_local=False,
    ),
    Law("a value is defined once", _redefined, is_local=False),
    Law("an op takes its operands, and its results have the types that it infers", _mistyped, is_local=True),
)
CONTEXTUAL_LAWS = tuple(law for law in LAWS if not law.is_local)
UNIQUE_PARAMS = "the parameters of a graph are distinct"
DEFINED_RESULTS = "the results of a graph are defined in it"


def check_types(eqn: Equation) -> None:
    """Raise TypeMismatchError where an op does not take its operands, VerifierError where its results are of other
    types than it infers.
    """
    inferred = eqn.op.infer([value.type for value in eqn.operands])
    found = eqn.result_types
    if inferred != found:
        given, expected = (", ".join(map(str, types)) for types in (found, inferred))
        raise VerifierError(f"'{eqn.op.name}' gives ({expected}), its results are of type ({given})")


def verify(graph: Graph, checked: Collection[Equation] = frozenset()) -> None:
    """Check every law on a graph and, one by one, on the regions in it.

    Args:
        graph: what to check.
        checked: equations that obeyed the laws in another graph. They never change, so that only their place in this
            graph is checked; a pass leaves most equations as they are.

    Raises:
        VerifierError: the first breach, at the user's line, with the equations around it.
    """
    _Verifier(checked).graph(graph, None)


@dataclass(slots=True)
class _Verifier:
    checked: Collection[Equation]
    # Graphs that hold, by identity: a function that is called often is one graph, checked once.
    holding: dict[int, Graph] = field(default_factory=dict)

    def graph(self, graph: Graph, loc: Location | None) -> None:
        """Check a graph; `loc` is where it stands, for equations without a location."""
        if id(graph) in self.holding:
            return
        defined = set(graph.params)
        if len(defined) != len(graph.params):
            raise VerifierError(f"in graph '{graph.name}': {UNIQUE_PARAMS}, but one occurs twice", loc)
        for index, eqn in enumerate(graph.equations):
            is_checked = eqn in self.checked
            for law in CONTEXTUAL_LAWS if is_checked else LAWS:
                breach = law.breach(eqn, defined)
                if breach:
                    raise VerifierError(_report(graph, index, law, breach), eqn.loc or loc)
            if not is_checked:
                for region in eqn.op.regions():
                    self.graph(region, eqn.loc or loc)
            defined.update(eqn.results)
        if not defined.issuperset(graph.results):
            missing = [str(index) for index, value in enumerate(graph.results) if value not in defined]
            raise VerifierError(
                f"in graph '{graph.name}': {DEFINED_RESULTS}, but result {', '.join(missing)} is not", loc
            )
        self.holding[id(graph)] = graph


def _report(graph: Graph, index: int, law: Law, breach: str) -> str:
    where = f"in graph '{graph.name}', where {law.text}:"
    return f"{breach}\n{where}\n{print_excerpt(graph, index)}"
