"""Import of primitives without a rule of their own: through JAX's.

What such a primitive computes is its own StableHLO lowering, imported as StableHLO is; its derivative is JAX's jvp of
it, imported as any other function of JAX's. Together they are a `custom_jvp`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from rematc.compiler.jax_import.block import ANY, Block, imports
from rematc.compiler.jax_import.custom_derivatives import differentiated_inputs, inexact_outputs, traced_jvp
from rematc.compiler.jax_import.retracing import FAILURES, in_arithmetic_of, structs
from rematc.compiler.stablehlo.importing import from_stablehlo
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.ir.core import Equation, Graph, Op, Value
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.lowering import jax_adapter

#: Effects and references: they have no StableHLO lowering that could stand alone.
_REFUSED = {
    "run_state": "reads and writes references; write the loop with lax.scan or lax.while_loop",
    "get": "reads a reference; pass arrays and return the new ones",
    "swap": "writes a reference; pass arrays and return the new ones",
    "addupdate": "writes a reference; pass arrays and return the new ones",
    "shard_map": "is one program for each device; apply rematc inside of the function that shard_map maps",
    "check": "is a runtime check of checkify; transform the function by checkify.checkify, which returns the errors",
    "assert": "is a runtime check; transform the function by checkify.checkify, which returns the errors",
    "xla_pmap": "is one program for each device; apply rematc inside of the function that is mapped",
    "pallas_call": "is a kernel whose code only JAX can lower; keep it outside of what rematc compiles",
}


@imports(*_REFUSED, keys=True)
def refused(block: Block, eqn: Any) -> Sequence[Value]:
    """An error: what it means is not a function of arrays."""
    block.fail(eqn, f"cannot be imported: it {_REFUSED[eqn.primitive.name]}")


@imports(ANY, keys=True)
def foreign(block: Block, eqn: Any) -> Sequence[Value]:
    """`custom_jvp` of the primitive's lowering and of JAX's rule for it; the lowering where nothing is differentiated.

    The rule is found where a derivative is to come. Where JAX has none it is an error to take the derivative.
    """
    operands = block.operands(eqn)
    body = lowered(block, eqn)
    wrt, of = differentiated_inputs(block, eqn), inexact_outputs(eqn)
    if not any(wrt) or not any(of):
        return block.b.inline(body, operands)
    name = eqn.primitive.name
    rule, reason = traced_jvp(eqn, wrt, name)
    if rule is None:
        return block.b.emit(CustomJvp(body, None, tuple(wrt), of, reason=reason), *operands)
    try:
        with of_order(derivative_order() - 1), block.shared.unlisted():
            found = block.region(rule, f"{name}_jvp")
    except CompileError as error:
        # What it computes may be wanted without its derivative.
        return block.b.emit(CustomJvp(body, None, tuple(wrt), of, reason=error.message), *operands)
    captured = found.captured
    params = (*[Value(value.type) for value in captured], *body.params)
    op = CustomJvp(
        Graph(body.name, params, body.equations, body.results),
        found.graph,
        (*(False,) * len(captured), *wrt),
        of,
    )
    return block.b.emit(op, *captured, *operands)


def lowered(block: Block, eqn: Any) -> Graph:
    """What JAX lowers an equation to, as a graph of its inputs; keys are words.

    Raises CompileError where there is no lowering, or one that is no StableHLO by itself: it calls a kernel.
    """
    key = ("lowered", eqn.primitive, str(eqn.params), *[str(atom.aval) for atom in (*eqn.invars, *eqn.outvars)])
    found = block.shared.jaxprs.get(key)
    if found is None:
        found = block.shared.jaxprs[key] = _lowered(block, eqn)
    return _at(found, block.location(eqn))


def _lowered(block: Block, eqn: Any) -> Graph:
    avals = [jax_adapter.words_of(atom.aval) for atom in eqn.invars]

    def function(*operands: Any) -> list[Any]:
        return jax_adapter.apply_to_words(eqn, operands)

    reasons = []
    # The lowering for TPUs calls fewer kernels than others do.
    for platform in dict.fromkeys((jax_adapter.default_platform(), "tpu")):
        try:
            with in_arithmetic_of([*avals, *[variable.aval for variable in eqn.outvars]]):
                traced = jax.jit(function, keep_unused=True).trace(*structs(avals))
                text = traced.lower(lowering_platforms=(platform,)).as_text()
            return _named(from_stablehlo(text), eqn.primitive.name)
        except FAILURES as error:
            reasons.append(f"for {platform}: {_summary(error)}")
        except CompileError as error:
            reasons.append(f"for {platform}: {error.message}")
    block.fail(
        eqn,
        "has no import rule, and its own lowering cannot be taken either "
        f"({'; '.join(reasons)}); express it by primitives of jax.lax, or keep it outside of what rematc compiles",
    )


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
