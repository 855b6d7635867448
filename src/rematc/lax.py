"""Loops, branches and collectives on traced values, under the names of `jax.lax` and with its meanings."""

from rematc.compiler.api.control_flow.branching import cond, switch
from rematc.compiler.api.control_flow.loops import associative_scan, bounded_while_loop, fori_loop, map, while_loop
from rematc.compiler.api.control_flow.scan import scan
from rematc.compiler.api.transforms.batching import all_gather, axis_index, pmax, pmean, pmin, psum
from rematc.compiler.api.transforms.differentiation import stop_gradient
from rematc.compiler.api.transforms.implicit import custom_linear_solve, custom_root

__all__ = [
    "all_gather",
    "associative_scan",
    "axis_index",
    "bounded_while_loop",
    "cond",
    "custom_linear_solve",
    "custom_root",
    "fori_loop",
    "map",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "scan",
    "stop_gradient",
    "switch",
    "while_loop",
]
