"""The IR's data: ops, equations, graphs. All of it is immutable; a pass returns a new graph.

A `Graph` is a function in static single assignment form: parameters, equations in order, results. An `Equation`
applies one `Op` to values. Ops that own graphs hold them as fields; such a region is closed: it reads its own
parameters and nothing of the graph around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from rematc.ir.batches import Batch
from rematc.ir.decisions import Decision
from rematc.ir.errors import missing_rule
from rematc.ir.facts import Effect, Storage, Weight
from rematc.ir.locations import Location
from rematc.ir.schedules import Schedule
from rematc.ir.slicings import Part, Slicing, everywhere
from rematc.ir.stacking import Unstacked
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value
from rematc.ir.vocabulary import Vocabulary

T = TypeVar("T")


class Emitter(Vocabulary, Protocol):
    """What a rule may write equations through (`rematc.ir.builder.Builder`): ops by methods, and any by `emit`."""

    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]: ...
    def emit1(self, op: Op, *operands: Value) -> Value: ...
    def inline(self, graph: Graph, operands: Sequence[Value]) -> tuple[Value, ...]: ...


class JvpContext(Emitter, Protocol):
    """What a jvp rule is given: an emitter, and the transformations of graphs that it may need."""

    def jvp_of(self, graph: Graph, has_tangent: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
        """The graph of primals and present tangents, and which results have tangents."""

    def vmap_of(self, graph: Graph, is_batched: Sequence[bool], size: int) -> tuple[Graph, tuple[bool, ...]]:
        """The graph of a batch of this size, and which results are batched."""

    def instead(self, results: Primals) -> None:
        """Let these values stand for the results: the equation itself is not applied."""


class TransposeContext(Emitter, Protocol):
    """What a transpose rule is given."""

    def adjoint_of(
        self, graph: Graph, is_linear: Sequence[bool], has_ct: Sequence[bool]
    ) -> tuple[Graph, tuple[bool, ...]]:
        """The graph of known values and present cts, and which linear parameters get a ct."""

    def schedule(self, steps: int, snapshots: int) -> Schedule:
        """In which order the adjoints of so many steps are taken, with so many carries kept at a time."""


class VmapContext(Emitter, Protocol):
    """What a vmap rule is given."""

    #: The name of the batch dimension, for collectives.
    axis: str | None

    def vmap_of(
        self, graph: Graph, is_batched: Sequence[bool], size: int | None = None
    ) -> tuple[Graph, tuple[bool, ...]]:
        """The graph of this batch, or of one of another size, and which results are batched."""

    def one_by_one(self, op: Op, batch: Batch) -> tuple[Value, ...]:
        """The op on each element of the batch, one after another; all results are batched."""


class Policy(Protocol):
    """Decides what may be a residual."""

    @property
    def spec(self) -> str:
        """The policy as text: `dots`, `names=a,b`, `file.py:function`."""

    @property
    def is_everything(self) -> bool:
        """Whether the policy lets every value be saved: then a checkpoint changes nothing."""

    @property
    def saves_least(self) -> bool:
        """Whether of what may be saved as few bytes are as will do: what follows from them by fusible work is not."""

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        """One decision per result of `op`, or a single one for all of them.

        `names` are those that `checkpoint_name` gave to the value, under whichever alias the backward graph reads it.
        """


class PartContext(Emitter, Protocol):
    """What a rule of parts is given: an emitter, and graphs to write for an op that owns some."""

    def inside(self, name: str) -> GraphContext:
        """A new graph, to be that of an op."""


class GraphContext(PartContext, Protocol):
    """A graph in the making inside of a rule."""

    def parameter(self, type: TensorType, name: str | None = None) -> Value: ...
    def at(self, loc: Location | None) -> AbstractContextManager[None]: ...
    def build(self, *results: Value) -> Graph: ...


class SplitContext(Protocol):
    """What a split rule is given: partial evaluation."""

    def split_of(self, graph: Graph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitGraph:
        """A graph in two, under a policy; without one, every value that the staged graph needs is a residual."""

    def split_of_step(self, graph: Graph, is_unknown: Sequence[bool], unstacked: Unstacked) -> SplitGraph:
        """The step of a loop without a policy: the fewest bytes from which what is needed follows are saved."""

    def rematerialized(self, graph: Graph, policy: Policy) -> SplitGraph:
        """A known graph in one that saves what the policy lets it, and a staged one of the same results."""


class Op:
    """A primitive with its parameters: a frozen dataclass whose fields are the parameters and whose methods are
    its rules, in the order infer, reference, jvp, transpose, vmap, slicings, part, flops.

    Rules take and return tuples, one entry per operand or result. None stands for a symbolic zero.

    Beside the rules stand facts, which passes, policies and memory models read and state nowhere else. An op says those
    in which it differs from its family, and a family those in which it differs from this class: what says nothing is
    written to memory, takes time, and is merged and repeated as passes like.
    """

    __slots__ = ()
    name: ClassVar[str]
    #: A matrix product or convolution in the sense of the `dots` policies.
    is_product: ClassVar[bool] = False
    storage: ClassVar[Storage] = Storage.WRITTEN
    weight: ClassVar[Weight] = Weight.HEAVY
    #: An element of the result depends on the operands' elements at its place alone; an operand of rank 0 serves all.
    is_elementwise: ClassVar[bool] = False
    #: The results are the operands: it is there for what it tells passes or the backend.
    is_identity: ClassVar[bool] = False
    #: A function of others: nobody knows what it takes, and it is called only when the program runs.
    is_opaque: ClassVar[bool] = False
    #: How it acts along dimensions is found in its graphs, whose values have the dimensions of its operands.
    is_cut_inside: ClassVar[bool] = False
    #: Two equations of it with the same operands are as good as one.
    is_mergeable: ClassVar[bool] = True
    #: Why this op has no jvp, transpose or vmap rule, where it has none: every op has the rule or the reason.
    no_jvp: ClassVar[str] = ""
    no_transpose: ClassVar[str] = ""
    no_vmap: ClassVar[str] = ""

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        """Result types for operand types. Raises TypeMismatchError where the operands do not fit."""
        raise NotImplementedError

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The meaning of the op, in NumPy."""
        raise NotImplementedError

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        """Tangents of the results. At least one tangent is not None.

        A rule that computes the results together with their tangents says so by `b.instead`, and reads no `results`.
        """
        raise missing_rule(self.name, type(self), "jvp", self.no_jvp)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        """Cotangents of the operands: None for those with a value, and for symbolic zeros."""
        raise missing_rule(self.name, type(self), "transpose", self.no_transpose)

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        """The op applied to each element of a batch, which is not empty but for ops with regions.

        At least one operand is batched, but where a collective is inside. The results likewise: one that has its batch
        dimension is batched, one that has the op's own type is not.
        """
        raise missing_rule(self.name, type(self), "vmap", self.no_vmap)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        """The ways in which the op can be applied in parts; along what none of them names it needs its operands whole.

        The rule of most ops follows from what their family says. An op of which nothing is known has none.
        """
        return everywhere(operands, results) if self.is_elementwise else ()

    def part(self, b: PartContext, part: Part, operands: Primals) -> tuple[Value, ...]:
        """The op applied to one part of its operands, in one of its ways.

        A result that is added up may have the element type in which that is done (`rematc.ir.slicings.sum_dtype`).
        """
        return b.emit(self, *operands)

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion | None:
        """What the known operands determine apart from the rest; `policy` is that of the graph around the op.

        None for an op that stays whole: known if all of its operands are.
        """
        return None

    def without_unused(self, used: Sequence[bool]) -> tuple[Op, tuple[int, ...], tuple[int, ...]] | None:
        """The op with only the used results: (op, indices of the operands it still takes, of the results it gives).

        None for an op that cannot do with fewer.
        """
        return None

    def flops(self, operands: Types, results: Types) -> int:
        """Floating-point operations of one application; an n-term sum counts n, a product and sum two."""
        return 0

    def regions(self) -> tuple[Graph, ...]:
        """The graphs that this op owns, in field order."""
        return ()

    def over_steps(self, flags: Sequence[bool]) -> tuple[bool, ...]:
        """Flags of the operands, with those of the carries that a flagged operand reaches in some step of a loop."""
        return tuple(flags)

    def origin(self, result: int) -> Origin | None:
        """The equation inside that computes a result, for reports; None where the op computes it itself."""
        return None

    @property
    def effect(self) -> Effect:
        """What applying the op does besides giving results: the most that its regions do."""
        return (
            max([graph.effect for graph in self.regions()], default=Effect.NONE) if has_regions(self) else Effect.NONE
        )

    @property
    def is_fusible(self) -> bool:
        """Whether XLA computes it as a part of what uses it: it costs little time, and needs no memory of its own."""
        return self.storage is not Storage.WRITTEN

    @property
    def is_exact(self) -> bool:
        """Whether an element has the same bits however many are computed: no vector unit rounds otherwise."""
        return self.is_elementwise and self.weight is Weight.LIGHT

    @property
    def is_repeatable(self) -> bool:
        """Whether a backward pass may compute the results again; effects of regions are left out there."""
        return bool(self.regions()) or not self.effect

    def commutes(self, operands: Types) -> bool:
        """Whether the operands are two, and may be exchanged to the bit."""
        return False

    def overwrites(self, result: int) -> int | None:
        """The operand in whose memory this result lies, if nothing reads the operand any more; None for its own."""
        return None

    @property
    def axes(self) -> frozenset[str]:
        """The names of the batch dimensions over which the op, or one in its regions, is a collective."""
        return frozenset().union(*[graph.axes for graph in self.regions()])


