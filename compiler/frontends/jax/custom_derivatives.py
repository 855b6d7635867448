"""Import of functions with derivatives of the user's: `jax.custom_jvp`, `jax.custom_vjp`.

JAX holds the rules as Python functions. They are traced by JAX where the function is imported, as many into each other
as derivatives are taken of it, and stand as graphs beside the function's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from rematc.compiler.frontends.jax.activity import is_inexact
from rematc.compiler.frontends.jax.block import Block, Region, imports
from rematc.compiler.frontends.jax.retracing import FAILURES, backward_of, jvp_of
from rematc.compiler.frontends.jax.values import type_of
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.host_functions import FrontendFunction
from rematc.ir.ops.bodies import live_equations
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.custom_vjp import CustomLinear, CustomVjp
from rematc.ir.ops.structural import StopGradient
from rematc.ir.values import Value
from rematc.lowering.jax_internals.keys import apply_to_words
from rematc.lowering.jax_internals.locations import function_name
from rematc.lowering.jax_internals.references import has_only_local_references
from rematc.lowering.jax_internals.shardings import in_types_of
from rematc.lowering.jax_internals.types import is_float0

_CLOSURE = (
    "the derivative rule of '{name}' closes over a value that is traced, and is over when the rule is used; pass it to "
    "'{name}' as an argument"
)
_REFERENCES = "'{name}' makes references, so its derivatives of an order higher than asked for are not there"
_UNTRACED = "the derivative rule of '{name}' cannot be traced: {error}"
_NONE = "it gives None for a tangent that is zero, which jax.jvp refuses, too: give zeros (jax.numpy.zeros_like)"


@imports("custom_jvp_call", keys=True)
def custom_jvp_call(block: Block, eqn: Any) -> Sequence[Value]:
    """`custom_jvp` of the function and the rule, or only the function where no derivative goes through it.

    What the function closes over comes last: it has no derivative.
    """
    return with_jvp(block, eqn, eqn.params["call_jaxpr"], eqn.params["num_consts"])


def _without_derivatives(block: Block, eqn: Any, jaxpr: Any) -> Sequence[Value]:
    """What a closed jaxpr computes of an equation's inputs, of which nothing is differentiated here."""
    operands = block.operands(eqn)
    return block.inline(
        jaxpr, [block.b.emit1(StopGradient(), one) if one in block.varying else one for one in operands]
    )


def with_own_jvp(block: Block, eqn: Any, apply: Callable[[Block, list[Value]], Sequence[Value]]) -> Sequence[Value]:
    """`custom_jvp` of ops that are not differentiated as JAX does it, with JAX's jvp of the equation.

    Args:
        block: where the equation stands.
        eqn: the equation.
        apply: emits the ops: (block, values of the inputs) to values of the outputs.
    """
    operands, wrt = block.operands(eqn), differentiated_inputs(block, eqn)
    if not any(wrt):
        return apply(block, operands)
    name = eqn.primitive.name
    inner = Block(Builder(name), block.shared, block)
    inner.b.loc = block.b.loc
    results = apply(inner, [inner.b.parameter(one.type) for one in operands])
    parts = {"body": Region(inner.b.build(*results), ())}
    rule, reason = traced_jvp(block, eqn, wrt, name)
    if rule is not None:
        with of_order(derivative_order() - 1), block.shared.unlisted():
            parts["rule"] = block.region(rule, f"{name}_jvp", last_inputs(rule, sum(wrt)), places_without(wrt))
    graphs, captured = with_common_captures(parts)
    flags, source = (*(False,) * len(captured), *wrt), source_of(eqn, len(captured))
    found = CustomJvp(graphs["body"], graphs.get("rule"), flags, inexact_outputs(eqn), reason=reason, source=source)
    return block.b.emit(found, *captured, *operands)


def with_jvp(block: Block, eqn: Any, jaxpr: Any, consts: int) -> Sequence[Value]:
    """`custom_jvp` of a closed jaxpr that computes the equation's outputs, and of JAX's jvp of the equation.

    Args:
        block: where the equation stands.
        eqn: the equation.
        jaxpr: computes its outputs.
        consts: how many of its first inputs have no derivative.
    """
    found = _WithRule.of_equation(block, eqn, jaxpr, consts)
    if found is None:
        return _without_derivatives(block, eqn, jaxpr)
    op = CustomJvp(found.function, found.rule, found.wrt, found.of, consts, reason=found.reason, source=found.source)
    return block.b.emit(op, *found.operands)


