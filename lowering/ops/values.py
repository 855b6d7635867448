"""What rules write beside their op: constants, conversions, how comparisons compare."""

from __future__ import annotations

from rematc.ir.locations import Location
from rematc.ir.types import DType, Kind, TensorType, dtype_of_numpy
from rematc.ir.values import Array
from rematc.lowering.literals import dense
from rematc.lowering.writer import Writer

#: The comparison type of `stablehlo.compare` for elements of each kind.
COMPARE_TYPES = {
    Kind.BOOL: "UNSIGNED",
    Kind.INT: "SIGNED",
    Kind.UINT: "UNSIGNED",
    Kind.FLOAT: "FLOAT",
    Kind.COMPLEX: "FLOAT",
}


def literal(w: Writer, value: Array, loc: Location | None) -> str:
    """Write a constant; its name."""
    dtype = dtype_of_numpy(value.dtype)
    assert dtype is not None, f"{value.dtype} is the element type of no tensor"
    name, type = w.fresh(), TensorType(dtype, value.shape)
    w.line(f"{name} = stablehlo.constant {dense(type, value)} : {w.type(type)}", loc)
    return name


def converted(w: Writer, name: str, type: TensorType, dtype: DType, loc: Location | None) -> str:
    """Write the value of this name and type in another element type; its name."""
    if type.dtype is dtype:
        return name
    found = w.fresh()
    signature = f"({w.type(type)}) -> {w.type(type.with_dtype(dtype))}"
    w.line(f"{found} = stablehlo.convert {name} : {signature}", loc)
    return found
