"""Lowering of gather and scatter, in MLIR's generic form: they have no other."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import indexing
from rematc.ir.types import TensorType
from rematc.lowering.ops.elementwise import name_for
from rematc.lowering.writer import Writer, array, ints, lowers

_COMBINED_BY = {
    indexing.ScatterAdd: "add",
    indexing.ScatterMultiply: "multiply",
    indexing.ScatterMinimum: "minimum",
    indexing.ScatterMaximum: "maximum",
}


@lowers(indexing.Gather)
def gather(w: Writer, eqn: Equation) -> None:
    """`%r = "stablehlo.gather"(%x, %i) <{dimension_numbers = .., slice_sizes = ..}> : ...`."""
    op = eqn.op
    assert isinstance(op, indexing.Gather)
    dims = op.dimension_numbers
    numbers = _numbers(
        {
            "offset_dims": dims.offset_dims,
            "collapsed_slice_dims": dims.collapsed_slice_dims,
            "operand_batching_dims": dims.operand_batching_dims,
            "start_indices_batching_dims": dims.start_indices_batching_dims,
            "start_index_map": dims.start_index_map,
        },
        dims.index_vector_dim,
    )
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, "
        f"indices_are_sorted = {_truth(op.indices_are_sorted)}, slice_sizes = {array(op.slice_sizes)}"
    )
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    call = f'{w.define(result)} = "stablehlo.gather"({operands}) <{{{attributes}}}>'
    w.line(f"{call} : ({types}) -> {w.type(result.type)}", eqn.loc)


@lowers(indexing.Scatter, *_COMBINED_BY)
def scatter(w: Writer, eqn: Equation) -> None:
    """`%r = "stablehlo.scatter"(%x, %i, %u) <{..}> ({ body of old and new element }) : ...`."""
    op = eqn.op
    assert isinstance(op, indexing.Scattering)
    dims = op.dimension_numbers
    numbers = _numbers(
        {
            "update_window_dims": dims.update_window_dims,
            "inserted_window_dims": dims.inserted_window_dims,
            "input_batching_dims": dims.input_batching_dims,
            "scatter_indices_batching_dims": dims.scatter_indices_batching_dims,
            "scatter_dims_to_operand_dims": dims.scatter_dims_to_operand_dims,
        },
        dims.index_vector_dim,
    )
    attributes = (
        f"indices_are_sorted = {_truth(op.indices_are_sorted)}, "
        f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, unique_indices = {_truth(op.unique_indices)}"
    )
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    element = w.type(TensorType(result.type.dtype, ()))
    w.raw(f'{w.define(result)} = "stablehlo.scatter"({operands}) <{{{attributes}}}> ({{')
    old, new = w.fresh(), w.fresh()
    w.raw(f"^combine({old}: {element}, {new}: {element}):")
    combined = new
    if type(op) in _COMBINED_BY:
        combined = w.fresh()
        name = name_for(_COMBINED_BY[type(op)], result.type.dtype)
        w.line(f"  {combined} = stablehlo.{name} {old}, {new} : {element}", eqn.loc)
    w.line(f"  stablehlo.return {combined} : {element}", eqn.loc)
    w.line(f"}}) : ({types}) -> {w.type(result.type)}", eqn.loc)


def _numbers(lists: dict[str, tuple[int, ...]], index_vector_dim: int) -> str:
    """The insides of a dimension numbers attribute; empty lists are left out."""
    given = [f"{name} = {ints(dimensions)}" for name, dimensions in lists.items() if dimensions]
    return ", ".join([*given, f"index_vector_dim = {index_vector_dim}"])


def _truth(value: bool) -> str:
    return "true" if value else "false"
