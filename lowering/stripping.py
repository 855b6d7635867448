"""A StableHLO module without its optimization barriers: what XLA may then merge and move, it does."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from rematc.ir.types import DTYPES, DType, TensorType
from rematc.lowering.program import Program
from rematc.lowering.reading import module_of
from rematc.lowering.validation import mlir_context, parse

_BARRIER = "stablehlo.optimization_barrier"


def without_barriers(text: str, name: str) -> Program | None:
    """The program of a module, each barrier's results replaced by its operands.

    None where the module has arguments or results that are no arrays of this package's element types, or lie on
    several devices.
    """
    with mlir_context():
        module = parse(text)
        signature = _signature(module)
        if signature is None:
            return None
        barriers: list[Any] = []

        def collect(op: Any) -> Any:
            if op.name == _BARRIER:
                barriers.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for barrier in barriers:
            for result, operand in zip(list(barrier.results), list(barrier.operands), strict=True):
                result.replace_all_uses_with(operand)
            barrier.operation.erase()
        params, results = signature
        return Program(module_of(module), params, results, name)


def _signature(module: ir.Module) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]] | None:
    attributes = module.operation.attributes
    for partitions in ("mhlo.num_partitions", "mhlo.num_replicas"):
        if partitions in attributes and ir.IntegerAttr(attributes[partitions]).value != 1:
            return None
    symbols = ir.SymbolTable(module.operation)
    if "main" not in symbols:
        return None
    main: Any = symbols["main"]
    sides = [[_type(type) for type in types] for types in (main.type.inputs, main.type.results)]
    params, results = (tuple([type for type in side if type is not None]) for side in sides)
    if len(params) != len(sides[0]) or len(results) != len(sides[1]):
        return None
    return params, results


def _type(type: ir.Type) -> TensorType | None:
    if not isinstance(type, ir.RankedTensorType) or not type.has_static_shape:
        return None
    by_spelling: dict[str, DType] = {dtype.mlir: dtype for dtype in DTYPES.values()}
    dtype = by_spelling.get(str(type.element_type))
    return None if dtype is None else TensorType(dtype, tuple(type.shape))
