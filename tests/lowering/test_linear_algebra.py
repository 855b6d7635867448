"""Lowering of decompositions: the calls of kernels are those of JAX's own lowering, on platforms not at hand too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from jax import lax

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.ops.spectral import Eig, Eigh, Svd
from rematc.ir.ops.triangular import TRANSPOSES, Cholesky, TriangularSolve
from rematc.ir.types import BF16, C64, C128, F16, F32, F64, DType, TensorType
from rematc.lowering.module import stablehlo_text
from rematc.lowering.target import Target
from rematc.lowering.validation import mlir_context, parse
from tests.support.samples import graph_of

#: What a call says of a kernel: its name, its options, and how its operands and results lie in memory.
Call = tuple[str, ...]
NAMES = (
    *("call_target_name", "operand_layouts", "result_layouts", "output_operand_aliases"),
    *("backend_config", "mhlo.backend_config"),
)
BY_QR = lax.linalg.SvdAlgorithm.QR


def calls(text: str) -> list[Call]:
    """The kernel calls of a module, in order."""
    with mlir_context():
        return [_described(op) for op in _operations(parse(text).operation) if op.name == "stablehlo.custom_call"]


def _operations(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner.operation)


def _described(op: Any) -> Call:
    attributes = {name: op.attributes[name] for name in NAMES if name in op.attributes}
    # JAX writes the options beside the op's own attribute, for readers that know no dictionaries there.
    options = attributes.get("mhlo.backend_config", attributes.get("backend_config"))
    listed = [str(attributes.get(name, "[]")) for name in NAMES[:4]]
    return (*listed, str(options), *[str(value.type) for value in (*op.operands, *op.results)])


def in_jax(function: Callable[..., Any], type: TensorType, platform: str) -> str:
    shape: Any = jax.ShapeDtypeStruct
    with jax.enable_x64(True):
        traced = jax.jit(function).trace(shape(type.shape, type.dtype.numpy))
        text: str = traced.lower(lowering_platforms=(platform,)).as_text()
    return text


CASES: dict[str, tuple[Op, Callable[..., Any], tuple[int, ...]]] = {
    "lu": (Lu(), lax.linalg.lu, (2, 4, 3)),
    "lu of one matrix": (Lu(), lax.linalg.lu, (3, 3)),
    "qr": (Qr(False), lambda a: lax.linalg.qr(a, full_matrices=False), (4, 4)),
    "eigh": (Eigh(), lambda a: lax.linalg.eigh(a, symmetrize_input=False), (2, 5, 3, 3)),
    "eigh upper": (Eigh(False), lambda a: lax.linalg.eigh(a, lower=False, symmetrize_input=False), (3, 3)),
    "svd tall": (Svd(False), lambda a: lax.linalg.svd(a, full_matrices=False, algorithm=BY_QR), (2, 4, 3)),
    "svd wide": (Svd(False), lambda a: lax.linalg.svd(a, full_matrices=False, algorithm=BY_QR), (3, 4)),
    "svd full": (Svd(True), lambda a: lax.linalg.svd(a, full_matrices=True, algorithm=BY_QR), (2, 3, 4)),
}
ON_CPU: dict[str, tuple[Op, Callable[..., Any], tuple[int, ...]]] = {
    "svd": (Svd(False), lambda a: lax.linalg.svd(a, full_matrices=False), (2, 4, 3)),
    "svd full": (Svd(True), lax.linalg.svd, (3, 4)),
    "singular values": (
        Svd(vectors=False),
        lambda a: lax.linalg.svd(a, full_matrices=False, compute_uv=False),
        (2, 4, 3),
    ),
    "eig": (Eig(), lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False), (2, 3, 3)),
    "cholesky": (Cholesky(True), lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (2, 3, 3)),
    "eigenvalues": (
        Eig(vectors=False),
        lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False),
        (3, 3),
    ),
}


@pytest.mark.parametrize("dtype", [F32, C128], ids=str)
@pytest.mark.parametrize("platform", ["cuda", "rocm"])
@pytest.mark.parametrize("name", CASES)
def test_gpus_get_the_calls_that_jax_makes(name: str, platform: str, dtype: DType) -> None:
    op, function, shape = CASES[name]
    type = TensorType(dtype, shape)
    found = calls(stablehlo_text(graph_of(op, [type]), Target.of(platform)))
    assert found == calls(in_jax(function, type, platform))
    assert len(found) == (2 if isinstance(op, Lu | Qr) else 1)


@pytest.mark.parametrize("dtype", [F64, C64], ids=str)
@pytest.mark.parametrize("name", [*(name for name in CASES if "svd" not in name), *ON_CPU])
def test_cpus_get_the_calls_that_jax_makes(name: str, dtype: DType) -> None:
    op, function, shape = {**CASES, **ON_CPU}[name]
    type = TensorType(dtype, shape)
    assert calls(stablehlo_text(graph_of(op, [type]))) == calls(in_jax(function, type, "cpu"))


@pytest.mark.parametrize("dtype", [F32, C128], ids=str)
@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("transpose_a", TRANSPOSES)
def test_triangular_systems_get_the_calls_that_jax_makes(transpose_a: str, left_side: bool, dtype: DType) -> None:
    type = TensorType(dtype, (2, 3, 3))

    def in_jax_s(a: Any) -> Any:
        options = {"transpose_a": transpose_a != "NO_TRANSPOSE", "conjugate_a": transpose_a == "ADJOINT"}
        return lax.linalg.triangular_solve(a, a, left_side=left_side, lower=True, unit_diagonal=True, **options)

    def solving(platform: str) -> str:
        b = Builder("solving")
        a = b.parameter(type)
        return stablehlo_text(
            b.build(*b.emit(TriangularSolve(left_side, True, True, transpose_a), a, a)), Target.of(platform)
        )

    found = calls(solving("cpu"))
    assert len(found) == 1
    assert found == calls(in_jax(in_jax_s, type, "cpu"))
    assert calls(solving("cuda")) == []
    assert "stablehlo.triangular_solve" in solving("tpu")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_narrow_types_and_other_platforms_have_no_kernel_of_lapack(dtype: DType) -> None:
    for graph, platform in (
        (graph_of(Cholesky(True), [TensorType(dtype, (3, 3))]), "cpu"),
        (graph_of(Cholesky(True), [TensorType(F32, (3, 3))]), "tpu"),
    ):
        text = stablehlo_text(graph, Target.of(platform))
        assert calls(text) == []
        assert "stablehlo.cholesky" in text


@pytest.mark.parametrize("op", [Lu(), Qr(True), Eigh(), Eig(), Svd()], ids=lambda op: op.name)
def test_matrices_without_elements_need_no_kernel(op: Op) -> None:
    """Some kernels divide by their number of rows."""
    for platform in ("cpu", "cuda", "tpu"):
        assert calls(stablehlo_text(graph_of(op, [TensorType(F64, (2, 0, 0))]), Target.of(platform))) == []


@pytest.mark.parametrize(
    ("op", "platform"),
    [(Lu(), "tpu"), (Qr(False), "tpu"), (Eigh(), "tpu"), (Svd(), "tpu"), (Eig(), "tpu"), (Eig(), "cuda")],
)
def test_a_platform_without_the_kernel_is_refused(op: Op, platform: str) -> None:
    with pytest.raises(CompileError, match=f"'{op.name}' has no kernel on platform '{platform}'; .*target='cpu'"):
        stablehlo_text(graph_of(op, [TensorType(F64, (3, 3))]), Target.of(platform))


def test_kernels_of_the_gpu_go_by_either_name_of_the_platform() -> None:
    graph = graph_of(Lu(), [TensorType(F64, (3, 3))])
    assert stablehlo_text(graph, Target.of("gpu")) == stablehlo_text(graph, Target.of("cuda"))
