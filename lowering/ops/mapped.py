"""Lowering of what devices compute each of its part: a function that JAX writes around `sdy.manual_computation`."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import DeviceMap
from rematc.lowering.jax_internals.written import written_function
from rematc.lowering.writer import Writer, lowers


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
