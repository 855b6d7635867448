"""What rules of linear algebra write: calls of jaxlib's kernels, and equations of the IR in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from rematc.ir.builder import Builder
from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.ops.matrices import where_all
from rematc.ir.types import C64, C128, F32, F64, I32, DType, TensorType
from rematc.ir.values import Value
from rematc.lowering.writer import Writer

#: How names of LAPACK's routines begin for an element type.
LAPACK_PREFIXES: Mapping[DType, str] = {F32: "s", F64: "d", C64: "c", C128: "z"}
#: How those of kernels on GPUs begin (`Target.kernels`).
GPU_KERNELS = ("cu", "hip")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of jaxlib's by the name under which XLA knows it, with the attributes that it takes (XLA's typed FFI).

    Attributes:
        target: its name.
        attributes: their names, and their values as MLIR prints them.
        column_major: whether it takes and gives matrices column by column.
        overwrites: whether its first result takes the memory of an operand.
        overwritten: of which one.
    """

    target: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    column_major: bool = True
    overwrites: bool = True
    overwritten: int = 0


def call_kernel(
    w: Writer, kernel: Kernel, operands: Sequence[tuple[str, TensorType]], results: Sequence[TensorType], eqn: Equation
) -> list[str]:
    """Write a call; the names of its results. What has the rank of the first operand is a matrix, the rest vectors."""
    rank = operands[0][1].rank
    layouts = [_layouts(kernel, [type for _, type in operands], rank), _layouts(kernel, results, rank)]
    config = ", ".join(f"{name} = {value}" for name, value in kernel.attributes.items())
    indices = "" if len(results) == 1 else "0"
    alias = (
        "output_operand_aliases = [#stablehlo.output_operand_alias<"
        f"output_tuple_indices = [{indices}], operand_index = {kernel.overwritten}, operand_tuple_indices = []>], "
    )
    attributes = (
        f"api_version = 4 : i32, backend_config = {{{config}}}, operand_layouts = [{layouts[0]}], "
        f"{alias if kernel.overwrites else ''}result_layouts = [{layouts[1]}]"
    )
    w.calls.setdefault(kernel.target, eqn.loc)
    name = w.fresh()
    defined = name if len(results) == 1 else f"{name}:{len(results)}"
    given, types = ", ".join(name for name, _ in operands), ", ".join(w.type(type) for _, type in operands)
    signature = f"({types}) -> ({', '.join(map(w.type, results))})"
    call = f"stablehlo.custom_call @{kernel.target}({given}) {{{attributes}}}"
    w.line(f"{defined} = {call} : {signature}", eqn.loc)
    return [name] if len(results) == 1 else [f"{name}#{index}" for index in range(len(results))]


def _layouts(kernel: Kernel, types: Sequence[TensorType], rank: int) -> str:
    return ", ".join(_layout(type, kernel.column_major and type.rank == rank) for type in types)


def _layout(type: TensorType, column_major: bool) -> str:
    """The dimensions from the one that changes fastest to the one that changes slowest."""
    order = [*range(type.rank)][::-1]
    if column_major:
        order[:2] = [type.rank - 2, type.rank - 1]
    listed = str(order[0]) if len(order) == 1 else str(order) if order else ""
    return f"dense<{listed}> : tensor<{type.rank}xindex>"


def lapack(routine: str, dtype: DType) -> str:
    """The name of LAPACK's routine for this element type."""
    return f"lapack_{LAPACK_PREFIXES[dtype]}{routine}_ffi"


def character(letter: str) -> str:
    """A LAPACK option as an attribute."""
    return f"{ord(letter)} : ui8"


def no_kernel(w: Writer, eqn: Equation) -> NoReturn:
    """Raise CompileError: the platform has no kernel for the op."""
    raise CompileError(
        f"'{eqn.op.name}' has no kernel on platform '{w.target.platform}'; "
        "compute that part on the CPU, in a function compiled with target='cpu'",
        eqn.loc,
    )


Build = Callable[..., Sequence[Value]]


def in_place(
    w: Writer, build: Build, operands: Sequence[tuple[str, TensorType]], eqn: Equation
) -> list[tuple[str, TensorType]]:
    """Write the equations that `build(builder, *values)` emits; names and types of the values that it returns."""
    b = Builder(eqn.op.name)
    b.loc = eqn.loc
    params = [b.parameter(type) for _, type in operands]
    graph = b.build(*build(b, *params))
    with w.scope():
        for param, (name, _) in zip(params, operands, strict=True):
            w.bind(param, name)
        w.body(graph)
        return [(w.name(value), value.type) for value in graph.results]


def bind_results(w: Writer, eqn: Equation, found: Sequence[tuple[str, TensorType]]) -> None:
    """Let the results of an equation be values already written."""
    for value, (name, type) in zip(eqn.results, found, strict=True):
        assert value.type == type, f"'{eqn.op.name}' lowers to {type} where it gives {value.type}"
        w.bind(value, name)


def info_of(batch: Sequence[int]) -> TensorType:
    """The type of what a kernel says about its success: zero for each matrix where all went well."""
    return TensorType(I32, tuple(batch))


def valid(b: Builder, info: Value, x: Value, is_valid: str = "EQ") -> Value:
    """`x`, NaN for matrices that the kernel could not decompose."""
    nan = complex("nan+nanj") if x.type.dtype.is_complex else float("nan")
    return where_all(b, b.compare(info, b.zeros(info.type), is_valid), x, b.full(x.type, nan))
