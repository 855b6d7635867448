"""The IR, public for frameworks: `from rematc.ir import Builder, Graph, Location, ops, types`.

Neither this package nor `rematc.passes` needs JAX. `parse` and `print` are the text form; `rematc.parse` reads policies
in it, too.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rematc.ir import ops as ops
    from rematc.ir import types as types
    from rematc.ir.builder import Builder as Builder
    from rematc.ir.core import Equation as Equation
    from rematc.ir.core import Graph as Graph
    from rematc.ir.core import Op as Op
    from rematc.ir.locations import Location as Location
    from rematc.ir.parser import parse_graph
    from rematc.ir.printer import print_graph
    from rematc.ir.types import TensorType as TensorType
    from rematc.ir.values import Value as Value

    parse, print = parse_graph, print_graph

# Where each public name lives, imported on first use: errors and locations are needed where nothing else is.
_HOMES = {
    "Builder": ("rematc.ir.builder", "Builder"),
    "Equation": ("rematc.ir.core", "Equation"),
    "Graph": ("rematc.ir.core", "Graph"),
    "Location": ("rematc.ir.locations", "Location"),
    "Op": ("rematc.ir.core", "Op"),
    "TensorType": ("rematc.ir.types", "TensorType"),
    "Value": ("rematc.ir.values", "Value"),
    "parse": ("rematc.ir.parser", "parse_graph"),
    "print": ("rematc.ir.printer", "print_graph"),
}
_SUBMODULES = ("ops", "types")

__all__ = [  # noqa: PLE0604  # names, gathered from the tables
    *_HOMES,
    *_SUBMODULES,
]


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return importlib.import_module(f"rematc.ir.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rematc.ir' has no attribute '{name}'")
    value = getattr(importlib.import_module(home[0]), home[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
