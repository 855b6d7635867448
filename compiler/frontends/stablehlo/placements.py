"""Import of what says where values lie: Shardy's constraints, and attributes of operations, arguments and results.

All become `placement`. What was written for XLA's older partitioner (`mhlo.sharding`) is an error, for its text says
less than the IR's.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from rematc.compiler.frontends.stablehlo.block import Block, imports
from rematc.ir.ops.placement import Placement
from rematc.ir.values import Value

_SHARDING = "sdy.sharding"
_DIMENSION = re.compile(r"dimension_sharding(.*)>$")
#: Attributes of arguments and results that say nothing of the function's value, time or memory.
_NAMES = ("jax.arg_info", "jax.result_info", "jax.arg_name")
#: By these, results take over the memory of arguments.
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")
_MEMORY = "mhlo.memory_kind"


@imports("sdy.sharding_constraint")
def sharding_constraint(block: Block, operation: Any) -> Sequence[Value]:
    """`placement`."""
    (x,) = block.operands(operation)
    return [_placed(block, operation, operation.attributes["sharding"], x, "sdy.sharding_constraint")]


def placed_by_attributes(block: Block, operation: Any, results: Sequence[Value]) -> Sequence[Value]:
    """The results of an operation where its attributes say."""
    attributes = operation.attributes
    if "mhlo.sharding" in attributes:
        block.fail(operation, f"has {_old_sharding(attributes['mhlo.sharding'])}")
    if _SHARDING not in attributes:
        return results
    shardings = list(sdy.TensorShardingPerValueAttr(attributes[_SHARDING]).shardings)
    if len(shardings) != len(results):
        block.fail(operation, f"has {len(shardings)} shardings for {len(results)} results")
    return [_placed(block, operation, *pair, operation.name) for pair in zip(shardings, results, strict=True)]


def placed_arguments(block: Block, function: Any, arguments: Sequence[Any]) -> None:
    """Let the arguments of a function lie where their attributes say."""
    for index, (found, argument) in enumerate(zip(_listed(function, "arg_attrs"), arguments, strict=False)):
        value = block.value(argument, function)
        block.env[argument] = _of_function(block, function, found, value, f"argument {index}")


def placed_results(block: Block, function: Any, results: Sequence[Value]) -> list[Value]:
    """The results of a function where their attributes say."""
    found = _listed(function, "res_attrs")
    if len(found) != len(results):
        return list(results)
    rows = enumerate(zip(found, results, strict=True))
    return [_of_function(block, function, one, value, f"result {index}") for index, (one, value) in rows]


def _listed(function: Any, name: str) -> list[Any]:
    return list(ir.ArrayAttr(function.attributes[name])) if name in function.attributes else []


def _of_function(block: Block, function: Any, found: Any, value: Value, what: str) -> Value:
    """An argument or result with its attributes. Raises CompileError for those that the IR does not have."""
    attributes: Any = ir.DictAttr(found)
    for attribute in attributes:
        name = attribute.name
        match name:
            case "sdy.sharding":
                value = _placed(block, function, attribute.attr, value, what)
            case "mhlo.sharding":
                block.fail(function, f"has, of {what}, {_old_sharding(attribute.attr)}")
            case "mhlo.memory_kind" if ir.StringAttr(attribute.attr).value == "device":
                pass
            case _ if name in _DONATED:
                _warn_of_donation(block, function, what, name)
            case _ if name not in _NAMES:
                block.fail(
                    function,
                    f"has, of {what}, the attribute {name} = {attribute.attr}, which the IR does not have; take it out "
                    "of the text, or say it where the graph is compiled",
                )
    return value


def _warn_of_donation(block: Block, function: Any, what: str, name: str) -> None:
    warnings.warn(
        f"{block.place(function)}: {what} may be overwritten ({name}); a graph does not say so: say it where the graph "
        "is compiled (donate_argnums)",
        stacklevel=2,
    )


def _old_sharding(attribute: Any) -> str:
    return (
        f"mhlo.sharding = {attribute}, which is written for XLA's older partitioner; write the module for Shardy "
        "(JAX: jax_use_shardy_partitioner), or take its shardings out"
    )


def _placed(block: Block, operation: Any, attribute: Any, value: Value, what: str) -> Value:
    """A value under one `#sdy.sharding`."""
    found = sdy.TensorShardingAttr(attribute)
    if list(found.replicated_axes) or list(found.unreduced_axes):
        block.fail(operation, f"has the sharding {attribute}; replicated and unreduced axes are not in the IR")
    mesh = found.mesh_or_ref
    if isinstance(mesh, ir.FlatSymbolRefAttr):
        mesh = block.module.mesh(mesh.value)
    dimensions = [_DIMENSION.search(str(one)) for one in found.dimension_shardings]
    spelled = tuple([one[1] for one in dimensions if one is not None])
    return block.b.emit1(Placement(what, str(mesh).removeprefix("#sdy.mesh"), spelled), value)