def has_regions(op: Op) -> bool:
    """Whether ops of its class own graphs; most do not, and are not asked."""
    return type(op).regions is not Op.regions


def _is_silent(op: Op) -> bool:
    """Whether ops of its class have no effect and name no batch dimension; most have none, and are not asked."""
    return not has_regions(op) and type(op).effect is Op.effect and type(op).axes is Op.axes


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """One op applied to values."""

    op: Op
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    loc: Location | None = None

    @property
    def operand_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.operands)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.results)

    @property
    def flops(self) -> int:
        return self.op.flops(self.operand_types, self.result_types)

    @property
    def commutes(self) -> bool:
        """Whether the operands are two, and may be exchanged to the bit."""
        return type(self.op).commutes is not Op.commutes and self.op.commutes(self.operand_types)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A function in SSA form.

    Two graphs are equal if they differ only in the names of their values and in locations.
    """

    name: str
    params: tuple[Value, ...]
    equations: tuple[Equation, ...]
    results: tuple[Value, ...]
    _key: list[tuple[object, ...]] = field(default_factory=list, init=False, repr=False)
    _hash: list[int] = field(default_factory=list, init=False, repr=False)
    _effect: list[Effect] = field(default_factory=list, init=False, repr=False)
    _axes: list[frozenset[str]] = field(default_factory=list, init=False, repr=False)
    _with_regions: list[tuple[Equation, ...]] = field(default_factory=list, init=False, repr=False)
    _op_types: list[frozenset[type[Op]]] = field(default_factory=list, init=False, repr=False)
    _remembered: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def param_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.params)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.results)

    def __repr__(self) -> str:
        sizes = f"{len(self.params)} parameters, {len(self.equations)} equations, {len(self.results)} results"
        return f"Graph({self.name!r}, {sizes})"

    @property
    def effect(self) -> Effect:
        """The most that an equation does besides giving results."""
        if not self._effect:
            ops = [eqn.op for eqn in self.equations if not _is_silent(eqn.op)]
            self._effect.append(max([op.effect for op in ops], default=Effect.NONE))
        return self._effect[0]

    @property
    def axes(self) -> frozenset[str]:
        """Those of its ops."""
        if not self._axes:
            ops = [eqn.op for eqn in self.equations if not _is_silent(eqn.op)]
            self._axes.append(frozenset().union(*[op.axes for op in ops]))
        return self._axes[0]

    @property
    def with_regions(self) -> tuple[Equation, ...]:
        """Those of its equations whose ops own graphs."""
        if not self._with_regions:
            self._with_regions.append(
                tuple([eqn for eqn in self.equations if has_regions(eqn.op) and eqn.op.regions()])
            )
        return self._with_regions[0]

    @property
    def op_types(self) -> frozenset[type[Op]]:
        """The classes of its ops, and of those in their regions."""
        if not self._op_types:
            inside = [region.op_types for eqn in self.with_regions for region in eqn.op.regions()]
            self._op_types.append(frozenset([type(eqn.op) for eqn in self.equations]).union(*inside))
        return self._op_types[0]

    def remembered(self, key: object, make: Callable[[], T]) -> T:
        """What an analysis of the graph has found, which `make` does the first time: as long as there is the graph."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: T = self._remembered[key]
        return found

    def key(self) -> tuple[object, ...]:
        """The graph's structure with values numbered in order of definition: what equality and hashing compare."""
        if not self._key:
            self._key.append(_structure(self))
        return self._key[0]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Graph) and self.name == other.name and self.key() == other.key()

    def __hash__(self) -> int:
        if not self._hash:
            self._hash.append(hash(self.key()))
        return self._hash[0]


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """A graph in two: what is evaluated now, and what later.

    Attributes:
        known: known parameters to known results, then residuals.
        staged: residuals, then unknown parameters, to unknown results.
        is_unknown: for each result of the whole graph, whether it is unknown.
        sources: for each residual, the index of the known parameter that it is; None for a computed one.
    """

    known: Graph
    staged: Graph
    is_unknown: tuple[bool, ...]
    sources: tuple[int | None, ...]

    @property
    def residuals(self) -> tuple[Value, ...]:
        """Values of the known graph."""
        return self.known.results[len(self.known.results) - len(self.sources) :]

    @property
    def residual_params(self) -> tuple[Value, ...]:
        """The parameters of the staged graph that the residuals are."""
        return self.staged.params[: len(self.sources)]

    @property
    def unknown_params(self) -> tuple[Value, ...]:
        """The others."""
        return self.staged.params[len(self.sources) :]

    @property
    def known_results(self) -> tuple[Value | None, ...]:
        """For each result of the whole graph its value in the known one; None for an unknown one."""
        given = iter(self.known.results)
        return tuple([None if is_set else next(given) for is_set in self.is_unknown])

    @property
    def unknown_results(self) -> tuple[Value | None, ...]:
        """For each result of the whole graph its value in the staged one; None for a known one."""
        given = iter(self.staged.results)
        return tuple([next(given) if is_set else None for is_set in self.is_unknown])


