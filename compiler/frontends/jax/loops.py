"""Import of loops: `scan`, `while`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.activity import inexact_variables, is_inexact
from rematc.compiler.frontends.jax.block import Block, Region, imports
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.reduction import ReduceOr
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import scan_parts
from rematc.lowering.jax_internals.locations import function_name


@imports("scan", keys=True)
def scan(block: Block, eqn: Any) -> Sequence[Value]:
    """`scan`. Large constants of a step are consts of the loop."""
    params, jaxpr = eqn.params, eqn.params["jaxpr"]
    consts, carry = scan_parts(params)
    step = block.region(jaxpr, function_name(jaxpr.jaxpr), _linear_in(block, eqn, consts, carry))
    op = Scan(
        step.graph,
        params["length"],
        len(step.captured) + consts,
        carry,
        is_reversed=params["reverse"],
        unroll=max(int(params["unroll"]), 1),
    )
    return block.b.emit(op, *step.captured, *block.operands(eqn))


def _linear_in(block: Block, eqn: Any, consts: int, carry: int) -> set[int]:
    """The inputs of a step, by their places, that are made of tangents, carries of later steps among them."""
    found, jaxpr = set(block.linear_in(block.operands(eqn))), eqn.params["jaxpr"].jaxpr
    while found:
        moved = {jaxpr.invars[place] for place in found}
        for one in jaxpr.eqns:
            if not moved.isdisjoint(inexact_variables(one.invars)):
                moved.update([variable for variable in one.outvars if is_inexact(variable.aval)])
        results = [set(inexact_variables([atom])) for atom in jaxpr.outvars[:carry]]
        carried = {consts + place for place, result in enumerate(results) if not moved.isdisjoint(result)}
        if carried <= found:
            break
        found |= carried
    return found


@imports("while", keys=True)
def while_(block: Block, eqn: Any) -> Sequence[Value]:
    """`while`. Under `jax.vmap` a condition may hold for some elements of a batch only: the others stay as they are."""
    params = eqn.params
    operands = block.operands(eqn)
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts, carry = operands[:first], operands[first:second], operands[second:]
    cond = block.region(params["cond_jaxpr"], function_name(params["cond_jaxpr"].jaxpr))
    body = block.region(params["body_jaxpr"], function_name(params["body_jaxpr"].jaxpr))
    of_cond = (*cond.captured, *cond_consts)
    of_body = (*body.captured, *body_consts)
    if cond.graph.results[0].type.rank:
        graph = _chosen_elements(cond, body, len(of_cond), len(of_body))
        body, of_body = Region(graph, ()), (*of_cond, *of_body)
        cond = Region(_any_element(cond.graph), ())
    op = While(cond.graph, body.graph, len(of_cond), len(of_body))
    return block.b.emit(op, *of_cond, *of_body, *carry)


def _any_element(cond: Graph) -> Graph:
    """The condition that holds as long as it does for an element."""
    b = Builder(cond.name)
    params = [b.parameter(value.type, value.name) for value in cond.params]
    (holds,) = b.inline(cond, params)
    return b.build(b.emit1(ReduceOr(tuple(range(holds.type.rank))), holds))


def _chosen_elements(cond: Region, body: Region, cond_consts: int, body_consts: int) -> Graph:
    """The step that leaves elements alone for which the condition does not hold.

    Parameters are the condition's consts, the body's, and the carries.
    """
    b = Builder(body.graph.name)
    of_cond = [b.parameter(value.type, value.name) for value in cond.graph.params[:cond_consts]]
    rest = [b.parameter(value.type, value.name) for value in body.graph.params]
    carry = rest[body_consts:]
    (holds,) = b.inline(cond.graph, [*of_cond, *carry])
    results = []
    for old, new in zip(carry, b.inline(body.graph, rest), strict=True):
        spread = b.broadcast_in_dim(holds, new.type.shape, range(holds.type.rank))
        results.append(b.select(spread, new, old))
    return b.build(*results)