@imports("custom_vjp_call", "custom_vjp_call_jaxpr", keys=True)
def custom_vjp_call(block: Block, eqn: Any) -> Sequence[Value]:
    """`custom_vjp` of the function and both rules.

    JAX's own jvp of the call is the forward rule, then one equation that is the linear map with the backward rule.
    """
    jaxpr = eqn.params["call_jaxpr"] if "call_jaxpr" in eqn.params else eqn.params["fun_jaxpr"]
    consts = eqn.params.get("num_consts", 0)
    found = _WithRule.of_equation(block, eqn, jaxpr, consts)
    if found is None:
        return _without_derivatives(block, eqn, jaxpr)
    forward, backward = None, None
    if found.rule is not None:
        forward, backward = _split(found.rule, len(found.operands), len(found.of))
    op = CustomVjp(
        found.function, forward, backward, found.wrt, found.of, consts, reason=found.reason, source=found.source
    )
    return block.b.emit(op, *found.operands)


def _split(rule: Graph, operands: int, results: int) -> tuple[Graph, Graph]:
    """Forward and backward graph of the derivative that JAX makes of a function with a backward rule."""
    linear = next(eqn for eqn in reversed(rule.equations) if isinstance(eqn.op, CustomLinear))
    assert isinstance(linear.op, CustomLinear)
    residuals = linear.operands[: linear.op.residuals]
    outputs = (*rule.results[:results], *residuals)
    needed = live_equations(rule, set(outputs))
    return Graph(rule.name, rule.params[:operands], needed, outputs), linear.op.backward


@imports("custom_lin", keys=True)
def custom_lin(block: Block, eqn: Any) -> Sequence[Value]:
    """`custom_linear`: the tangents of a function with a backward rule. Those of integers are zeros."""
    name = function_name(eqn.params["bwd"])
    found = block.region(backward_of(eqn), name)
    operands = block.operands(eqn)
    residuals, tangents = operands[: eqn.params["num_res"]], operands[eqn.params["num_res"] :]
    op = CustomLinear(found.graph, name, len(found.captured) + len(residuals), (True,) * len(tangents))
    given = iter(block.b.emit(op, *found.captured, *residuals, *tangents))
    return [
        block.b.zeros(type_of(variable.aval)) if is_float0(variable.aval.dtype) else next(given)
        for variable in eqn.outvars
    ]


@imports("remat_opt", keys=True)
def remat_opt(block: Block, eqn: Any) -> Sequence[Value]:
    """The forward rule of a function whose residuals JAX would leave out where nothing reads them: so do we."""
    return block.inline(eqn.params["fwd_jaxpr"], block.operands(eqn))


# -- what the rules have in common -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WithRule:
    """A function with a rule, imported; what it closes over comes last among operands and parameters.

    Attributes:
        function: the function.
        rule: JAX's jvp of the equation; None where there is none.
        wrt: for each operand, whether a tangent may reach it.
        of: for each output, whether it has derivatives.
        operands: in the caller.
        reason: why there is no rule.
        source: how JAX applies the equation, where there is no rule because no more derivatives were asked for.
    """

    function: Graph
    rule: Graph | None
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    operands: tuple[Value, ...]
    reason: str
    source: FrontendFunction | None

    @classmethod
    def of_equation(cls, block: Block, eqn: Any, jaxpr: Any, consts: int) -> _WithRule | None:
        """An equation that `jaxpr` computes; None where no derivative goes through it."""
        wrt, of = differentiated_inputs(block, eqn, consts), inexact_outputs(eqn)
        if not any(wrt) or not block.is_useful(eqn):
            return None
        name = function_name(jaxpr.jaxpr)
        rule, reason = traced_jvp(block, eqn, wrt, name)
        graphs, captured = with_rule(block, jaxpr, rule, name, places_without(wrt))
        order = _consts_last(len(captured), consts, len(eqn.invars))
        operands = (*captured, *block.operands(eqn))
        flags = [*(False,) * len(captured), *wrt]
        source = None
        if rule is None and not reason:
            source = source_of(eqn, len(captured), order)
            if source is None:
                reason = _REFERENCES.format(name=name)
        return cls(
            _reordered(graphs[0], order),
            None if rule is None else _reordered(graphs[1], order),
            tuple([flags[place] for place in order]),
            of,
            tuple([operands[place] for place in order]),
            reason,
            source,
        )


def source_of(eqn: Any, captured: int, order: Sequence[int] | None = None) -> FrontendFunction | None:
    """How JAX applies an equation to the operands of its op: captured arrays, then inputs; or both in another order.

    None for an equation that makes references: values alone do not say what they are.
    """
    if has_only_local_references(eqn):
        return None
    if order is None:
        order = range(captured + len(eqn.invars))

    def apply(*operands: Any) -> list[Any]:
        given = dict(zip(order, operands, strict=True))
        inputs = [given[captured + place] for place in range(len(eqn.invars))]
        avals = [atom.aval for atom in eqn.invars]
        return list(in_types_of(avals, lambda *values: apply_to_words(eqn, values))(*inputs))

    return FrontendFunction(apply)