@dataclass(frozen=True, slots=True)
class SplitRegion:
    """An op with regions in two.

    Attributes:
        known: a graph to inline now: known operands to known results, then residuals.
        staged: a graph to inline later: residuals, then what `again` recomputes, then unknown operands, to unknown
            results.
        is_unknown: for each result of the whole op, whether it is unknown.
        again: how the staged side has known values: residuals to known results, then what `staged` needs beside the
            residuals. None where the policy around the op is asked about each residual.
        is_decided: with `again`: for each residual, whether the op has asked that policy, which lets it be saved.
    """

    known: Graph
    staged: Graph
    is_unknown: tuple[bool, ...]
    again: Graph | None = None
    is_decided: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a result of an op with regions comes from.

    Attributes:
        eqn: the equation inside that computes it.
        steps: how many of its results are stacked.
    """

    eqn: Equation
    steps: int


def _structure(graph: Graph) -> tuple[object, ...]:
    number: dict[Value, int] = {}
    for value in graph.params:
        number[value] = len(number)
    body = []
    for eqn in graph.equations:
        operands = tuple(number[value] for value in eqn.operands)
        for value in eqn.results:
            number[value] = len(number)
        body.append((eqn.op, operands, eqn.result_types))
    return (graph.param_types, tuple(body), tuple(number[value] for value in graph.results))
