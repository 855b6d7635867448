"""Staging of a loop: its steps become checkpoint regions, and a long loop a loop of loops.

Before:  %1, %ys = scan %w, %x, %xs {length=100, consts=1, carry=1, body=@step}
After:   the same with each step a region, or several, which saves the carry of each step; or, where the carries are
         large, scan {length=10, body=checkpoint{scan {length=10, body=checkpoint[auto]{@step}}}}

A loop of a times b steps saves the carries of the a outer ones. Its backward pass takes the b steps of an outer one
again and keeps what they save; so every step is evaluated twice, as with a region for each step, and the memory is a
carries + b steps instead of n carries + 1 step. The least is where a is the root of n * step / carry. (Griewank,
"Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation", 1992, has loops
of more levels, which evaluate steps more often: `rematc.scan(..., levels=, snapshots=)`.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.policy import Policy, Recompute
from rematc.ir.values import Value
from rematc.passes.linearize import under_policy
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.policies import auto
from rematc.passes.staging.outline import Outliner
from rematc.passes.staging.profile import LEAST_GAIN, Profile, profile
from rematc.passes.staging.segments import choose_cuts_of_step

#: A loop of loops must need at most this part of the memory of a plain one.
_GAIN = 0.5
#: How much more memory lengths may need that divide the number of steps: what is left over needs copies.
_DIVIDES = 1.5


def stage_loop(eqn: Equation, op: Scan, policy: Policy, shards: Shards = WHOLE) -> tuple[Equation, ...] | None:
    """The equations of a loop whose steps are regions; the last ones give the results of `eqn`.

    None for a loop that takes little memory, or has snapshots that say how to take its steps again. `shards` is how its
    values are spread over devices.
    """
    if op.length < 2 or op.snapshots or _carried(op, shards) + _computed(op.body, shards) < LEAST_GAIN // op.length:
        return None
    inside = staged_loops(op.body, policy, shards)
    op = replace(op, body=_with(op.body, inside))
    shards.follow(op.body)
    found = _profile(op.body, policy, shards)
    if (op.length - 1) * (_carried(op, shards) + found.recomputed.sum()) < LEAST_GAIN:
        return None
    outer = _outer_length(op, found, shards) if _may_repeat(op, policy) else None
    if outer is None:
        staged = replace(op, body=_staged_step(op, policy, found))
        return (Equation(staged, eqn.operands, eqn.results, eqn.loc),)
    return _split(eqn, op, policy, outer)


def _may_repeat(op: Scan, policy: Policy) -> bool:
    """Whether the policy has what steps carry computed again: `auto` not where that takes time."""
    if not policy.saves_least:
        return True
    answers = policy.decide(op, op.infer_operands(), ())
    carries = answers[: op.carry] if len(answers) > 1 else answers
    return all(isinstance(answer, Recompute) for answer in carries)


def staged_loops(graph: Graph, policy: Policy, shards: Shards = WHOLE) -> dict[int, tuple[Equation, ...]]:
    """What takes the place of the loops of a graph, by the indices of their equations."""
    loops = [(index, eqn, eqn.op) for index, eqn in enumerate(graph.equations) if isinstance(eqn.op, Scan)]
    found = {index: stage_loop(eqn, op, policy, shards) for index, eqn, op in loops}
    return {index: equations for index, equations in found.items() if equations is not None}


def _with(graph: Graph, instead: Mapping[int, Sequence[Equation]]) -> Graph:
    if not instead:
        return graph
    rows = [instead.get(index, (eqn,)) for index, eqn in enumerate(graph.equations)]
    return Graph(graph.name, graph.params, tuple(itertools.chain.from_iterable(rows)), graph.results)


def _profile(body: Graph, policy: Policy, shards: Shards) -> Profile:
    """The profile of a loop's step, whose carries and rows are all differentiated."""
    wrt = [type.dtype.is_inexact for type in body.param_types]
    return profile(body, policy, wrt, [type.dtype.is_inexact for type in body.result_types], shards)


def _computed(body: Graph, shards: Shards) -> int:
    """Bytes of all that a step computes."""
    return sum(shards.bytes(value) for eqn in body.equations for value in eqn.results)


def _carried(op: Scan, shards: Shards) -> int:
    """Bytes of the carries of one step."""
    return sum(map(shards.bytes, op.parts(op.body.params).carry))


def _staged_step(op: Scan, policy: Policy, found: Profile) -> Graph:
    """The body as regions: one, or several where what crosses between them is little for all steps."""
    cuts = choose_cuts_of_step(found, op.length)
    if not cuts:
        return under_policy(op.body, policy)
    outliner = Outliner(op.body, policy, found.repeated, found.last_use)
    regions = [
        # XLA merges nothing between steps, but it may begin with all segments of one at once.
        outliner.region(begin, end, prevent_cse=True)
        for begin, end in zip((0, *cuts), (*cuts, len(op.body.equations)), strict=True)
    ]
    outside = outliner.outside([value for value in op.body.results if value in found.repeated])
    equations = (*outside, *[region for region in regions if region is not None])
    return Graph(op.body.name, op.body.params, equations, op.body.results)


def _outer_length(op: Scan, found: Profile, shards: Shards) -> int | None:
    """The length of the outer loop, for a body of this profile; None where one loop is enough."""
    carried = _carried(op, shards)
    if not carried:
        return None
    step = carried + int(_profile(op.body, auto, shards).saved.sum())

    def needed(outer: int) -> int:
        return outer * carried + math.ceil(op.length / outer) * step

    best = min(round(math.sqrt(op.length * step / carried)), op.length // 2)
    if best < 2:
        return None
    dividing = min(_divisors(op.length), key=needed, default=best)
    if needed(dividing) <= _DIVIDES * needed(best):
        best = dividing
    always = op.length * found.saved.sum() + found.recomputed.sum()
    return best if always + needed(best) <= _GAIN * (always + op.length * carried) else None


def _divisors(number: int) -> list[int]:
    """Those that are neither 1 nor the number."""
    small = [one for one in range(2, math.isqrt(number) + 1) if number % one == 0]
    return [*small, *[number // one for one in small]]


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
    loop = replace(op, body=under_policy(_steps(op, inner), policy), length=outer, unroll=1)
    results = b.emit(loop, *consts, *carry, *rows)
    carry = results[: op.carry]
    stacks = [b.reshape(y, (count, *y.type.shape[2:])) for y in results[op.carry :]]
    if rest:
        region = Checkpoint(_steps(op, rest), policy)
        results = b.emit(region, *consts, *carry, *[_rows(b, x, last, rest) for x in xs])
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
    loop = replace(op, body=under_policy(op.body, auto), length=length, unroll=min(op.unroll, length))
    b = Builder(op.body.name)
    params = [b.parameter(type) for type in loop.infer_operands()]
    return b.build(*b.emit(loop, *params))


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
