"""Import of `custom_call`: what is known of a function by its name, and the op for all others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from rematc.compiler.frontends.stablehlo.attributes import PLACING
from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.chlo import SAME, greatest
from rematc.ir.core import Graph
from rematc.ir.ops.custom_call import CustomCall
from rematc.ir.ops.structural import ToMemory
from rematc.ir.registry import OPS
from rematc.ir.values import Value
from rematc.lowering.writer import CALLBACK

_NAME = "stablehlo.custom_call"
#: Moves to the host's memory and back.
_MOVES = {"MoveToDevice": False, "MoveToHost": True}
#: Memories by their names in placements.
_MEMORIES = {"device": False, "pinned_host": True}
#: Attributes of which the op has fields.
_FIELDS = (
    *("call_target_name", "called_computations", "has_side_effect", "operand_layouts", "output_operand_aliases"),
    "result_layouts",
)
#: How calls are named that stand for a CHLO operation, where StableHLO was written for readers that have none.
_CHLO = "mhlo."
#: Calls of Python, by JAX and by XLA's own clients.
_PYTHON = re.compile(r"xla_\w*python_\w+_callback$")
_OF_DEVICES = ("SPMDFullToShardShape", "SPMDShardToFullShape")


@imports(_NAME)
def custom_call(block: Block, operation: Any) -> Sequence[Value]:
    """Identities, placements in memory, operations that stand so in the text; of anything else `custom_call`."""
    found = attributes(operation)
    target = found.text("call_target_name")
    if target == "Sharding":
        return block.operands(operation)  # placed by its attribute, as any operation that has one
    if target in _MOVES:
        return block.b.emit(ToMemory(_MOVES[target]), *block.operands(operation))
    if target.startswith(_CHLO):
        results = _of_chlo(block, operation, target.removeprefix(_CHLO))
        if results is not None:
            return results
    if target == "annotate_device_placement":
        return block.b.emit(ToMemory(_is_on_host(block, operation)), *block.operands(operation))
    if target in _OF_DEVICES:
        block.fail(
            operation,
            f"of '{target}' cannot be imported: it is one program for each device; import the program before it is "
            "partitioned",
        )
    if target == CALLBACK or _PYTHON.match(target):
        block.fail(
            operation,
            f"of '{target}' cannot be imported: it calls a Python function of the process that wrote the text; call it "
            "by rematc.pure_callback",
        )
    op = CustomCall(
        target,
        tuple(block.result_types(operation)),
        tuple(sorted(_others(operation))),
        _layouts(operation, "operand_layouts"),
        _layouts(operation, "result_layouts"),
        tuple([_alias(block, operation, one) for one in _items(operation, "output_operand_aliases")]),
        _called(block, operation),
        found.boolean("has_side_effect"),
    )
    return block.b.emit(op, *block.operands(operation))


def _is_on_host(block: Block, operation: Any) -> bool:
    """Whether a placement is in the host's memory. Raises CompileError for a memory that the IR does not have."""
    frontend = ir.DictAttr(attributes(operation).raw("mhlo.frontend_attributes"))
    memory = ir.StringAttr(frontend["_xla_buffer_placement"]).value
    if memory not in _MEMORIES:
        block.fail(operation, f"places a value in the memory '{memory}'; expected one of {', '.join(_MEMORIES)}")
    return _MEMORIES[memory]


def _of_chlo(block: Block, operation: Any, name: str) -> Sequence[Value] | None:
    """What a CHLO operation of this name gives; None for those that are not known."""
    if name in SAME and name in OPS:
        return block.b.emit(OPS[name](), *block.operands(operation))
    if name == "topk" and "mhlo.attributes" in attributes(operation):
        found = ir.DictAttr(attributes(operation).raw("mhlo.attributes"))
        if "k" in found and ("largest" not in found or ir.BoolAttr(found["largest"]).value):
            (x,) = block.operands(operation)
            return greatest(block, x, ir.IntegerAttr(found["k"]).value)
    return None


def _others(operation: Any) -> list[tuple[str, str]]:
    """The attributes that are passed on as they are."""
    names = [name for name in operation.attributes if name not in _FIELDS and name not in PLACING]
    return [(name, str(operation.attributes[name])) for name in names]


def _items(operation: Any, name: str) -> list[Any]:
    return list(operation.attributes[name]) if name in operation.attributes else []


def _layouts(operation: Any, name: str) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple([int(item) for item in layout]) for layout in _items(operation, name)])


def _alias(block: Block, operation: Any, attribute: Any) -> tuple[int, int]:
    """(result, operand)."""
    alias = stablehlo.OutputOperandAlias(attribute)
    if list(alias.operand_tuple_indices) or len(alias.output_tuple_indices) > 1:
        block.fail(operation, "has aliases of tuples' elements; pass and return arrays")
    return (list(alias.output_tuple_indices) or [0])[0], int(alias.operand_index)


def called_computations(operation: Any) -> list[str]:
    """The functions of the module that a custom call calls."""
    if operation.name != _NAME:
        return []
    return [ir.FlatSymbolRefAttr(symbol).value for symbol in _items(operation, "called_computations")]


def _called(block: Block, operation: Any) -> tuple[Graph, ...]:
    loc = block.location(operation)
    return tuple([block.module.function(name, loc) for name in called_computations(operation)])
