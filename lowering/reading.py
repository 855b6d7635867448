"""The facts of a StableHLO module that others have written, or that comes from a file: asked of MLIR."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from rematc.ir.locations import Location
from rematc.lowering.program import Module
from rematc.lowering.validation import location_of

_BARRIER, _CALL = "stablehlo.optimization_barrier", "stablehlo.custom_call"
#: How a module says where a value lies: of an argument or result of `main`, and of what a call places.
_KIND, _ATTRIBUTES, _PLACEMENT = "mhlo.memory_kind", "mhlo.frontend_attributes", "_xla_buffer_placement"


def module_of(module: ir.Module) -> Module:
    """A module of MLIR's with its facts. Callbacks, meshes and what it is tuned for are not in it."""
    barriers = 0
    memories: set[str] = set()
    calls: dict[str, Location | None] = {}

    def visit(operation: Any) -> Any:
        nonlocal barriers
        attributes = operation.attributes
        if operation.name == _BARRIER:
            barriers += 1
        elif operation.name == _CALL:
            calls.setdefault(ir.StringAttr(attributes["call_target_name"]).value, location_of(operation.location))
            memories.update(_texts(attributes.get(_ATTRIBUTES, ()), _PLACEMENT))
        elif operation.name == "func.func":
            for side in ("arg_attrs", "res_attrs"):
                memories.update(*[_texts(one, _KIND) for one in attributes.get(side, ())])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    text = str(module.operation.get_asm(enable_debug_info=True))
    return Module(text, barriers=barriers, memories=frozenset(memories - {"device"}), calls=calls)


def _texts(attributes: Any, name: str) -> list[str]:
    """The text under a name, if there is one."""
    return [ir.StringAttr(attributes[name]).value] if name in attributes else []