def inexact_outputs(eqn: Any) -> tuple[bool, ...]:
    """For each output, whether it has derivatives."""
    return tuple([is_inexact(variable.aval) for variable in eqn.outvars])


def differentiated_inputs(block: Block, eqn: Any, consts: int = 0) -> list[bool]:
    """For each input after the consts, whether a tangent may reach it."""
    operands = block.operands(eqn)
    flags = [is_inexact(atom.aval) and place >= consts for place, atom in enumerate(eqn.invars)]
    if not any(flags):
        return flags
    return [is_set and value in block.varying for is_set, value in zip(flags, operands, strict=True)]


def traced_jvp(
    block: Block, eqn: Any, wrt: Sequence[bool], name: str, derivative: Callable[[Any, Sequence[bool]], Any] = jvp_of
) -> tuple[Any | None, str]:
    """JAX's jvp of an equation as a closed jaxpr, or None and why there is none; `derivative` makes it.

    A function that JAX has traced once is there many times with the same equations: they are asked for once.
    """
    if derivative_order() == 0:
        return None, ""
    key = ("jvp", id(eqn), tuple(wrt))
    found = block.shared.jaxprs.get(key)
    if found is None:
        # The equation is kept with it, so that its identity stays its own.
        found = block.shared.jaxprs[key] = (eqn, *_traced_jvp(eqn, wrt, name, derivative))
    _, rule, reason = found
    return rule, reason


def _traced_jvp(
    eqn: Any, wrt: Sequence[bool], name: str, derivative: Callable[[Any, Sequence[bool]], Any]
) -> tuple[Any | None, str]:
    try:
        jaxpr = derivative(eqn, wrt)
        if any(isinstance(one, jax.core.Tracer) for one in jaxpr.consts):
            return None, _CLOSURE.format(name=name)
        return jaxpr, ""
    except CompileError:
        raise
    except FAILURES as error:
        reason = _UNTRACED.format(name=name, error=f"{type(error).__name__}: {_first_line(error).rstrip('.')}")
        return None, f"{reason}; {_NONE}" if isinstance(error, TypeError) and "None" in str(error) else reason


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


def places_without(flags: Iterable[bool]) -> list[int]:
    """The places of what is False: of the inputs that no tangent comes to, nor to what a rule makes of them."""
    return [place for place, is_set in enumerate(flags) if not is_set]


def with_rule(
    block: Block, jaxpr: Any, rule: Any | None, name: str, fixed: Collection[int]
) -> tuple[list[Graph], tuple[Value, ...]]:
    """The graphs of a function and, where there is one, of its rule, and the large constants that are their first
    operands. No tangent comes to the `fixed` inputs of both.
    """
    if rule is None:
        with of_order(0):
            return block.regions([jaxpr], [name], fixed=fixed)
    # The function itself is not differentiated where the rule is; what the rule calls is, one time less.
    tangents = len(rule.jaxpr.invars) - len(jaxpr.jaxpr.invars)
    with of_order(derivative_order() - 1):
        return block.regions([jaxpr, rule], [name, f"{name}_jvp"], [(), last_inputs(rule, tangents)], fixed)


def last_inputs(jaxpr: Any, count: int) -> range:
    """The places of so many of the last inputs of a closed jaxpr."""
    end = len(jaxpr.jaxpr.invars)
    return range(end - count, end)


def with_common_captures(regions: dict[str, Region]) -> tuple[dict[str, Graph], tuple[Value, ...]]:
    """The graphs with all that any of them captures as their first parameters."""
    captured = tuple(dict.fromkeys(value for region in regions.values() for value in region.captured))
    graphs = {}
    for name, region in regions.items():
        graph, count = region.graph, len(region.captured)
        own = dict(zip(region.captured, graph.params, strict=False))
        front = [own.get(value) or Value(value.type) for value in captured]
        graphs[name] = Graph(graph.name, (*front, *graph.params[count:]), graph.equations, graph.results)
    return graphs, captured


def _consts_last(captured: int, consts: int, inputs: int) -> list[int]:
    """The order of operands in which what a function closes over comes last."""
    first = captured + consts
    return [*range(captured), *range(first, captured + inputs), *range(captured, first)]


def _reordered(graph: Graph, order: Sequence[int]) -> Graph:
    """The graph with its first parameters in this order."""
    params = [graph.params[place] for place in order]
    return Graph(graph.name, (*params, *graph.params[len(order) :]), graph.equations, graph.results)
