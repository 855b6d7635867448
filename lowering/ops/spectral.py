"""Lowering of eigenvalues and singular values: calls of LAPACK's kernels, on GPUs of cuSOLVER's and hipSOLVER's."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Equation
from rematc.ir.ops.matrices import batch_of
from rematc.ir.ops.spectral import Eig, Eigh, Svd
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.ops.kernels import (
    GPU_KERNELS,
    Kernel,
    bind_results,
    call_kernel,
    character,
    in_place,
    info_of,
    lapack,
    no_kernel,
    valid,
)
from rematc.lowering.writer import Writer, lowers

Named = tuple[str, TensorType]


def _bind_valid(w: Writer, eqn: Equation, found: Sequence[Named], info: str) -> None:
    """Bind the results, NaN where the kernel failed."""

    def build(b: Builder, failures: Value, *values: Value) -> Sequence[Value]:
        return [valid(b, failures, value) for value in values]

    operands = [(info, info_of(batch_of(eqn.operands[0].type))), *found]
    bind_results(w, eqn, in_place(w, build, operands, eqn))


@lowers(Eigh)
def eigh(w: Writer, eqn: Equation) -> None:
    """syevd, or heevd. The kernels on GPUs compute the vectors in any case."""
    op, (a,) = eqn.op, eqn.operands
    assert isinstance(op, Eigh)
    if w.target.kernels == "lapack":
        options = {"mode": character("V" if op.vectors else "N"), "uplo": character("L" if op.lower else "U")}
        kernel = Kernel(lapack("heevd" if a.type.dtype.is_complex else "syevd", a.type.dtype), options)
    elif w.target.kernels in GPU_KERNELS:
        options = {"algorithm": "0 : ui8", "lower": "true" if op.lower else "false"}
        kernel = Kernel(f"{w.target.kernels}solver_syevd_ffi", options)
    else:
        no_kernel(w, eqn)
    values = eqn.results[0].type
    types = [a.type, values, info_of(batch_of(a.type))]
    v, values_name, info = call_kernel(w, kernel, [(w.name(a), a.type)], types, eqn)
    found = [(values_name, values), (v, a.type)]
    return _bind_valid(w, eqn, found[: len(eqn.results)], info)


@lowers(Eig)
def eig(w: Writer, eqn: Equation) -> None:
    """geev, which gives real and imaginary parts of a real matrix's eigenvalues apart."""
    op, (a,) = eqn.op, eqn.operands
    assert isinstance(op, Eig)
    if w.target.kernels != "lapack":
        no_kernel(w, eqn)
    is_complex = a.type.dtype.is_complex
    options = {"compute_left": character("N"), "compute_right": character("V" if op.vectors else "N")}
    values = eqn.results[0].type
    parts = [values] if is_complex else [a.type.with_shape(values.shape)] * 2
    vectors = a.type.with_dtype(values.dtype)
    kernel = Kernel(lapack("geev", a.type.dtype), options, overwrites=False)
    types = [*parts, vectors, vectors, info_of(batch_of(a.type))]
    *found, _, v, info = call_kernel(w, kernel, [(w.name(a), a.type)], types, eqn)
    if is_complex:
        (joined,) = found
    else:
        joined = w.fresh()
        w.line(f"{joined} = stablehlo.complex {found[0]}, {found[1]} : {w.type(values)}", eqn.loc)
    return _bind_valid(w, eqn, [(joined, values), (v, vectors)][: len(eqn.results)], info)


@lowers(Svd)
def svd(w: Writer, eqn: Equation) -> None:
    """gesdd on the CPU, gesvd on GPUs."""
    op, (a,) = eqn.op, eqn.operands
    assert isinstance(op, Svd)
    if not w.target.kernels:
        no_kernel(w, eqn)
    values, (u, vh) = eqn.results[op.vectors].type, _vectors(op, a.type)
    call = _gesdd if w.target.kernels == "lapack" else _gesvd
    found, info = call(w, eqn, op, [u, values, vh])
    return _bind_valid(w, eqn, found if op.vectors else found[1:2], info)


def _vectors(op: Svd, a: TensorType) -> tuple[TensorType, TensorType]:
    """The types of u and vᴴ, which the kernels give in any case."""
    u, _, vh = Svd(op.full_matrices).infer([a])
    return u, vh


def _gesdd(w: Writer, eqn: Equation, op: Svd, types: Sequence[TensorType]) -> tuple[list[Named], str]:
    """u, s and vᴴ, and the name of the kernel's report."""
    mode = "N" if not op.vectors else "A" if op.full_matrices else "S"
    (a,), (u, s, vh) = eqn.operands, types
    kernel = Kernel(lapack("gesdd", a.type.dtype), {"mode": character(mode)})
    results = [a.type, s, u, vh, info_of(batch_of(a.type))]
    _, *names, info = call_kernel(w, kernel, [(w.name(a), a.type)], results, eqn)
    return [(names[1], u), (names[0], s), (names[2], vh)], info


def _gesvd(w: Writer, eqn: Equation, op: Svd, types: Sequence[TensorType]) -> tuple[list[Named], str]:
    """As `_gesdd`. The kernel takes tall matrices: a wide one is read by rows, as its transpose is by columns."""
    (a,), (u, s, vh) = eqn.operands, types
    m, n = a.type.shape[-2:]
    is_wide = m < n
    if not op.vectors:
        u = vh = a.type.with_shape(())
    options = {name: "true" if value else "false" for name, value in _gesvd_options(op, is_wide).items()}
    kernel = Kernel(f"{w.target.kernels}solver_gesvd_ffi", options, column_major=not is_wide)
    results = [a.type, s, *((vh, u) if is_wide else (u, vh)), info_of(batch_of(a.type))]
    _, values, left, right, info = call_kernel(w, kernel, [(w.name(a), a.type)], results, eqn)
    if is_wide:
        left, right = right, left
    return [(left, u), (values, s), (right, vh)], info


def _gesvd_options(op: Svd, is_wide: bool) -> dict[str, bool]:
    return {"compute_uv": op.vectors, "full_matrices": op.full_matrices, "transposed": is_wide}
