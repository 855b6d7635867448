"""What ops with derivatives of the user's share: `custom_jvp`, `custom_vjp`.

Their rules are graphs beside the graph of the function. Differentiation puts the rule in the function's place, so that
what comes out are equations like any others, under the policy of the region that they stand in. An op whose rule is
None was traced where no differentiation was to come: as many are traced into each other as derivatives are taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Graph, Op, Origin, SplitContext, SplitRegion, TransposeContext
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.facts import Effect
from rematc.ir.host_functions import FrontendFunction
from rematc.ir.ops.bodies import (
    Inside,
    chosen,
    cts_of,
    graph_of,
    live_equations,
    others,
    spread,
    types_text,
    with_batch,
)
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.regions import Region
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.policy import Policy
from rematc.ir.values import Derivatives, LinearOperand, Operands, Tangents, Types, Value


class CustomDerivative(Region):
    """Family base: the meaning of the op is that of `body`, and rules stand beside it.

    The last `closure` operands are values that functions of the rule or the body close over. The rules say nothing of
    the derivative with respect to them. `reason` says why there is no rule, where that is not the trace's order; then
    `source`, if there is one, applies the op where it is exported to a frontend that goes on differentiating.
    """

    __slots__ = ()
    body: Graph
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    closure: int
    reason: str
    source: FrontendFunction | None

    @property
    def has_rule(self) -> bool:
        """Whether the rule was traced."""
        raise NotImplementedError

    @property
    def effect(self) -> Effect:
        """That of the body: rules are not applied where the op is."""
        return self.body.effect

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        """Where the function is applied to tangents: the transpose of its body."""
        is_linear = [isinstance(operand, LinearOperand) for operand in operands]
        graph, gets_ct = b.adjoint_of(self.body, is_linear, [ct is not None for ct in cts])
        values = [operand for operand in operands if isinstance(operand, Value)]
        outgoing = spread(b.inline(graph, [*values, *[ct for ct in cts if ct is not None]]), gets_ct)
        return cts_of(is_linear, outgoing)

    def origin(self, result: int) -> Origin | None:
        """The equation of the function's own graph."""
        value = self.body.results[result]
        for eqn in self.body.equations:
            if value in eqn.results:
                return eqn.op.origin(eqn.results.index(value)) or Origin(eqn, 1)
        return None

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        """Without rules the body is what there is; with some the op stays whole, to be differentiated again."""
        if any(is_unknown):
            return staged_whole(self, self.body.param_types, is_unknown, policy)
        if not self.has_rule and self.source is None:
            nothing = Graph(self.body.name, (), (), ())
            return SplitRegion(self.body, nothing, (False,) * len(self.body.results))
        return kept_whole(self, self.body.param_types)

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
        if self.reason:
            return CompileError(f"'{self.body.name}' is differentiated, but {self.reason}")
        return CompileError(
            f"'{self.body.name}' is differentiated, but its {self.name} rule was not traced: the graph comes from a "
            "trace outside of all derivatives, or with fewer of them around it; trace the derivative itself"
        )


def check_flags(op: CustomDerivative) -> None:
    body = op.body
    if len(op.wrt) != len(body.params) or len(op.of) != len(body.results) or not 0 <= op.closure <= len(op.wrt):
        raise TypeMismatchError(f"'{op.name}' of '{body.name}' does not say of each operand and result what it is")
    rows = zip((*body.param_types, *body.result_types), (*op.wrt, *op.of), strict=True)
    if any(is_set and not type.dtype.is_inexact for type, is_set in rows):
        raise TypeMismatchError(f"'{op.name}' of '{body.name}' has derivatives of what is no float")


def check_rule(op: CustomDerivative, what: str, rule: Graph, params: Types, results: Types) -> None:
    if rule.param_types != tuple(params) or rule.result_types != tuple(results):
        raise TypeMismatchError(
            f"'{op.name}' of '{op.body.name}' needs a {what} {types_text(params)} -> {types_text(results)}, got "
            f"{types_text(rule.param_types)} -> {types_text(rule.result_types)}"
        )


def kept_whole(op: Op, types: Types) -> SplitRegion:
    """The op kept whole; the policy is asked about its results."""
    whole = graph_of(op, types)
    operands = whole.params
    forward = Graph(whole.name, operands, whole.equations, (*whole.results, *operands))
    count = len(whole.results)
    nothing = Graph(whole.name, tuple([Value(type) for type in types]), (), ())
    return SplitRegion(forward, nothing, (False,) * count, graph_of(op, types), (False,) * len(operands))


def staged_whole(op: Op, types: Types, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
    """The op for later, with its known operands."""
    whole = graph_of(op, types)
    now, later = others(whole.params, is_unknown), chosen(whole.params, is_unknown)
    staged = Graph(whole.name, (*now, *later), whole.equations, whole.results)
    forward = Graph(whole.name, now, (), now)
    flags = (True,) * len(whole.results)
    if policy is None:
        return SplitRegion(forward, staged, flags)
    return SplitRegion(forward, staged, flags, Graph(whole.name, now, (), ()), (False,) * len(now))


def only_results(graph: Graph, used: Sequence[bool]) -> Graph:
    """The graph with only the used results, its parameters as they were."""
    results = chosen(graph.results, used)
    return Graph(graph.name, graph.params, live_equations(graph, set(results)), results)


def taking(graph: Graph, is_kept: Sequence[bool]) -> Graph:
    """The graph with only these of its parameters; nothing reads the others."""
    return Graph(graph.name, chosen(graph.params, is_kept), graph.equations, graph.results)


def read_params(graph: Graph) -> list[bool]:
    """For each parameter, whether anything reads it."""
    read = {value for eqn in graph.equations for value in eqn.operands} | set(graph.results)
    return [value in read for value in graph.params]


def has_elements_beside_zero(graph: Graph) -> list[bool]:
    """For each result, whether it is more than an array of zeros that was written down."""
    zeros: set[Value] = set()
    for eqn in graph.equations:
        is_written = isinstance(eqn.op, Constant) and not np.any(eqn.op.array != 0)
        if is_written or (isinstance(eqn.op, BroadcastInDim) and eqn.operands[0] in zeros):
            zeros.update(eqn.results)
    return [value not in zeros for value in graph.results]


def places(flags: Sequence[bool]) -> tuple[int, ...]:
    return tuple([index for index, is_set in enumerate(flags) if is_set])


def without_cts(backward: Graph, used: Sequence[bool]) -> Graph:
    """The graph with zeros for the cotangents of unused results; its last parameters are those of the used ones."""
    count = len(backward.params) - len(used)
    inside = Inside(backward.name, [*backward.params[:count], *chosen(backward.params[count:], used)])
    rows = zip(backward.params[count:], used, strict=True)
    cts = [param if is_used else inside.zeros(param.type) for param, is_used in rows]
    return inside.build(inside.inline(backward, (*backward.params[:count], *cts)))


def summed_over_batch(backward: Graph, size: int, found: Sequence[bool], wanted: Sequence[bool]) -> Graph:
    """The backward graph of a batch, with cotangents of what the elements share summed over them."""
    backward = with_batch(backward, size, found, (True,) * len(found))
    inside = Inside.of(backward)
    results = [
        value if is_batched else inside.emit(ReduceSum((0,)), value)[0]
        for value, is_batched in zip(backward.results, wanted, strict=True)
    ]
    return inside.build(results)
