"""A jaxpr on its way into a graph, and the registry of rules that take its equations there.

A rule is a function of (block, eqn) that emits ops and returns the values of the equation's outputs. Rules stand in
modules of this folder by family; `rematc.compiler.frontends.jax.importing` gathers them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import numpy as np
from jax.extend.core import Literal

from rematc.compiler.frontends.jax.activity import Varying, useful_variables
from rematc.compiler.frontends.jax.parameters import recorded, unread
from rematc.compiler.frontends.jax.policies import AskedPolicy, marked
from rematc.compiler.frontends.jax.values import as_numpy, is_count, scoped, type_of, without_keys
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.locations import Location
from rematc.ir.ops.mapped import Manual
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import own_name, with_plain_integers
from rematc.lowering.jax_internals.keys import is_key
from rematc.lowering.jax_internals.locations import equation_location, scopes_of
from rematc.lowering.jax_internals.references import is_reference, makes_references, without_own_references
from rematc.lowering.program import PlatformChoice
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target

Rule = Callable[["Block", Any], Sequence[Value]]
#: What imports the equations of each primitive, by the primitive's name.
RULES: dict[str, Rule] = {}
#: Primitives whose rules take typed keys as they are: an array of words, with the words of a key along the last
#: dimension. Other rules see keys as if each were one word, and are applied to all words at once.
TAKES_KEYS: set[str] = set()
#: The name under which the rule is entered that takes primitives without a rule of their own.
ANY = "*"
#: The same for primitives that know no typed keys, where operands are some.
OVER_WORDS = "**"
_R = TypeVar("_R", bound=Rule)

#: Metadata by which a function is kept apart, as rematc's own are: no more than a hint, wherever it stands.
NOT_INLINED = {"inlineable": "false"}
#: What to do about references of others'.
REFERENCES = "pass an array and return the new one, or make the reference inside of the function"
#: Captured arrays of at most this many elements are written into the graph; larger ones become parameters.
LITERAL_LIMIT = 64


def imports(*names: str, keys: bool = False) -> Callable[[_R], _R]:
    """Decorator: this function imports the equations of these primitives.

    Args:
        names: the primitives' names.
        keys: whether the rule itself knows that operands may be typed keys.
    """

    def enter(rule: _R) -> _R:
        for name in names:
            if name in RULES:
                raise ValueError(f"two rules import '{name}'")
            RULES[name] = rule
            if keys:
                TAKES_KEYS.add(name)
        return rule

    return enter


@dataclass(slots=True)
class Shared:
    """What the blocks of one import have in common.

    Attributes:
        constants: the large captured arrays, as JAX holds them, by their identity; in order of first use.
        fallbacks: the primitives that came in without a rule of their own, each with where it was met first.
        counts: of each of them, how many equations there are.
        policies: the user's policies of the regions around, which are asked about each equation; outer ones first.
        jaxprs: what JAX was asked to trace for equations, by what makes them alike.
        called: the primitives whose own implementation is being imported.
        is_in_adjoint: whether what is imported is the adjoint of a linear map, which is never transposed itself.
        target: what is imported for.
        choice: what of it is another function on other platforms; None where nothing is, as far as it is imported.
        place: where the values of one device are, of the first `shard_map`; None where there was none.
        typed_placement: (block, equation, its results) to these where their types say; None where no type does.
    """

    constants: dict[int, Any] = field(default_factory=dict)
    fallbacks: dict[str, Location | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    policies: list[AskedPolicy] = field(default_factory=list)
    jaxprs: dict[Any, Any] = field(default_factory=dict)
    is_in_adjoint: bool = False
    called: set[Any] = field(default_factory=set)
    target: Target = field(default_factory=current_target)
    choice: PlatformChoice | None = None
    place: Manual | None = None
    typed_placement: Callable[[Block, Any, Sequence[Value]], list[Value]] | None = None

    @contextmanager
    def unlisted(self) -> Iterator[None]:
        """Import what is not of the user's function itself: a rule, whose primitives are not listed."""
        fallbacks, counts = dict(self.fallbacks), dict(self.counts)
        try:
            yield
        finally:
            self.fallbacks, self.counts = fallbacks, counts

    @contextmanager
    def asking(self, policies: Sequence[AskedPolicy]) -> Iterator[None]:
        """Import the region of these policies."""
        self.policies.extend(policies)
        try:
            yield
        finally:
            del self.policies[len(self.policies) - len(policies) :]


