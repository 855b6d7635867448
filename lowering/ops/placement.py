"""Lowering of placements, as Shardy's constraints: XLA partitions the program by them."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.ops.placement import Placement
from rematc.lowering.writer import Writer, lowers


@lowers(Placement)
def placement(w: Writer, eqn: Equation) -> None:
    """`%r = sdy.sharding_constraint %x <mesh<["x"=4]>, [{"x"}, {}]> : tensor<...>`."""
    op = eqn.op
    assert isinstance(op, Placement)
    if not op.mesh:
        raise CompileError(
            f"'{op.what}' has no StableHLO text: rematc writes constraints of jax.sharding.NamedSharding alone; use "
            "jax.lax.with_sharding_constraint with one, leave it out, or use rematc.jax.value_and_grad, which hands it "
            "back to JAX",
            eqn.loc,
        )
    (operand,), (result,) = eqn.operands, eqn.results
    for mesh in () if op.source is None else op.source.meshes:
        w.meshes.setdefault(mesh)
    w.partitions = max(w.partitions, op.devices)
    w.constrained_at = w.constrained_at or eqn.loc
    constraint = f"<mesh{op.mesh}, [{', '.join(op.dimensions)}]>"
    line = f"{w.define(result)} = sdy.sharding_constraint {w.name(operand)} {constraint} : {w.type(result.type)}"
    w.line(line, eqn.loc)
