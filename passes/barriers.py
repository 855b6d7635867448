"""Make XLA keep recomputation where it is: checkpoint regions become plain equations behind a barrier.

Before:  %3: f32[4] = checkpoint %x, %ct {is_differentiated=true, body=graph @g(%a: f32[4], %c: f32[4]) ... }
After:   %0, %1: f32[4], f32[4] = optimization_barrier %x, %ct
         ... the body of @g over %0 and %1

The barrier holds the residuals and the incoming cotangents: XLA can neither merge the recomputation with the forward
evaluation, nor start it before the cotangent is there. Without the cotangent nothing is saved. A region that is not
differentiated needs no barrier and dissolves. Operands for which `prevent_cse` is not set pass by, and in the body of a
loop all operands where nothing is said of it, unless the forward evaluation is in the same body. Parameters of the
program are held as well: what follows from them alone (a weight in another element type, a scale for each row of a
batch) would be the forward evaluation's, kept until then.

Two strategies are for compilers that drop barriers before they schedule (XLA:CPU before jaxlib 0.12, where one cannot
pass compile options). With `call` the region becomes a function that XLA on the CPU must not inline; it moves nothing
into a function or out of it, and where it takes more than linear time, as for the order of kernels, it sees each one
alone. With `conditional` the region becomes the branch of a `case` that is always taken, which the compiler cannot
know, since its index follows from the bits of an operand that depends on the program's arguments.

Functions are also what deep programs compile fastest with, if their layers are alike, so that one text serves them all:
`auto` takes them there, and barriers elsewhere, since nothing is fused into a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.facts import Storage
from rematc.ir.locations import Location
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.complex_parts import Real
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.logical import Or
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import Name, OptimizationBarrier
from rematc.ir.policy import is_private
from rematc.ir.spelling import suggestion
from rematc.ir.splicing import splice
from rematc.ir.traversal import all_equations
from rematc.ir.types import F32, I32
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter

STRATEGIES = ("auto", "optimization_barrier", "call", "conditional", "none")

#: Functions are for programs of so many regions, of which so many have one body between them.
_REGIONS, _ALIKE = 16, 8


@register_pass
@dataclass(frozen=True, slots=True)
class Barriers(Pass):
    """Dissolve checkpoint regions, the differentiated ones behind a barrier.

    Attributes:
        strategy: `optimization_barrier`, `call`, `conditional`, or `none` to let XLA merge as it likes; `auto` is
            `call` for deep programs whose regions are alike, and barriers for others.
    """

    name: ClassVar[str] = "barriers"
    strategy: str = "auto"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            hint = suggestion(self.strategy, STRATEGIES)
            raise CompileError(f"unknown barrier strategy '{self.strategy}'{hint} (known: {', '.join(STRATEGIES)})")

    def run(self, graph: Graph) -> Graph:
        if not any(eqn.op.regions() for eqn in graph.equations):
            return graph
        # A barrier is live as a whole: what only unused results of a region need must be gone before.
        graph = DeadCode().run(graph)
        if self.strategy == "auto":
            return replace(self, strategy="call" if _is_deep(graph) else "optimization_barrier")._dissolved(
                graph, False
            )
        return self._dissolved(graph, False)

    def _dissolved(self, graph: Graph, is_in_loop: bool) -> Graph:
        place = _Place(is_in_loop, set(graph.params), dict.fromkeys(graph.results))
        self._dissolve(graph.equations, place)
        results = tuple([place.env.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(place.equations), results)

    def _dissolve(self, equations: Sequence[Equation], place: _Place) -> None:
        for eqn in equations:
            operands = tuple([place.env.get(value, value) for value in eqn.operands])
            match eqn.op:
                case Checkpoint(is_differentiated=True) as op if any(pins := place.pins(op, operands)):
                    self._keep(op, Equation(op, operands, eqn.results, eqn.loc), pins, place)
                case Checkpoint() as op:
                    self._inline(op, operands, eqn, place)
                case Name(label) if is_private(label):
                    # It says what segments may read, of which there are none any more. XLA merges equal equations of a
                    # value and of its names; what is not merged here is predicted, and planned, as two.
                    place.env[eqn.results[0]] = operands[0]
                case Call() as op:
                    body = self._dissolved(op.body, place.is_in_loop)
                    place.append(Equation(replace(op, body=body), operands, eqn.results, eqn.loc))
                case op if op.regions():
                    # Between the steps of two loops XLA merges nothing: recomputation in a step needs no barrier.
                    is_inside = place.is_in_loop or not (isinstance(op, Scan) and op.is_unrolled)
                    inside = RegionRewriter(partial(self._dissolved, is_in_loop=is_inside)).op(op)
                    place.append(Equation(inside, operands, eqn.results, eqn.loc))
                case op:
                    place.append(eqn if operands == eqn.operands else Equation(op, operands, eqn.results, eqn.loc))

    def _inline(self, op: Checkpoint, operands: tuple[Value, ...], eqn: Equation, place: _Place) -> None:
        body: list[Equation] = []
        results = splice(op.body, operands, body)
        self._dissolve(body, place)
        place.env.update(zip(eqn.results, [place.env.get(value, value) for value in results], strict=True))

    def _keep(self, op: Checkpoint, eqn: Equation, pins: Sequence[bool], place: _Place) -> None:
        """Dissolve a differentiated region so that what it recomputes stays where it is."""
        pinned = tuple(dict.fromkeys(value for value, is_set in zip(eqn.operands, pins, strict=True) if is_set))
        if self.strategy == "conditional" and (source := place.opaque(pinned)) is not None:
            for one in _as_branch(self._dissolved(op.body, place.is_in_loop), eqn, source):
                place.append(one)
            return
        if self.strategy == "call":
            body = self._dissolved(op.body, place.is_in_loop)
            place.append(Equation(Call(body, tuple(pins)), eqn.operands, eqn.results, eqn.loc))
            return
        operands = eqn.operands
        if self.strategy == "optimization_barrier":
            held = [*pinned, *place.finished(pinned)]
            if op.is_scheduled:
                held.sort(key=place.order)
            results = tuple(Value(value.type, value.name) for value in held)
            place.append(Equation(OptimizationBarrier(), tuple(held), results, eqn.loc))
            renamed = dict(zip(held, results, strict=True))
            operands = tuple(
                [renamed[value] if is_set else value for value, is_set in zip(operands, pins, strict=True)]
            )
        self._inline(op, operands, eqn, place)


def barrier_behind(values: Sequence[Value], names: dict[Value, Value], loc: Location | None) -> Equation:
    """A barrier behind values, by their names, which are then what it gives."""
    operands = tuple([names.get(value, value) for value in values])
    results = tuple([Value(value.type, value.name) for value in values])
    names.update(zip(values, results, strict=True))
    return Equation(OptimizationBarrier(), operands, results, loc)


def has_recomputation(graph: Graph) -> bool:
    """Whether there are barriers, or functions that XLA must not inline, in a graph or its regions."""
    if OptimizationBarrier in graph.op_types:
        return True
    ops = (eqn.op for eqn in (all_equations(graph) if Call in graph.op_types else ()))
    return any(isinstance(op, Call) and not op.is_inlineable for op in ops)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a region stands, and what has become of the equations there so far.

    Attributes:
        is_in_loop: whether it is the body of a loop.
        variable: values that depend on parameters; the others are known when the program is compiled.
        unheld: the results of the graph that no barrier holds yet.
        equations: the new equations.
        env: for results of regions that have dissolved their values.
        computed: the results of the equations, in order.
        evaluated: the results of the equations of a loop's body, by op and operands.
    """

    is_in_loop: bool
    variable: set[Value]
    unheld: dict[Value, None]
    equations: list[Equation] = field(default_factory=list)
    env: dict[Value, Value] = field(default_factory=dict)
    computed: dict[Value, int] = field(default_factory=dict)
    evaluated: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = field(default_factory=dict)

    def append(self, eqn: Equation) -> None:
        """Add an equation."""
        self.equations.append(eqn)
        for result in eqn.results:
            self.computed[result] = len(self.computed)
        if self.is_in_loop and not eqn.op.regions():
            self.evaluated.setdefault((eqn.op, eqn.operands), eqn.results)
        if eqn.op.effect or not self.variable.isdisjoint(eqn.operands):
            self.variable.update(eqn.results)

    def order(self, value: Value) -> int:
        """When a value is computed: XLA:CPU runs what is ready in the order in which a walk over barriers meets it."""
        return self.computed.get(value, -1)

    def finished(self, pinned: Sequence[Value]) -> list[Value]:
        """The results of the graph that are computed here, which a barrier holds, too, if none before it did.

        The cotangent of a loss is a constant: XLA would begin the recomputation before the loss is there, and hold
        twice what both read. Gradients of weights wait for nothing: what they are products of would be held until then.
        """
        values = {self.env.get(value, value): value for value in self.unheld}
        done = [value for value in values if value in self.computed]
        for value in done:
            del self.unheld[values[value]]
        return [value for value in done if value not in pinned]

    def opaque(self, values: Sequence[Value]) -> Value | None:
        """The last of the values whose bits no compiler can know; None where there is none."""
        return next((value for value in reversed(values) if value.type.size and value in self.variable), None)

    def pins(self, op: Checkpoint, operands: Sequence[Value]) -> tuple[bool, ...]:
        """Which operands of a differentiated region are held behind its barrier."""
        is_apart = self.is_in_loop and not self._evaluates(op.body, operands)
        return op.pinned_in_loop if is_apart else op.pinned

    def _evaluates(self, body: Graph, operands: Sequence[Value]) -> bool:
        """Whether work of a region stands here already: its forward evaluation, with which XLA would merge it."""
        env: dict[Value, Value] = dict(zip(body.params, operands, strict=True))
        for eqn in body.equations:
            read = [env[value] for value in eqn.operands if value in env]
            found = self.evaluated.get((eqn.op, tuple(read))) if len(read) == len(eqn.operands) else None
            if found is None:
                continue
            is_work = eqn.op.is_elementwise or eqn.op.storage is Storage.WRITTEN
            if is_work and not self.variable.isdisjoint(read):
                return True
            env.update(zip(eqn.results, found, strict=True))
        return False


