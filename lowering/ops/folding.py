"""Lowering of reductions by a function: `stablehlo.reduce` and `stablehlo.reduce_window` with its equations inside."""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.folding import Reduce, ReduceWindow
from rematc.lowering.ops.window import padding_attribute
from rematc.lowering.writer import Writer, array, lowers


@lowers(Reduce)
def reduce(w: Writer, eqn: Equation) -> None:
    """`"stablehlo.reduce"(%x, %init) <{dimensions = array<i64: 0>}> ({...})`."""
    assert isinstance(eqn.op, Reduce)
    _write(w, eqn, f"dimensions = {array(eqn.op.dimensions)}", eqn.op.body)


@lowers(ReduceWindow)
def reduce_window(w: Writer, eqn: Equation) -> None:
    """`"stablehlo.reduce_window"(%x, %init) <{...}> ({...})`."""
    op = eqn.op
    assert isinstance(op, ReduceWindow)
    attributes = (
        f"base_dilations = {array(op.base_dilations)}, padding = {padding_attribute(op.padding)}, "
        f"window_dilations = {array(op.window_dilations)}, window_dimensions = {array(op.window_dimensions)}, "
        f"window_strides = {array(op.window_strides)}"
    )
    _write(w, eqn, attributes, op.body)


def _write(w: Writer, eqn: Equation, attributes: str, body: Graph) -> None:
    head = f'"stablehlo.{eqn.op.name}"({w.names(eqn.operands)}) <{{{attributes}}}> ({{'
    w.raw(f"{w.define_all(eqn.results)}{head}")
    with w.scope():
        names = [w.fresh() for _ in body.params]
        for param, name in zip(body.params, names, strict=True):
            w.bind(param, name)
        listed = [f"{name}: {w.type(param.type)}" for param, name in zip(body.params, names, strict=True)]
        w.raw(f"^bb0({', '.join(listed)}):")
        w.body(body)
        w.line(f"stablehlo.return {w.names(body.results)} : {w.types(body.results)}", eqn.loc)
    w.line(f"}}) : ({w.types(eqn.operands)}) -> ({w.types(eqn.results)})", eqn.loc)
