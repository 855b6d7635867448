"""Lowering of convolutions.

XLA:CPU has a fast kernel for one order of dimensions (batch, spatial, features; of kernels spatial, input features,
output features). It turns other convolutions to that order, but only those of the entry computation: its pass
`conv-canonicalization` looks at no other. So inside of loops, branches and functions the text has that order from the
start.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.types import TensorType
from rematc.lowering.writer import Writer, ints, lowers


@lowers(Convolution)
def convolution(w: Writer, eqn: Equation) -> None:
    """`stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {..} {..}`."""
    op = eqn.op
    assert isinstance(op, Convolution)
    (result,) = eqn.results
    names, types = [w.name(value) for value in eqn.operands], [value.type for value in eqn.operands]
    fast = ConvolutionDimensions.features_last(len(op.window_strides))
    is_slow = w.is_inside and op.dimensions != fast
    w.is_tuned |= is_slow
    if not is_slow or w.target.platform != "cpu":
        text = _convolution(w, op, op.dimensions, names, types, result.type)
        w.product(f"{w.define(result)} = {text}", eqn.loc)
        return
    turns = (
        permutation_between(op.dimensions.input, fast.input),
        permutation_between(op.dimensions.kernel, fast.kernel),
        permutation_between(op.dimensions.output, fast.output),
    )
    for index, permutation in enumerate(turns[:2]):
        turned, text = _transpose(w, names[index], types[index], permutation)
        names[index], types[index] = w.fresh(), turned
        w.line(f"{names[index]} = {text}", eqn.loc)
    inside = _turned(result.type, turns[2])
    name, text = w.fresh(), _convolution(w, op, fast, names, types, inside)
    w.product(f"{name} = {text}", eqn.loc)
    _, text = _transpose(w, name, inside, permutation_between(fast.output, op.dimensions.output))
    w.line(f"{w.define(result)} = {text}", eqn.loc)


def permutation_between(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """The permutation of the transpose after which those of `after` play the roles of the dimensions `before`."""
    source = dict(zip(after, before, strict=True))
    return tuple([source[place] for place in range(len(after))])


def _turned(type: TensorType, permutation: Sequence[int]) -> TensorType:
    return TensorType(type.dtype, tuple([type.shape[place] for place in permutation]))


def _transpose(w: Writer, name: str, type: TensorType, permutation: Sequence[int]) -> tuple[TensorType, str]:
    turned = _turned(type, permutation)
    return turned, f"stablehlo.transpose {name}, dims = {ints(permutation)} : ({w.type(type)}) -> {w.type(turned)}"


def _convolution(
    w: Writer,
    op: Convolution,
    dimensions: ConvolutionDimensions,
    names: Sequence[str],
    types: Sequence[TensorType],
    result: TensorType,
) -> str:
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
    call = f"stablehlo.convolution({', '.join(names)}) dim_numbers = {numbers}, window = {window} {attributes}"
    return f"{call} : ({', '.join([w.type(type) for type in types])}) -> {w.type(result)}"


def _roles(dimensions: Sequence[int], first: str, second: str) -> str:
    """What each dimension is, in the array's order: `[b, 0, 1, f]`."""
    roles = [""] * len(dimensions)
    for dimension, role in zip(dimensions, [first, second, *map(str, range(len(dimensions) - 2))], strict=True):
        roles[dimension] = role
    return f"[{', '.join(roles)}]"
