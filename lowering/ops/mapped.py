"""Lowering of what devices compute each of its part: `sdy.manual_computation`; also functions that JAX writes."""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import DeviceMap, Manual, ManualComputation
from rematc.lowering.jax_internals.written import written_function
from rematc.lowering.writer import Writer, braced, lowers, meshed


@lowers(DeviceMap)
def device_map(w: Writer, eqn: Equation) -> None:
    """`%r = func.call @shard_map(%x) : (tensor<...>) -> tensor<...>`."""
    op = eqn.op
    assert isinstance(op, DeviceMap)
    source = op.source
    if source is None:
        raise CompileError(f"'{op.label}' over devices was read from text, which does not say what it does", eqn.loc)
    for mesh in source.meshes:
        w.meshes.setdefault(mesh)
    w.partitions = max(w.partitions, op.devices)
    w.constrained_at = w.constrained_at or eqn.loc
    types, platform = eqn.operand_types, w.target.platform
    callee = w.foreign_function(op.name, (op, types), lambda symbol: written_function(source, types, platform, symbol))
    signature = f"({w.types(eqn.operands)}) -> ({w.types(eqn.results)})"
    w.line(f"{w.define_all(eqn.results)}func.call @{callee}({w.names(eqn.operands)}) : {signature}", eqn.loc)


@lowers(ManualComputation)
def manual_computation(w: Writer, eqn: Equation) -> None:
    """`%r = sdy.manual_computation(%x) in_shardings=[<mesh<["d"=2]>, [{"d"}, {}]>] ... manual_axes={"d"} (...) {`."""
    op, place = eqn.op, w.place
    assert isinstance(op, ManualComputation)
    if place is not None:
        raise CompileError(f"'{op.name}' stands in another one, which has no text", eqn.loc)
    for mesh in () if op.source is None else op.source.meshes:
        w.meshes.setdefault(mesh)
    w.partitions = max(w.partitions, op.devices)
    w.constrained_at = w.constrained_at or eqn.loc
    w.place = Manual(op.axes_of_mesh, op.sizes, op.manual, False, op.source)
    if op.devices == 1:  # XLA partitions nothing, and knows no borders
        _in_place(w, eqn, op.body)
        w.place = place
        return
    given = ", ".join([meshed(w.place, spec) for spec in op.operands])
    gives = ", ".join([meshed(w.place, spec) for spec in op.results])
    call = f"{w.define_all(eqn.results)}sdy.manual_computation({w.names(eqn.operands)})"
    names = [w.fresh() for _ in op.body.params]
    pairs = zip(names, op.body.params, strict=True)
    params = ", ".join([f"{name}: {w.type(value.type)}" for name, value in pairs])
    axes = f"manual_axes={braced(op.manual)}"
    w.raw(f"{call} in_shardings=[{given}] out_shardings=[{gives}] {axes} ({params}) {{")
    with w.scope():
        for name, value in zip(names, op.body.params, strict=True):
            w.bind(value, name)
        w.body(op.body)
        w.returned("sdy.return", [w.name(value) for value in op.body.results], list(map(w.type, op.body.result_types)))
    w.line(f"}} : ({w.types(eqn.operands)}) -> ({w.types(eqn.results)})", eqn.loc)
    w.place = place


def _in_place(w: Writer, eqn: Equation, body: Graph) -> None:
    """The lines of a region without the region."""
    names = [w.name(value) for value in eqn.operands]
    with w.scope():
        for name, value in zip(names, body.params, strict=True):
            w.bind(value, name)
        w.body(body)
        names = [w.name(value) for value in body.results]
    for name, value in zip(names, eqn.results, strict=True):
        w.bind(value, name)
