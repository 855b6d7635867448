"""The pseudo-inverse, and decompositions of matrices without elements, for which no kernel is called."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.ops.matrices import adjoint, as_columns, identity, matmul, transposed
from rematc.ir.ops.spectral import Eig, Eigh, PseudoInverse, Svd
from rematc.ir.values import Value
from rematc.passes.legalize.rules import expands


@expands(PseudoInverse)
def pseudo_inverse(b: Builder, op: PseudoInverse, a: Value, cutoff: Value) -> Sequence[Value]:
    """v diag(1 / s) uᴴ over the singular values that count."""
    if a.type.size == 0:
        return [transposed(b, a)]
    u, s, vh = b.emit(Svd(), a)
    last = s.type.rank - 1
    bound = b.multiply(b.reduce_max(s, (last,)), cutoff)
    counts = b.compare(s, b.broadcast_in_dim(bound, s.type.shape, range(last)), "GT")
    ones = b.full(s.type, 1)
    inverse = b.select(counts, b.divide(ones, b.select(counts, s, ones)), b.zeros(s.type))
    scaled = b.multiply(b.convert(as_columns(b, inverse, u.type.shape[-2]), a.type.dtype), adjoint(b, u))
    return [matmul(b, adjoint(b, vh), scaled)]


@expands(Lu)
def lu(b: Builder, op: Lu, a: Value) -> Sequence[Value] | None:
    """No pivots, and rows as they are."""
    _, pivots, permutation = op.infer([a.type])
    return None if a.type.size else [a, b.zeros(pivots), b.iota(permutation, permutation.rank - 1)]


@expands(Qr)
def qr(b: Builder, op: Qr, a: Value) -> Sequence[Value] | None:
    """The identity, and nothing."""
    q, r = op.infer([a.type])
    return None if a.type.size else [identity(b, q), b.zeros(r)]


@expands(Eigh, Eig, Svd)
def spectral(b: Builder, op: Eigh | Eig | Svd, a: Value) -> Sequence[Value] | None:
    """The identity as vectors, where there are some, and no values."""
    if a.type.size:
        return None
    return [identity(b, type) if type.rank == a.type.rank else b.zeros(type) for type in op.infer([a.type])]