def _is_deep(graph: Graph) -> bool:
    """Whether a graph recomputes in many regions, most of which have the same bodies."""
    bodies = [eqn.op.body for eqn in graph.equations if isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated]
    # To compare graphs costs their size: only where there are enough of them.
    return len(bodies) >= _REGIONS and len(bodies) >= _ALIKE * len(set(bodies))


def _as_branch(body: Graph, eqn: Equation, source: Value) -> list[Equation]:
    """A `case` that always takes the body; its index is an odd number out of the bits of `source`."""
    b = Builder("branch")
    b.loc = eqn.loc
    first = b.reshape(b.slice(source, (0,) * source.type.rank, (1,) * source.type.rank), ())
    if first.type.dtype.is_complex:
        first = b.emit1(Real(), first)
    is_float = first.type.dtype.is_float
    bits = b.emit1(BitcastConvert(I32), b.convert(first, F32)) if is_float else b.convert(first, I32)
    index = b.emit1(Or(), bits, b.full(bits.type, 1))
    skip = Builder("skipped")
    for value in body.params:
        skip.parameter(value.type, value.name)
    skipped = skip.build(*[skip.zeros(value.type) for value in body.results])
    case = Equation(Case((skipped, body)), (index, *eqn.operands), eqn.results, eqn.loc)
    return [*b.equations, case]