@dataclass(frozen=True, slots=True)
class Region:
    """A jaxpr as a graph, and what it reads of the block around it.

    Attributes:
        graph: parameters are the captured values, then the jaxpr's own inputs.
        captured: values of the block around: the large constants inside.
    """

    graph: Graph
    captured: tuple[Value, ...]


class Block:
    """One jaxpr being imported.

    Attributes:
        b: what the equations are written through.
        shared: what is common to the whole import.
        varying: the values that may have a tangent.
        tangents: of a derivative rule, and of regions in it, the parameters in which it is linear.
        outer: the block around, whose values this one reads through parameters; None of the outermost.
        loc: the location of every equation, where the jaxpr's own are not the user's.
        scopes: the names of `jax.named_scope` around all of it.
    """

    def __init__(
        self,
        b: Builder,
        shared: Shared,
        outer: Block | None = None,
        loc: Location | None = None,
        scopes: tuple[str, ...] = (),
    ) -> None:
        self.b = b
        self.scopes = scopes
        self._current = scopes
        self.shared = shared
        self.outer = outer
        self.loc = loc
        self._around = b.loc or (outer.b.loc if outer is not None else None)
        self._env: dict[Any, Value] = {}
        self._constants: dict[int, Value] = {}
        self.varying = Varying(b, self._constants)
        self.tangents: frozenset[Value] = frozenset()
        self._jaxpr: Any = None
        self._call: tuple[Block, Any] | None = None
        self._useful: frozenset[Any] | None = None

    # -- reading equations ---------------------------------------------------------------------------------------

    def value(self, atom: Any) -> Value:
        """The value of a variable or literal."""
        found = self._env.get(atom) if not isinstance(atom, Literal) else None
        return found if found is not None else self._literal(atom)

    def operands(self, eqn: Any) -> list[Value]:
        """The values of an equation's inputs."""
        return [self.value(atom) for atom in eqn.invars]

    def is_useful(self, eqn: Any) -> bool:
        """Whether derivatives of the function's results may depend on an equation's outputs."""
        return not self._useful_variables().isdisjoint(eqn.outvars)

    def _useful_variables(self) -> frozenset[Any]:
        if self._useful is None:
            results = self._jaxpr.outvars
            if self._call is not None:
                outer, call = self._call
                useful = outer._useful_variables()
                results = [atom for atom, variable in zip(results, call.outvars, strict=True) if variable in useful]
            self._useful = useful_variables(self._jaxpr, results)
        return self._useful

    def result_types(self, eqn: Any) -> list[TensorType]:
        """The types of an equation's outputs."""
        return [type_of(variable.aval) for variable in eqn.outvars]

    def result_type(self, eqn: Any) -> TensorType:
        """The type of an equation's only output."""
        return type_of(eqn.outvars[0].aval)

    def platform(self, eqn: Any) -> str:
        """The target's platform, for an equation that is another function on others; the import notes that it asks."""
        platform = self.shared.target.platform
        if self.shared.choice is None:
            self.shared.choice = PlatformChoice(platform, eqn.primitive.name, self.location(eqn))
        return platform

    def location(self, eqn: Any) -> Location | None:
        """The user's line that an equation comes from."""
        loc = self.loc or equation_location(eqn)
        if loc is None:
            return self._around
        scopes = self.scopes if self.loc is None else ()
        scopes += scopes_of(eqn)
        return scoped(loc, scopes) if scopes else loc

    def fail(self, eqn: Any, what: str) -> NoReturn:
        """Raise CompileError at the equation: `JAX's 'sort' <what>`."""
        raise CompileError(f"JAX's '{eqn.primitive.name}' {what}", self.location(eqn))

    # -- writing -------------------------------------------------------------------------------------------------

    def define(self, variable: Any, value: Value) -> None:
        """Let a variable of the jaxpr have this value."""
        self._env[variable] = value

    def constant(self, array: Any) -> Value:
        """A captured array: small ones are written into the graph, large ones become parameters of the outermost."""
        if int(np.prod(array.shape)) <= LITERAL_LIMIT:
            return self.b.constant(as_numpy(array))
        # A line of integers, as np.arange gives it to index rows by, is known: what reads it can be, too.
        if is_count(array):
            return self.b.iota(type_of(array), array.shape.index(array.size))
        key = id(array)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.b.parameter(type_of(array))
            self.shared.constants[key] = without_keys(array)
        return found

    def large_constants(self) -> dict[int, Value]:
        """The parameters that stand for large arrays, by the arrays' identity."""
        return self._constants

    def run(self, jaxpr: Any, operands: Sequence[Value]) -> list[Value]:
        """Import the equations of a closed jaxpr. The references that it makes become values.

        Args:
            jaxpr: JAX's `ClosedJaxpr`.
            operands: the values of its inputs.

        Returns:
            the values of its outputs.
        """
        self._check_captured(jaxpr)
        if makes_references(jaxpr.jaxpr):
            jaxpr, captured = self._without_references(jaxpr)
            operands = [*operands, *[self.constant(array) for array in captured]]
        self._jaxpr = inner = jaxpr.jaxpr
        for variable, array in zip(inner.constvars, jaxpr.consts, strict=True):
            self._env[variable] = self.constant(array)
        self._env.update(zip(inner.invars, operands, strict=True))
        for eqn in inner.eqns:
            self._equation(eqn)
        return [self.value(atom) for atom in inner.outvars]

    def inline(
        self, jaxpr: Any, operands: Sequence[Value], loc: Location | None = None, call: Any = None
    ) -> list[Value]:
        """Import a closed jaxpr into this block's graph; its results.

        Args:
            jaxpr: JAX's `ClosedJaxpr`.
            operands: the values of its inputs.
            loc: the location of all its equations; by default their own.
            call: the equation whose outputs its results are, one for each, where that is so.
        """
        inner = Block(self.b, self.shared, self.outer, loc if loc is not None else self.loc, self._current)
        inner._call = None if call is None else (self, call)
        inner._constants, inner.varying, inner.tangents = self._constants, self.varying, self.tangents
        return inner.run(jaxpr, operands)

    def region(self, jaxpr: Any, name: str, tangents: Collection[int] = (), fixed: Iterable[int] = ()) -> Region:
        """A closed jaxpr as a graph of its own.

        Args:
            jaxpr: JAX's `ClosedJaxpr`.
            name: of the graph.
            tangents: the inputs, by their places, in which it is linear: tangents, and what is made of them.
            fixed: the inputs, by their places, that no tangent comes to, however often it is differentiated.
        """
        graph, constants = self._graph(jaxpr, name, tangents, fixed)
        return Region(graph, tuple([self.constant(array) for array in constants]))

    def regions(
        self,
        jaxprs: Sequence[Any],
        names: Sequence[str],
        tangents: Sequence[Collection[int]] | None = None,
        fixed: Collection[int] = (),
    ) -> tuple[list[Graph], tuple[Value, ...]]:
        """Several closed jaxprs as graphs of the same captured values: (graphs, captured). Arguments as in `region`."""
        rows = zip(jaxprs, names, tangents or [()] * len(jaxprs), strict=True)
        made = [self._graph(jaxpr, name, places, fixed) for jaxpr, name, places in rows]
        shared: dict[int, Any] = {}
        for _, constants in made:
            shared.update((id(array), array) for array in constants)
        graphs = []
        for graph, constants in made:
            own = dict(zip([id(array) for array in constants], graph.params, strict=False))
            front = [own.get(key) or Value(type_of(array)) for key, array in shared.items()]
            graphs.append(Graph(graph.name, (*front, *graph.params[len(own) :]), graph.equations, graph.results))
        return graphs, tuple([self.constant(array) for array in shared.values()])

    def linear_in(self, operands: Sequence[Value]) -> list[int]:
        """The operands, by their places, that are, or are made of, tangents of the rule that is imported."""
        moved = set(self.tangents)
        for one in self.b.equations if moved else ():
            if not moved.isdisjoint(one.operands):
                moved.update([value for value in one.results if value.type.dtype.is_inexact])
        return [place for place, value in enumerate(operands) if value in moved]

    def _graph(
        self, jaxpr: Any, name: str, tangents: Collection[int] = (), fixed: Iterable[int] = ()
    ) -> tuple[Graph, list[Any]]:
        """A closed jaxpr as a graph, and the large arrays that are its first parameters."""
        inner = Block(Builder(name), self.shared, self, self.loc, self._current)
        operands = [inner.b.parameter(type_of(variable.aval)) for variable in jaxpr.jaxpr.invars]
        inner.tangents = frozenset([operands[place] for place in tangents])
        inner.varying.fix([operands[place] for place in fixed])
        results = inner.run(jaxpr, operands)
        large = inner.large_constants()
        params = (*large.values(), *operands)
        graph = Graph(name, params, tuple(inner.b.equations), tuple(results))
        return graph, [self.shared.constants[key] for key in large]

    def _check_captured(self, jaxpr: Any) -> None:
        """Raise CompileError, at the line that uses it, for a reference that a closed jaxpr captures."""
        for variable in jaxpr.jaxpr.constvars:
            if is_reference(variable.aval):
                user = next(eqn for eqn in jaxpr.jaxpr.eqns if any(atom is variable for atom in eqn.invars))
                self.fail(user, f"reads or writes a reference from outside; {REFERENCES}")

    def _without_references(self, jaxpr: Any) -> tuple[Any, list[Any]]:
        """A closed jaxpr without the references that it makes, and the arrays for its last inputs.

        Raises CompileError at the line of the first reference for what JAX cannot write without.
        """
        try:
            return without_own_references(jaxpr)
        except NotImplementedError as error:
            made = next(eqn for eqn in jaxpr.jaxpr.eqns if any(is_reference(one.aval) for one in eqn.outvars))
            self.fail(made, f"makes a reference that cannot be written as values: {error}; pass arrays instead")

    # -- the equations -------------------------------------------------------------------------------------------

    def _literal(self, atom: Any) -> Value:
        if not isinstance(atom, Literal):
            raise InternalError(f"the jaxpr reads {atom} before it is defined")
        type = type_of(atom.aval)
        if type.size == 1 and not type.dtype.is_complex and not type.shape:
            return self.b.full(type, np.asarray(atom.val).astype(type.dtype.numpy).item())
        return self.b.constant(np.asarray(atom.val).astype(type.dtype.numpy).reshape(type.shape))

    def _equation(self, eqn: Any) -> None:
        rule = RULES.get(own_name(eqn.primitive))
        self.b.loc = loc = self.location(eqn)
        self._current = self.scopes + scopes_of(eqn)
        try:
            results = self._applied(rule, eqn)
            if self.shared.typed_placement is not None:
                # As JAX, which constrains each value whose type says where it lies.
                results = self.shared.typed_placement(self, eqn, results)
            if self.shared.policies:
                results = marked(self.shared.policies, self.b, eqn, results)
        except CompileError as error:
            error.loc = error.loc or loc
            raise
        for variable, value in zip(eqn.outvars, results, strict=True):
            expected = type_of(variable.aval)
            if value.type != expected:
                raise InternalError(
                    f"JAX's '{eqn.primitive.name}' gives {expected}, its import {value.type} ({loc or 'no location'})"
                )
            self._env[variable] = value

    def _check_context(self, eqn: Any) -> None:
        """Raise CompileError for what a block of the user's says of an equation, and no op can."""
        compute_type, metadata = eqn.ctx.compute_type, eqn.ctx.xla_metadata
        if compute_type is not None:
            self.fail(eqn, f"is computed on '{compute_type}' (compute_on), which has no op; take it out of the block")
        if metadata and dict(metadata) != NOT_INLINED:
            self.fail(eqn, f"has metadata for XLA ({metadata}), which has no op; take it out of the block")

    def _applied(self, rule: Rule | None, eqn: Any) -> Sequence[Value]:
        if rule is None:
            return self.fallback(eqn)
        self._check_context(eqn)
        if eqn.primitive.name not in TAKES_KEYS and _has_keys(eqn):
            return RULES[OVER_WORDS](self, eqn)
        # A rule makes shapes of them; what has none, as a call of a library, may need the types of its integers.
        given = recorded(with_plain_integers(eqn))
        results = rule(self, given)
        if given.params is not eqn.params and (name := next(unread(eqn), None)) is not None:
            self.fail(eqn, f"has {name} = {eqn.params[name]}, which has no op; leave it out")
        return results

    def fallback(self, eqn: Any) -> Sequence[Value]:
        """Import an equation as one opaque op: what the rule entered for `ANY` does. Rules may call it, too."""
        rule = RULES.get(ANY)
        if rule is None:
            self.fail(eqn, "has no import rule; report it, or express it by primitives of jax.lax")
        name, shared = eqn.primitive.name, self.shared
        shared.fallbacks.setdefault(name, self.location(eqn))
        shared.counts[name] = shared.counts.get(name, 0) + 1
        return rule(self, eqn)


def _has_keys(eqn: Any) -> bool:
    return any(is_key(atom.aval.dtype) for atom in (*eqn.invars, *eqn.outvars) if hasattr(atom.aval, "dtype"))
