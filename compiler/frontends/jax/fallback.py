"""Import of primitives without a rule of their own: through JAX's.

What such a primitive computes is what its implementation does, in other primitives, or else its own StableHLO lowering,
imported as StableHLO is. Its derivative is JAX's jvp of it, imported as any other function of JAX's. Together they are
a `custom_jvp`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from rematc.compiler.frontends.jax.block import ANY, REFERENCES, Block, Region, imports
from rematc.compiler.frontends.jax.custom_derivatives import (
    differentiated_inputs,
    inexact_outputs,
    last_inputs,
    places_without,
    source_of,
    traced_jvp,
    with_common_captures,
)
from rematc.compiler.frontends.jax.retracing import FAILURES, in_arithmetic_of, jvp_of, structs, trace
from rematc.compiler.frontends.jax.values import type_of
from rematc.compiler.frontends.stablehlo.importing import from_stablehlo
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.custom_call import CustomCall
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import apply_equation, is_lowered_when_called
from rematc.lowering.jax_internals.keys import apply_to_words, is_key, words_aval
from rematc.lowering.jax_internals.references import has_only_local_references

#: Effects and references: they have no StableHLO lowering that could stand alone.
_REFUSED = {
    "run_state": "reads and writes references; write the loop with lax.scan or lax.while_loop",
    "get": f"reads a reference from outside; {REFERENCES}",
    "swap": f"writes a reference from outside; {REFERENCES}",
    "addupdate": f"writes a reference from outside; {REFERENCES}",
    "check": "is a runtime check of checkify; transform the function by checkify.checkify, which returns the errors",
    "assert": "is a runtime check; transform the function by checkify.checkify, which returns the errors",
    "xla_pmap": "is one program for each device; apply rematc inside of the function that is mapped",
    "compute_on": "says where its function is computed, which has no op; call the function by itself",
}

_WAY_OUT = (
    "say its derivative with jax.custom_jvp or jax.custom_vjp around the call, or hide the operands with "
    "jax.lax.stop_gradient"
)
_EFFECTS = (
    "has effects ({effects}), which are not in what it is lowered to, and cannot be kept; keep it outside of what "
    "rematc compiles, or use jax.debug.callback or jax.experimental.io_callback"
)
#: Of which JAX computes values and tangents by one loop that writes into memory: it has no transpose.
_FORWARD_ONLY = ("pallas_call",)
_NO_ADJOINT = "JAX has no backward derivative of '{name}'; say it with jax.custom_vjp around the call"


@imports(*_REFUSED, keys=True)
def refused(block: Block, eqn: Any) -> Sequence[Value]:
    """An error: what it means is not a function of arrays."""
    block.fail(eqn, f"cannot be imported: it {_REFUSED[eqn.primitive.name]}")


@imports(ANY, keys=True)
def foreign(block: Block, eqn: Any) -> Sequence[Value]:
    """`custom_jvp` of what the primitive computes and of JAX's rule for it; only that where nothing is differentiated.

    The rule is found where a derivative is to come. Where JAX has none it is an error to take the derivative. In the
    rule of another function a primitive of tangents is linear in them, and its adjoint is JAX's transpose.
    """
    body = _meaning(block, eqn)
    if not body.graph.effect and not has_only_local_references(eqn):
        check_effects(block, eqn)
    return transposable(block, eqn, body, eqn.primitive.name)


def check_effects(block: Block, eqn: Any) -> None:
    """Raise CompileError for effects that an op would not have."""
    if eqn.effects:
        block.fail(eqn, _EFFECTS.format(effects=", ".join(sorted(map(str, eqn.effects)))))


def transposable(
    block: Block, eqn: Any, body: Region, name: str, derivative: Callable[[Any, Sequence[bool]], Any] = jvp_of
) -> Sequence[Value]:
    """What `foreign` makes of a primitive, where `body` says what it computes, and `derivative` its rule."""
    operands, parts = block.operands(eqn), {"body": body}
    wrt, of = differentiated_inputs(block, eqn), inexact_outputs(eqn)
    if not any(wrt) or not any(of):
        return block.b.inline(body.graph, [*body.captured, *operands])
    rule, reason = traced_jvp(block, eqn, wrt, name, derivative)
    reason = reason and f"{reason.rstrip('.')}; {_WAY_OUT}"
    places = block.linear_in(operands)
    linear = [place in places for place in range(len(operands))]
    adjoint = _adjoint_of(eqn, linear, of) if any(linear) else None
    if adjoint is None and any(linear) and name in _FORWARD_ONLY:
        linear = [False] * len(linear)
        adjoint, reason = _no_cotangents(eqn, of), _NO_ADJOINT.format(name=name)
    with of_order(max(derivative_order() - 1, 0)), block.shared.unlisted():
        if rule is not None:
            try:
                parts["rule"] = block.region(rule, f"{name}_jvp", last_inputs(rule, sum(wrt)), places_without(wrt))
            except CompileError as error:
                # The value may be all that is wanted.
                reason = f"the derivative rule of '{name}' cannot be imported: {error.message}; {_WAY_OUT}"
    if adjoint is not None:
        # Differentiated as often as the primitive, the rule once less.
        with block.shared.unlisted():
            held = [is_set for is_set, is_linear in zip(wrt, linear, strict=True) if not is_linear]
            parts["adjoint"] = block.region(adjoint, f"{name}_transpose", fixed=places_without(held))
    graphs, captured = with_common_captures(parts)
    if "rule" in graphs:
        graphs["rule"] = _with_values_of(graphs["body"], graphs["rule"], sum(wrt))
    flags = (False,) * len(captured)
    op = CustomJvp(
        graphs["body"],
        graphs.get("rule"),
        (*flags, *wrt),
        of,
        adjoint=graphs.get("adjoint"),
        linear=(*flags, *linear) if adjoint is not None else (),
        reason=reason,
        # Where JAX has no transpose of tangents, ours may have.
        source=source_of(eqn, len(captured)) if not reason and (adjoint is not None or not any(linear)) else None,
    )
    return block.b.emit(op, *captured, *operands)


def _with_values_of(body: Graph, rule: Graph, tangents: int) -> Graph:
    """A rule whose values do not depend on the tangents, its last parameters.

    Some of JAX's rules are one equation that computes values and tangents together; there `body` computes the values.
    """
    count = len(body.results)
    moved = set(rule.params[len(rule.params) - tangents :])
    for eqn in rule.equations:
        if not moved.isdisjoint(eqn.operands):
            moved.update(eqn.results)
    if moved.isdisjoint(rule.results[:count]):
        return rule
    b = Builder(rule.name)
    params = [b.parameter(value.type, value.name) for value in rule.params]
    values = b.inline(body, params[: len(body.params)])
    return b.build(*values, *b.inline(rule, params)[count:])


def _adjoint_of(eqn: Any, linear: Sequence[bool], of: Sequence[bool]) -> Any | None:
    """The closed jaxpr (other inputs, cts of inexact outputs) -> cts of the linear inputs; None where JAX cannot."""
    avals = [atom.aval for atom in eqn.invars]
    others = [aval for aval, is_set in zip(avals, linear, strict=True) if not is_set]
    moving = [aval for aval, is_set in zip(avals, linear, strict=True) if is_set]

    def adjoint(*arrays: Any) -> list[Any]:
        values, cts = arrays[: len(others)], arrays[len(others) :]

        def function(*tangents: Any) -> list[Any]:
            fixed, moved = iter(values), iter(tangents)
            found = apply_equation(eqn, [next(moved) if is_set else next(fixed) for is_set in linear])
            return [one for one, is_set in zip(found, of, strict=True) if is_set]

        return list(jax.linear_transpose(function, *structs(moving))(list(cts)))

    try:
        outputs = [variable.aval for variable, is_set in zip(eqn.outvars, of, strict=True) if is_set]
        return trace(adjoint, [*others, *outputs])
    except FAILURES:
        return None


def _no_cotangents(eqn: Any, of: Sequence[bool]) -> Any:
    """The closed jaxpr (inputs, cts of inexact outputs) -> nothing: an adjoint of what is linear in none."""
    outputs = [variable.aval for variable, is_set in zip(eqn.outvars, of, strict=True) if is_set]
    return trace(lambda *arrays: [], [*[atom.aval for atom in eqn.invars], *outputs])


def _meaning(block: Block, eqn: Any) -> Region:
    """What a primitive computes: what it does when it is called, in other primitives; else its lowering."""
    jaxpr = _called(block, eqn)
    if jaxpr is None:
        return Region(lowered(block, eqn), ())
    block.shared.called.add(eqn.primitive)
    try:
        with of_order(0), block.shared.unlisted():
            return block.region(jaxpr, eqn.primitive.name)
    finally:
        block.shared.called.discard(eqn.primitive)


def _called(block: Block, eqn: Any) -> Any | None:
    """The closed jaxpr of a primitive's own implementation; None where it has none that JAX can trace.

    Primitives of JAX's are called through their lowering.
    """
    implementation = eqn.primitive.impl
    is_lowering = is_lowered_when_called(eqn.primitive)
    avals, outputs = [atom.aval for atom in eqn.invars], [variable.aval for variable in eqn.outvars]
    if is_lowering or eqn.primitive in block.shared.called or any(map(_is_key, [*avals, *outputs])):
        return None

    def function(*operands: Any) -> list[Any]:
        found = implementation(*operands, **eqn.params)
        return list(found) if eqn.primitive.multiple_results else [found]

    try:
        jaxpr = trace(function, avals)
    except FAILURES:
        return None
    return jaxpr if list(map(type_of, jaxpr.out_avals)) == list(map(type_of, outputs)) else None


def _is_key(aval: Any) -> bool:
    return is_key(aval.dtype)


def lowered(block: Block, eqn: Any) -> Graph:
    """What JAX lowers an equation to, as a graph of its inputs; keys are words. Calls of libraries are `custom_call`s.

    Raises CompileError where there is no lowering, or one that is no function of arrays.
    """
    avals = [str(atom.aval) for atom in (*eqn.invars, *eqn.outvars)]
    key = ("lowered", eqn.primitive, tuple(eqn.params.items()), *avals)
    found = block.shared.jaxprs.get(key)
    if found is None:
        found = block.shared.jaxprs[key] = _lowered(block, eqn)
    return _at(found, block.location(eqn))


def _lowered(block: Block, eqn: Any) -> Graph:
    avals = [words_aval(atom.aval) for atom in eqn.invars]

    def function(*operands: Any) -> list[Any]:
        return apply_to_words(eqn, operands)

    reasons = []
    own = block.shared.target.platform
    # JAX has ops of XLA's own on GPUs and TPUs, as for products of ragged groups. XLA for GPUs makes of them what JAX
    # lowers to on CPUs; XLA for TPUs has kernels for them, which take less work than that.
    for platform in dict.fromkeys((own, "tpu", own if own == "tpu" else "cpu")):
        try:
            with in_arithmetic_of([*avals, *[variable.aval for variable in eqn.outvars]]):
                traced = jax.jit(function, keep_unused=True).trace(*structs(avals, is_alike=True))
                text = traced.lower(lowering_platforms=(platform,)).as_text()
            graph = _named(from_stablehlo(text), eqn.primitive.name)
            # Plain StableHLO runs wherever it was meant for; what a library of another platform's computes does not.
            if not _calls_libraries(graph):
                return graph
            if platform == own:
                block.platform(eqn)
                return graph
            reasons.append(f"for {platform}: it calls a kernel of that platform")
        except FAILURES as error:
            reasons.append(f"for {platform}: {_summary(error)}")
        except CompileError as error:
            reasons.append(f"for {platform}: {error.message}")
    block.fail(
        eqn,
        "has no import rule, and its own lowering cannot be taken either "
        f"({'; '.join(reasons)}); express it by primitives of jax.lax, or keep it outside of what rematc compiles",
    )


def _calls_libraries(graph: Graph) -> bool:
    """Whether a graph, or a region inside, has a `custom_call`."""
    rest = [graph]
    while rest:
        for eqn in rest.pop().equations:
            if isinstance(eqn.op, CustomCall):
                return True
            rest += eqn.op.regions()
    return False


def _summary(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _named(graph: Graph, name: str) -> Graph:
    return Graph(name, graph.params, graph.equations, graph.results)


def _at(graph: Graph, loc: Location | None) -> Graph:
    """The graph with all its equations at one location, those in regions too."""
    equations = [Equation(_op_at(eqn.op, loc), eqn.operands, eqn.results, loc) for eqn in graph.equations]
    return Graph(graph.name, graph.params, tuple(equations), graph.results)


def _op_at(op: Op, loc: Location | None) -> Op:
    if not op.regions():
        return op
    changed: dict[str, object] = {}
    for one in dataclasses.fields(op):  # type: ignore[arg-type]  # every op is a dataclass
        value = getattr(op, one.name)
        if isinstance(value, Graph):
            changed[one.name] = _at(value, loc)
        elif isinstance(value, tuple) and any(isinstance(item, Graph) for item in value):
            changed[one.name] = tuple([_at(item, loc) if isinstance(item, Graph) else item for item in value])
    return dataclasses.replace(op, **changed)  # type: ignore[type-var]  # as above
