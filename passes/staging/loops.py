"""Staging of a loop: its steps become checkpoint regions, and a long loop a loop of loops.

Before:  %1, %ys = scan %w, %x, %xs {length=100, consts=1, carry=1, body=@step}
After:   the same with each step a region, which saves the carry of each step; or, where the carries are large,
         scan {length=10, body=checkpoint{scan {length=10, body=checkpoint[auto]{@step}}}}

A loop of a times b steps saves the carries of the a outer ones. Its backward pass takes the b steps of an outer one
again and keeps what they save; so every step is evaluated twice, as with a region for each step, and the memory is a
carries + b steps instead of n carries + 1 step. The least is where a is the root of n * step / carry. (Griewank,
"Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation", 1992, has loops
of more levels, which evaluate steps more often: `rematc.scan(..., levels=, snapshots=)`.)
"""

from __future__ import annotations

import math
from dataclasses import replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Value
from rematc.ir.ops.loops import Scan
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.passes.policies import auto
from rematc.passes.staging.footprint import LEAST_GAIN, footprint

#: A loop of loops must need at most this part of the memory of a plain one.
_GAIN = 0.5


def stage_loop(eqn: Equation, op: Scan, policy: Policy) -> tuple[Equation, ...]:
    """The equations of a loop whose steps are regions; the last ones give the results of `eqn`."""
    outer = _outer_length(op, policy)
    if outer is None:
        staged = replace(op, body=_as_region(op.body, policy))
        return (Equation(staged, eqn.operands, eqn.results, eqn.loc),)
    return _split(eqn, op, policy, outer)


def is_staged(op: Scan, policy: Policy) -> bool:
    """Whether a loop is staged: it takes memory, and has no snapshots that say how to take its steps again."""
    return op.length > 1 and not op.snapshots and (op.length - 1) * footprint(op.body, policy).taken >= LEAST_GAIN


def _as_region(body: Graph, policy: Policy) -> Graph:
    params = tuple([Value(value.type, value.name) for value in body.params])
    results = tuple([Value(value.type) for value in body.results])
    return Graph(body.name, params, (Equation(Checkpoint(body, policy), params, results),), results)


def _outer_length(op: Scan, policy: Policy) -> int | None:
    """The length of the outer loop; None where one loop is enough."""
    _, carry, _ = op.parts(op.body.param_types)
    carried = sum(type.bytes for type in carry)
    if not carried:
        return None
    under_policy, inside = footprint(op.body, policy), footprint(op.body, auto)
    step = carried + inside.saved
    outer = min(max(round(math.sqrt(op.length * step / carried)), 1), op.length)
    inner = math.ceil(op.length / outer)
    saved = op.length * under_policy.saved
    nested = saved + outer * carried + inner * step
    if nested > _GAIN * (saved + op.length * carried + under_policy.taken):
        return None
    return outer


def _split(eqn: Equation, op: Scan, policy: Policy, outer: int) -> tuple[Equation, ...]:
    inner = op.length // outer
    outer = op.length // inner
    b = Builder("loops")
    b.loc = eqn.loc
    consts, carry, xs = op.parts(eqn.operands)
    # In the order of its steps: first the outer loop, then what is left over.
    count = outer * inner
    rest = op.length - count
    first, last = (rest, 0) if op.is_reversed else (0, count)
    rows = [b.reshape(_rows(b, x, first, count), (outer, inner, *x.type.shape[1:])) for x in xs]
    results = b.emit(_loop_of_loops(op, policy, outer, inner), *consts, *carry, *rows)
    carry = results[: op.carry]
    stacks = [b.reshape(y, (count, *y.type.shape[2:])) for y in results[op.carry :]]
    if rest:
        tail = _steps(op, rest)
        results = b.emit(Checkpoint(tail, policy), *consts, *carry, *[_rows(b, x, last, rest) for x in xs])
        carry = results[: op.carry]
        pairs = zip(stacks, results[op.carry :], strict=True)
        stacks = [b.concatenate((y, z) if first == 0 else (z, y), 0) for y, z in pairs]
    return _renamed(b.equations, dict(zip((*carry, *stacks), eqn.results, strict=True)))


def _rows(b: Builder, x: Value, start: int, count: int) -> Value:
    shape = x.type.shape
    if count == shape[0]:
        return x
    return b.slice(x, (start, *(0,) * (len(shape) - 1)), (start + count, *shape[1:]))


def _steps(op: Scan, length: int) -> Graph:
    """A loop of so many steps, each a region that saves what takes time, as a graph."""
    loop = replace(op, body=_as_region(op.body, auto), length=length, unroll=min(op.unroll, length))
    b = Builder(op.body.name)
    params = [b.parameter(type) for type in loop.infer_operands()]
    return b.build(*b.emit(loop, *params))


def _loop_of_loops(op: Scan, policy: Policy, outer: int, inner: int) -> Scan:
    body = _as_region(_steps(op, inner), policy)
    return Scan(body, outer, op.consts, op.carry, op.is_reversed)


def _renamed(equations: list[Equation], names: dict[Value, Value]) -> tuple[Equation, ...]:
    """The equations, with the results that `names` has under their names there."""
    return tuple(
        [
            Equation(
                eqn.op,
                tuple([names.get(value, value) for value in eqn.operands]),
                tuple([names.get(value, value) for value in eqn.results]),
                eqn.loc,
            )
            for eqn in equations
        ]
    )
