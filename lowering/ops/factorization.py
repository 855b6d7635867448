"""Lowering of LU and QR: calls of LAPACK's kernels on the CPU, of cuSOLVER's and hipSOLVER's on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Equation
from rematc.ir.ops.dynamic import DynamicSlice
from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.ops.matrices import batch_of, columns, padded, rows, upper_triangle
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Value
from rematc.lowering.ops.kernels import (
    GPU_KERNELS,
    Kernel,
    bind_results,
    call_kernel,
    in_place,
    info_of,
    lapack,
    no_kernel,
    valid,
)
from rematc.lowering.writer import Writer, lowers

Named = tuple[str, TensorType]


@lowers(Lu)
def lu(w: Writer, eqn: Equation) -> None:
    """getrf, whose pivots count from 1, and their permutation. A zero among the pivots of u is no failure."""
    (a,) = eqn.operands
    packed, pivots, permutation = (value.type for value in eqn.results)
    info = info_of(batch_of(a.type))
    kernel = Kernel(_target(w, eqn, "getrf", "getrf"))
    types = [packed, pivots, info]
    names = call_kernel(w, kernel, [(w.name(a), a.type)], types, eqn)

    def from_zero(b: Builder, x: Value, ones: Value, failures: Value) -> Sequence[Value]:
        return valid(b, failures, x, "GE"), b.subtract(ones, b.full(ones.type, 1))

    found = in_place(w, from_zero, list(zip(names, types, strict=True)), eqn)
    bind_results(w, eqn, [*found, (_permutation(w, found[1], permutation, eqn), permutation)])


def _target(w: Writer, eqn: Equation, routine: str, gpu_routine: str) -> str:
    if w.target.kernels == "lapack":
        return lapack(routine, eqn.operands[0].type.dtype)
    if w.target.kernels in GPU_KERNELS:
        return f"{w.target.kernels}solver_{gpu_routine}_ffi"
    no_kernel(w, eqn)


def _permutation(w: Writer, pivots: Named, type: TensorType, eqn: Equation) -> str:
    """The permutation that exchanging row i with row `pivots[i]`, one after the other, comes to."""
    if w.target.kernels in GPU_KERNELS:
        kernel = Kernel(f"{w.target.kernels}_lu_pivots_to_permutation", column_major=False, overwrites=False)
        return call_kernel(w, kernel, [pivots], [type], eqn)[0]
    counter = TensorType(I32, ())
    start = in_place(w, lambda b: [b.zeros(counter), b.iota(type, type.rank - 1)], [], eqn)
    loop, step, rows_so_far = w.fresh(), (w.fresh(), counter), (w.fresh(), type)
    carried = f"{step[0]} = {start[0][0]}, {rows_so_far[0]} = {start[1][0]}"
    w.raw(f"{loop}:2 = stablehlo.while({carried}) : {w.type(counter)}, {w.type(type)}")
    w.raw("cond {")
    count = pivots[1].shape[-1]
    (going,) = in_place(w, lambda b, i: [b.compare(i, b.full(counter, count), "LT")], [step], eqn)
    w.line(f"stablehlo.return {going[0]} : {w.type(going[1])}", eqn.loc)
    w.raw("} do {")
    following = in_place(w, _exchange, [step, rows_so_far, pivots], eqn)
    listed = ", ".join(name for name, _ in following)
    w.line(f"stablehlo.return {listed} : {w.type(counter)}, {w.type(type)}", eqn.loc)
    w.line("}", eqn.loc)
    return f"{loop}#1"


def _exchange(b: Builder, step: Value, permutation: Value, pivots: Value) -> Sequence[Value]:
    """Elements `step` and `pivots[step]` of each permutation exchanged, by selection; the next step."""
    batch, last = permutation.type.shape[:-1], permutation.type.rank - 1
    none = [b.zeros(step.type)] * last
    every = range(last + 1)

    def at_step(x: Value) -> Value:
        element = b.emit1(DynamicSlice((*batch, 1)), x, *none, step)
        return b.broadcast_in_dim(element, permutation.type.shape, every)

    places = b.iota(permutation.type, last)
    there = b.compare(places, at_step(pivots), "EQ")
    other = b.reduce_sum(b.select(there, permutation, b.zeros(permutation.type)), (last,))
    other = b.broadcast_in_dim(other, permutation.type.shape, every[:-1])
    here = b.compare(places, b.broadcast_in_dim(step, permutation.type.shape, ()), "EQ")
    exchanged = b.select(here, other, b.select(there, at_step(permutation), permutation))
    return b.add(step, b.full(step.type, 1)), exchanged


@lowers(Qr)
def qr(w: Writer, eqn: Equation) -> None:
    """geqrf, then orgqr, or ungqr, forms q from its reflections."""
    (a,), (q, r) = eqn.operands, (value.type for value in eqn.results)
    m, n = a.type.shape[-2:]
    k = min(m, n)
    scales = a.type.with_shape((*batch_of(a.type), k))
    kernel = Kernel(_target(w, eqn, "geqrf", "geqrf"))
    packed, taus = call_kernel(w, kernel, [(w.name(a), a.type)], [a.type, scales], eqn)

    def halves(b: Builder, x: Value) -> Sequence[Value]:
        return padded(b, columns(b, x, 0, k), m, q.shape[-1]), upper_triangle(b, rows(b, x, 0, r.shape[-2]))

    reflections, upper = in_place(w, halves, [(packed, a.type)], eqn)
    forming = Kernel(_target(w, eqn, "ungqr" if a.type.dtype.is_complex else "orgqr", "orgqr"))
    (formed,) = call_kernel(w, forming, [reflections, (taus, scales)], [q], eqn)
    bind_results(w, eqn, [(formed, q), upper])
