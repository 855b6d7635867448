"""How many steps a while loop takes, where that can be read off its condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Graph
from rematc.ir.ops.arithmetic import Add, Subtract
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.logical import Compare
from rematc.ir.ops.structural import Constant
from rematc.ir.ops.while_.base import WhileBase
from rematc.ir.values import Value

#: What a comparison is with its sides exchanged.
_REVERSED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def trip_count(op: WhileBase, values: Sequence[int | None]) -> int | None:
    """How many steps there are, where a counter is compared with a limit; None where that does not follow.

    `values` are those of the operands that are integers and known.
    """
    of_cond, of_body, first = op.parts(values)
    params, results = op.body.params[op.body_consts :], op.body.results
    fixed = [value if old is new else None for value, old, new in zip(first, params, results, strict=True)]
    limits = known_integers(op.cond, (*of_cond, *fixed))
    strides = known_integers(op.body, (*of_body, *fixed))
    test = next((eqn for eqn in op.cond.equations if op.cond.results[0] in eqn.results), None)
    if test is None or not isinstance(test.op, Compare):
        return None
    counters = op.cond.params[op.cond_consts :]
    for (counter, limit), direction in zip(
        (test.operands, reversed(test.operands)), (test.op.direction, _REVERSED[test.op.direction]), strict=True
    ):
        if counter not in counters or limit not in limits:
            continue
        place = counters.index(counter)
        stride = _stride(op.body, params[place], results[place], strides)
        start = first[place]
        if start is not None and stride is not None:
            return _count(start, limits[limit], stride, direction)
    return None


def known_integers(graph: Graph, params: Sequence[int | None]) -> dict[Value, int]:
    """The values of a graph that are integer scalars and known: constants, and what they are converted to."""
    found = {value: known for value, known in zip(graph.params, params, strict=True) if known is not None}
    for eqn in graph.equations:
        match eqn.op:
            case Constant(type=type, data=data) if type.dtype.is_integer and not type.shape:
                found[eqn.results[0]] = int(np.frombuffer(data, type.dtype.numpy)[0])
            case Convert(dtype=dtype) if dtype.is_integer and eqn.operands[0] in found:
                found[eqn.results[0]] = found[eqn.operands[0]]
    return found


def _stride(body: Graph, before: Value, after: Value, known: dict[Value, int]) -> int | None:
    """What a step adds to a carry."""
    for eqn in body.equations:
        if after not in eqn.results:
            continue
        x, y = eqn.operands if len(eqn.operands) == 2 else (None, None)
        if isinstance(eqn.op, Add) and x is before and y in known:
            return known[y]
        if isinstance(eqn.op, Add) and y is before and x in known:
            return known[x]
        if isinstance(eqn.op, Subtract) and x is before and y in known:
            return -known[y]
    return None


def _count(start: int, limit: int, stride: int, direction: str) -> int | None:
    """How many of start, start + stride, ... there are while they are `direction` limit; None if there is no end."""
    if direction in ("GT", "GE"):
        start, limit, stride = -start, -limit, -stride
        direction = {"GT": "LT", "GE": "LE"}[direction]
    if direction == "LE":
        limit += 1
    if direction not in ("LT", "LE"):
        return None
    if start >= limit:
        return 0
    return -((start - limit) // stride) if stride > 0 else None
