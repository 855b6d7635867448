"""Lowering of convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation
from rematc.ir.ops.convolution import Convolution
from rematc.lowering.writer import Writer, ints, lowers


@lowers(Convolution)
def convolution(w: Writer, eqn: Equation) -> None:
    """`stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {..} {..}`."""
    op = eqn.op
    assert isinstance(op, Convolution)
    (result,) = eqn.results
    dimensions = op.dimensions
    numbers = (
        f"{_roles(dimensions.input, 'b', 'f')}x{_roles(dimensions.kernel, 'o', 'i')}"
        f"->{_roles(dimensions.output, 'b', 'f')}"
    )
    padding = ", ".join([ints(edges) for edges in op.padding])
    reverse = ", ".join(["true" if turned else "false" for turned in op.window_reversal])
    window = (
        f"{{stride = {ints(op.window_strides)}, pad = [{padding}], lhs_dilate = {ints(op.lhs_dilation)}, "
        f"rhs_dilate = {ints(op.rhs_dilation)}, reverse = [{reverse}]}}"
    )
    precision = f"#stablehlo<precision {op.precision}>"
    attributes = (
        f"{{batch_group_count = {op.batch_group_count} : i64, feature_group_count = {op.feature_group_count} : i64, "
        f"precision_config = [{precision}, {precision}]}}"
    )
    call = f"stablehlo.convolution({w.names(eqn.operands)}) dim_numbers = {numbers}, window = {window} {attributes}"
    w.line(f"{w.define(result)} = {call} : ({w.types(eqn.operands)}) -> {w.type(result.type)}", eqn.loc)


def _roles(dimensions: Sequence[int], first: str, second: str) -> str:
    """What each dimension is, in the array's order: `[b, 0, 1, f]`."""
    roles = [""] * len(dimensions)
    for dimension, role in zip(dimensions, [first, second, *map(str, range(len(dimensions) - 2))], strict=True):
        roles[dimension] = role
    return f"[{', '.join(roles)}]"
