"""Functions with derivatives of the user's: `custom_jvp`, `custom_vjp`, and `custom_linear`, tangents of the latter.

Their rules are graphs beside the graph of the function. Differentiation puts the rule in the function's place, so that
what comes out are equations like any others, under the policy of the region that they stand in. An op whose rule is
None was traced where no differentiation was to come: as many are traced into each other as derivatives are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rematc.ir.core import (
    Array,
    Derivatives,
    Effect,
    Emitter,
    Graph,
    LinearOperand,
    Operands,
    Primals,
    Tangents,
    Types,
    Value,
    known,
    register,
)
from rematc.ir.errors import CompileError, InternalError, TypeMismatchError
from rematc.ir.ops.bodies import Equations, chosen, live_equations, others, spread, types_text
from rematc.ir.ops.loop_batching import with_batch
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.regions import (
    OF_REGION,
    JvpOfGraph,
    PartialEvalOfGraph,
    Region,
    SplitRegion,
    TransposeOfGraph,
    VmapOfGraph,
    graph_of,
)
from rematc.ir.policy import Policy
from rematc.ir.types import TensorType


class CustomDerivative(Region):
    """Family base: the meaning of the op is that of `body`, and rules stand beside it.

    The last `closure` operands are values that functions of the rule or the body close over. The rules say nothing of
    the derivative with respect to them.
    """

    __slots__ = ()
    body: Graph
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    closure: int

    @property
    def has_rule(self) -> bool:
        """Whether the rule was traced."""
        raise NotImplementedError

    @property
    def effect(self) -> Effect:
        """That of the body: rules are not applied where the op is."""
        return self.body.effect

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        """Where the function is applied to tangents: the transpose of its body."""
        is_linear = [isinstance(operand, LinearOperand) for operand in operands]
        graph, gets_ct = transpose(self.body, is_linear, [ct is not None for ct in cts])
        values = [operand for operand in operands if isinstance(operand, Value)]
        outgoing = spread(b.inline(graph, [*values, *[ct for ct in cts if ct is not None]]), gets_ct)
        pulled = iter(outgoing)
        return tuple([next(pulled) if is_set else None for is_set in is_linear])

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        """Without a rule the body is what there is; with one the op stays whole, to be differentiated again."""
        if any(is_unknown):
            return _staged(self, self.body.param_types, is_unknown, policy)
        if not self.has_rule:
            nothing = Graph(self.body.name, (), (), ())
            return SplitRegion(self.body, nothing, (False,) * len(self.body.results))
        return _kept(self, self.body.param_types)

    def check_closure(self, tangents: Tangents) -> None:
        """Raise CompileError where the body closes over what has a tangent."""
        count = len(self.body.params) - self.closure
        read = {value for eqn in self.body.equations for value in eqn.operands} | set(self.body.results)
        for param, tangent in zip(self.body.params[count:], tangents[count:], strict=True):
            if tangent is not None and param in read:
                what = f"{param.name}, {param.type}" if param.name else f"a value of type {param.type}"
                raise CompileError(
                    f"'{self.body.name}' has a {self.name} rule and closes over {what}, or takes it by "
                    "nondiff_argnums, and this is differentiated; the rule knows the derivative by the other "
                    "arguments alone. Pass it as an argument with a derivative, and if a function closes over it, "
                    "hoist it with rematc.closure_convert"
                )

    def untraced(self) -> CompileError:
        """The error for a rule that is not there."""
        return CompileError(
            f"'{self.body.name}' is differentiated, but its {self.name} rule was not traced: the graph comes from a "
            "trace outside of all derivatives, or with fewer of them around it; trace the derivative itself"
        )


@register
@dataclass(frozen=True, slots=True)
class CustomJvp(CustomDerivative):
    """A function whose forward derivative the user gives.

    Attributes:
        body: operands to results.
        rule: (operands, tangents of those in `wrt`) to (results, tangents of those in `of`); linear in the tangents.
            None where it was not traced.
        wrt: for each operand, whether the rule takes its tangent.
        of: for each result, whether the rule gives its tangent; the others are zero.
        closure: how many of the last operands functions close over.
        adjoint: of a function that is linear in some operands: (the others, cotangents of the results in `of`) to
            cotangents of these operands. Without one the body is transposed, where a rule applies the function to
            tangents.
        linear: for each operand, whether the function is linear in it; nothing without an adjoint.
    """

    name = "custom_jvp"
    body: Graph
    rule: Graph | None
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    closure: int = 0
    adjoint: Graph | None = None
    linear: tuple[bool, ...] = ()
    no_jvp = OF_REGION
    no_transpose = OF_REGION

    @property
    def has_rule(self) -> bool:
        return self.rule is not None

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        results = Region.infer(self, operands)
        _check_flags(self)
        types = self.body.param_types
        if len(self.linear) != (0 if self.adjoint is None else len(types)):
            raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' says of other operands that it is linear")
        if self.adjoint is not None:
            params = (*others(types, self.linear), *chosen(results, self.of))
            _check_rule(self, "adjoint", self.adjoint, params, chosen(types, self.linear))
        if self.rule is not None:
            _check_rule(
                self, "rule", self.rule, (*types, *chosen(types, self.wrt)), (*results, *chosen(results, self.of))
            )
        return results

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        """The rule's own results: what it computes for tangents and values alike is computed once."""
        if self.rule is None:
            raise self.untraced()
        self.check_closure(tangents)
        given = [
            b.zeros(primal.type) if tangent is None else tangent
            for primal, tangent in chosen(tuple(zip(primals, tangents, strict=True)), self.wrt)
        ]
        results = b.inline(self.rule, [*primals, *given])
        count = len(self.of)
        return results[:count], spread(results[count:], self.of)

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        if self.adjoint is None:
            return CustomDerivative.transpose_region(self, b, transpose, cts, operands)
        law = f"'{self.body.name}' is not linear in what its adjoint gives no cotangent of"
        values = [known(operand, law) for operand in others(operands, self.linear)]
        rows = chosen(tuple(zip(cts, self.body.results, strict=True)), self.of)
        given = [b.zeros(value.type) if ct is None else ct for ct, value in rows]
        outgoing = spread(b.inline(self.adjoint, [*values, *given]), self.linear)
        return tuple(
            [ct if isinstance(one, LinearOperand) else None for ct, one in zip(outgoing, operands, strict=True)]
        )

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        """A result is batched if it, or its tangent, is; all are where each element must have its own cotangents."""
        body, of_body = vmap(self.body, is_batched)
        wanted, rule, count = of_body, self.rule, len(self.of)
        if rule is not None:
            rule, found = vmap(rule, (*is_batched, *chosen(is_batched, self.wrt)))
            of_tangents = [bool(is_set) for is_set in spread(found[count:], self.of)]
            wanted = tuple([any(row) for row in zip(wanted, found[:count], of_tangents, strict=True)])
        adjoint = self.adjoint
        if adjoint is not None:
            wanted = (any(wanted),) * count
            adjoint, of_cts = vmap(adjoint, (*others(is_batched, self.linear), *chosen(wanted, self.of)))
            if any(wanted):
                adjoint = _summed(adjoint, size, of_cts, chosen(is_batched, self.linear))
        if rule is not None:
            rule = with_batch(rule, size, found, (*wanted, *chosen(wanted, self.of)))
        body = with_batch(body, size, of_body, wanted)
        return b.emit(replace(self, body=body, rule=rule, adjoint=adjoint), *operands)

    def without_unused(self, used: Sequence[bool]) -> tuple[CustomJvp, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the operands that body or rule need for them."""
        if self.adjoint is not None:
            return self, tuple(range(len(self.wrt))), tuple(range(len(self.of)))
        body = _only(self.body, used)
        live = _read(body)
        of = chosen(self.of, used)
        rule, count, taken = self.rule, len(self.of), len(self.wrt)
        if rule is not None:
            rule = _only(rule, (*used, *chosen(used, self.of)))
            read = _read(rule)
            of_tangents = spread(read[taken:], self.wrt)
            live = [any(row) for row in zip(live, read[:taken], map(bool, of_tangents), strict=True)]
            rule = _taking(rule, (*live, *chosen(live, self.wrt)))
        assert count == len(used)
        closure = sum(live[len(live) - self.closure :])
        return CustomJvp(_taking(body, live), rule, chosen(self.wrt, live), of, closure), _places(live), _places(used)

    def regions(self) -> tuple[Graph, ...]:
        return tuple([graph for graph in (self.body, self.rule, self.adjoint) if graph is not None])


@register
@dataclass(frozen=True, slots=True)
class CustomVjp(CustomDerivative):
    """A function whose derivative the user gives backwards.

    Attributes:
        body: operands to results.
        forward: operands to (results, residuals). None where it was not traced.
        backward: (residuals, cotangents of the results in `of`) to cotangents of the operands in `wrt`. None where it
            was not traced.
        wrt: for each operand, whether `backward` gives its cotangent; the others are zero.
        of: for each result, whether `backward` takes its cotangent.
        closure: how many of the last operands functions close over.
    """

    name = "custom_vjp"
    body: Graph
    forward: Graph | None
    backward: Graph | None
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    closure: int = 0
    no_jvp = OF_REGION
    no_transpose = OF_REGION

    @property
    def has_rule(self) -> bool:
        return self.forward is not None

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        results = Region.infer(self, operands)
        _check_flags(self)
        if self.forward is None or self.backward is None:
            if self.forward is not self.backward:
                raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' has one of forward and backward")
            return results
        types = self.body.param_types
        residuals = self.forward.result_types[len(results) :]
        _check_rule(self, "forward", self.forward, types, (*results, *residuals))
        cts = chosen(results, self.of)
        _check_rule(self, "backward", self.backward, (*residuals, *cts), chosen(types, self.wrt))
        return results

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        """`forward` in place of the body; the tangents are those that have the cotangents of `backward`."""
        if self.forward is None or self.backward is None:
            raise self.untraced()
        self.check_closure(tangents)
        outcome = b.inline(self.forward, primals)
        count = len(self.of)
        results, residuals = outcome[:count], outcome[count:]
        given = chosen(tangents, self.wrt)
        present = [tangent for tangent in given if tangent is not None]
        if not present or not any(self.of):
            return results, (None,) * count
        flags = tuple([tangent is not None for tangent in given])
        op = CustomLinear(self.backward, self.body.name, len(residuals), flags)
        return results, spread(b.emit(op, *residuals, *present), self.of)

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        """All results are batched as soon as one is, so that each element has its own cotangents.

        Those of operands that the batch shares are summed over the elements.
        """
        body, found = vmap(self.body, is_batched)
        count = len(self.of)
        if self.forward is None or self.backward is None:
            return b.emit(replace(self, body=body), *operands)
        forward, outcome = vmap(self.forward, is_batched)
        flags = (any((*found, *outcome)),) * count
        body = with_batch(body, size, found, flags)
        forward = with_batch(forward, size, outcome, (*flags, *outcome[count:]))
        cts = chosen(flags, self.of)
        backward, outgoing = vmap(self.backward, (*outcome[count:], *cts))
        if any(flags):
            backward = _summed(backward, size, outgoing, chosen(is_batched, self.wrt))
        return b.emit(replace(self, body=body, forward=forward, backward=backward), *operands)

    def without_unused(self, used: Sequence[bool]) -> tuple[CustomVjp, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and what these need of operands and residuals."""
        body = _only(self.body, used)
        live, count = _read(body), len(self.of)
        if self.forward is None or self.backward is None:
            pruned = replace(self, body=_taking(body, live))
        else:
            backward = _without_cts(self.backward, chosen(used, self.of))
            needed = _read(backward)[: len(self.forward.results) - count]
            forward = _only(self.forward, (*used, *needed))
            live = [a or b for a, b in zip(live, _read(forward), strict=True)]
            backward = _only(backward, chosen(live, self.wrt))
            # Fewer cotangents may need fewer residuals; what is kept is right all the same.
            cts = [True] * sum(chosen(used, self.of))
            pruned = replace(
                self,
                body=_taking(body, live),
                forward=_taking(forward, live),
                backward=_taking(backward, (*needed, *cts)),
            )
        closure = sum(live[len(live) - self.closure :])
        pruned = replace(pruned, wrt=chosen(self.wrt, live), of=chosen(self.of, used), closure=closure)
        return pruned, _places(live), _places(used)

    def regions(self) -> tuple[Graph, ...]:
        return tuple([graph for graph in (self.body, self.forward, self.backward) if graph is not None])


@register
@dataclass(frozen=True, slots=True)
class CustomLinear(Region):
    """The linear map whose adjoint is `backward`: tangents of a `custom_vjp`. It has no value, only a transpose.

    Operands are residuals, then tangents; results are tangents.

    Attributes:
        backward: (residuals, cotangents of the results) to cotangents of what had the tangents.
        function: the function that it is the derivative of.
        residuals: how many operands are residuals.
        given: for each result of `backward`, whether its operand is there; the others have no tangent.
    """

    name = "custom_linear"
    backward: Graph
    function: str
    residuals: int
    given: tuple[bool, ...]
    no_jvp = "does not exist: a custom_vjp has no forward derivative"
    no_transpose = OF_REGION

    @property
    def effect(self) -> Effect:
        """None: what `backward` does is done where the op is transposed."""
        return Effect.NONE

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not 0 <= self.residuals <= len(self.backward.params) or len(self.given) != len(self.backward.results):
            raise TypeMismatchError(f"'{self.name}' of '{self.function}' does not fit its backward graph")
        expected = self._operand_types
        if tuple(operands) != expected:
            raise TypeMismatchError(
                f"'{self.name}' of '{self.function}' takes {types_text(expected)}, got {types_text(operands)}"
            )
        return self.backward.param_types[self.residuals :]

    @property
    def _operand_types(self) -> tuple[TensorType, ...]:
        backward = self.backward
        return (*backward.param_types[: self.residuals], *chosen(backward.result_types, self.given))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise self.forward_mode()

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        raise self.forward_mode()

    def forward_mode(self) -> CompileError:
        """The error for a map that is evaluated, or differentiated, forwards."""
        return CompileError(
            f"'{self.function}' has a custom_vjp, which gives derivatives backwards alone, and is differentiated "
            "forwards (jvp, linearize, jacfwd); use grad, vjp or jacrev, or give it a custom_jvp"
        )

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        residuals = [operand for operand in operands[: self.residuals] if isinstance(operand, Value)]
        if len(residuals) != self.residuals:
            raise InternalError(f"residuals of '{self.function}' are not known where it is transposed")
        types = self.backward.param_types[self.residuals :]
        given = [b.zeros(type) if ct is None else ct for ct, type in zip(cts, types, strict=True)]
        outgoing = b.inline(self.backward, [*residuals, *given])
        return (*(None,) * self.residuals, *chosen(outgoing, self.given))

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        cts = (True,) * (len(self.backward.params) - self.residuals)
        backward, found = vmap(self.backward, (*is_batched[: self.residuals], *cts))
        flags = spread(is_batched[self.residuals :], self.given)
        backward = _summed(backward, size, found, [bool(is_set) for is_set in flags])
        return b.emit(replace(self, backward=backward), *operands)

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        if any(is_unknown):
            return _staged(self, self._operand_types, is_unknown, policy)
        return _kept(self, self._operand_types)

    def without_unused(self, used: Sequence[bool]) -> tuple[CustomLinear, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the residuals that their cotangents need."""
        # Operands without a tangent need no cotangent either.
        backward = _only(_without_cts(self.backward, used), self.given)
        needed = _read(backward)[: self.residuals]
        backward = _taking(backward, (*needed, *[True] * sum(used)))
        tangents = sum(self.given)
        op = replace(self, backward=backward, residuals=sum(needed), given=(True,) * tangents)
        return op, _places((*needed, *[True] * tangents)), _places(used)

    def flops(self, operands: Types, results: Types) -> int:
        return sum(eqn.flops for eqn in self.backward.equations)

    def regions(self) -> tuple[Graph, ...]:
        return (self.backward,)


# -- what the rules share ----------------------------------------------------------------------------------------------


def _check_flags(op: CustomDerivative) -> None:
    body = op.body
    if len(op.wrt) != len(body.params) or len(op.of) != len(body.results) or not 0 <= op.closure <= len(op.wrt):
        raise TypeMismatchError(f"'{op.name}' of '{body.name}' does not say of each operand and result what it is")
    rows = zip((*body.param_types, *body.result_types), (*op.wrt, *op.of), strict=True)
    if any(is_set and not type.dtype.is_inexact for type, is_set in rows):
        raise TypeMismatchError(f"'{op.name}' of '{body.name}' has derivatives of what is no float")


def _check_rule(op: CustomDerivative, what: str, rule: Graph, params: Types, results: Types) -> None:
    if rule.param_types != tuple(params) or rule.result_types != tuple(results):
        raise TypeMismatchError(
            f"'{op.name}' of '{op.body.name}' needs a {what} {types_text(params)} -> {types_text(results)}, got "
            f"{types_text(rule.param_types)} -> {types_text(rule.result_types)}"
        )


def _kept(op: Region, types: Types) -> SplitRegion:
    """The op kept whole; the policy is asked about its results."""
    whole = graph_of(op, types)
    operands = whole.params
    forward = Graph(whole.name, operands, whole.equations, (*whole.results, *operands))
    count = len(whole.results)
    nothing = Graph(whole.name, tuple([Value(type) for type in types]), (), ())
    return SplitRegion(forward, nothing, (False,) * count, graph_of(op, types), (False,) * len(operands))


def _staged(op: Region, types: Types, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
    """The op for later, with its known operands."""
    whole = graph_of(op, types)
    now, later = others(whole.params, is_unknown), chosen(whole.params, is_unknown)
    staged = Graph(whole.name, (*now, *later), whole.equations, whole.results)
    forward = Graph(whole.name, now, (), now)
    flags = (True,) * len(whole.results)
    if policy is None:
        return SplitRegion(forward, staged, flags)
    return SplitRegion(forward, staged, flags, Graph(whole.name, now, (), ()), (False,) * len(now))


def _only(graph: Graph, used: Sequence[bool]) -> Graph:
    """The graph with only the used results, its parameters as they were."""
    results = chosen(graph.results, used)
    return Graph(graph.name, graph.params, live_equations(graph, set(results)), results)


def _taking(graph: Graph, is_kept: Sequence[bool]) -> Graph:
    """The graph with only these of its parameters; nothing reads the others."""
    return Graph(graph.name, chosen(graph.params, is_kept), graph.equations, graph.results)


def _read(graph: Graph) -> list[bool]:
    """For each parameter, whether anything reads it."""
    read = {value for eqn in graph.equations for value in eqn.operands} | set(graph.results)
    return [value in read for value in graph.params]


def _places(flags: Sequence[bool]) -> tuple[int, ...]:
    return tuple([index for index, is_set in enumerate(flags) if is_set])


def _without_cts(backward: Graph, used: Sequence[bool]) -> Graph:
    """The graph with zeros for the cotangents of unused results; its last parameters are those of the used ones."""
    count = len(backward.params) - len(used)
    inside = Equations()
    params = list(backward.params[:count])
    env = dict(zip(params, params, strict=True))
    for param, is_used in zip(backward.params[count:], used, strict=True):
        env[param] = param if is_used else inside.zeros(param.type)
        if is_used:
            params.append(param)
    for eqn in backward.equations:
        inside.copy(eqn, env)
    return Graph(backward.name, tuple(params), tuple(inside.all), tuple([env[value] for value in backward.results]))


def _summed(backward: Graph, size: int, found: Sequence[bool], wanted: Sequence[bool]) -> Graph:
    """The backward graph of a batch, with cotangents of what the elements share summed over them."""
    backward = with_batch(backward, size, found, (True,) * len(found))
    inside = Equations(backward.equations)
    results = [
        value if is_batched else inside.emit(ReduceSum((0,)), value)[0]
        for value, is_batched in zip(backward.results, wanted, strict=True)
    ]
    return Graph(backward.name, backward.params, tuple(inside.all), tuple(results))
