"""Transposition of loops: the loop backwards, which carries cotangents of carries, and sums of those of consts."""

from __future__ import annotations

from rematc.ir.core import Emitter, TransposeContext
from rematc.ir.errors import InternalError
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.bodies import Inside, others, spread
from rematc.ir.ops.scan.adjoint import Adjoint
from rematc.ir.ops.scan.base import ScanBase
from rematc.ir.ops.scan.snapshots import reversed_from_snapshots
from rematc.ir.values import Derivatives, LinearOperand, Operands, Tangents, Value


def transpose_scan(op: ScanBase, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
    """`Scan.transpose`."""
    is_linear = op.over_steps([isinstance(operand, LinearOperand) for operand in operands])
    if not all(op.parts(is_linear).carry) and not op.snapshots:
        raise InternalError(f"the transpose of 'scan' of '{op.body.name}' has carries that are not linear")
    adjoint = Adjoint.of(op, b, is_linear, [ct is not None for ct in cts])
    if op.snapshots:
        return reversed_from_snapshots(adjoint, b, cts, operands)
    return _backwards(adjoint, b, cts, operands)


def _backwards(adjoint: Adjoint, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
    op, body = adjoint.op, adjoint.graph
    known = [value for value in others(operands, adjoint.is_linear) if isinstance(value, Value)]
    consts, count = adjoint.is_linear[: op.consts].count(False), sum(adjoint.carries)
    params, ct_params = body.params[: len(known)], body.params[len(known) :]
    of_consts, of_carry, of_xs = adjoint.cts(body.results)

    sums = [Value(ct.type) for ct in of_consts]
    taken = (*params[:consts], *sums, *ct_params[:count], *params[consts:], *ct_params[count:])
    inside = Inside(body.name, taken, body.equations)
    totals = [inside.add(old, ct) for old, ct in zip(sums, of_consts, strict=True)]
    results = (*totals, *adjoint.carried(inside, of_carry), *of_xs)
    step = inside.build(results)
    loop = with_fields(op, body=step, consts=consts, carry=len(sums) + count, is_reversed=not op.is_reversed)
    first = adjoint.carried(b, cts[: op.carry])
    given = [ct for ct in cts[op.carry :] if ct is not None]
    zeros = [b.zeros(one.type) for one in sums]
    outgoing = iter(b.emit(loop, *known[:consts], *zeros, *first, *known[consts:], *given))
    return spread(outgoing, op.with_carries(adjoint.gets_ct, adjoint.carries))
