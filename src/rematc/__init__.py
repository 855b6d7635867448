"""rematc: a rematerialization compiler.

It takes a function written in NumPy, differentiates it, decides which intermediate values to keep for the backward
pass and which to compute again, and compiles the result with XLA.

    import numpy as np, rematc

    value, grads = rematc.value_and_grad(loss, policy="dots")(params, x)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rematc.numpy
    import rematc.policies  # noqa: F401  # makes `rematc.numpy` and `rematc.policies` known to type checkers
    from rematc.compiler.batching import all_gather as all_gather
    from rematc.compiler.batching import axis_index as axis_index
    from rematc.compiler.batching import pmax as pmax
    from rematc.compiler.batching import pmean as pmean
    from rematc.compiler.batching import pmin as pmin
    from rematc.compiler.batching import psum as psum
    from rematc.compiler.batching import vmap as vmap
    from rematc.compiler.branching import cond as cond
    from rematc.compiler.branching import switch as switch
    from rematc.compiler.checkpointing import checkpoint as checkpoint
    from rematc.compiler.checkpointing import checkpoint_name as checkpoint_name
    from rematc.compiler.checkpointing import remat as remat
    from rematc.compiler.control_flow import scan as scan
    from rematc.compiler.differentiation import grad as grad
    from rematc.compiler.differentiation import jvp as jvp
    from rematc.compiler.differentiation import linearize as linearize
    from rematc.compiler.differentiation import value_and_grad as value_and_grad
    from rematc.compiler.differentiation import vjp as vjp
    from rematc.compiler.driver import Compiled as Compiled
    from rematc.compiler.driver import CompiledFunction as CompiledFunction
    from rematc.compiler.driver import Lowered as Lowered
    from rematc.compiler.driver import compile as compile
    from rematc.compiler.driver import load as load
    from rematc.compiler.driver import lower as lower
    from rematc.compiler.driver import trace as trace
    from rematc.compiler.execution import jit as jit
    from rematc.compiler.jacobians import hessian as hessian
    from rematc.compiler.jacobians import jacfwd as jacfwd
    from rematc.compiler.jacobians import jacrev as jacrev
    from rematc.compiler.loops import associative_scan as associative_scan
    from rematc.compiler.loops import bounded_while_loop as bounded_while_loop
    from rematc.compiler.loops import fori_loop as fori_loop
    from rematc.compiler.loops import map as map
    from rematc.compiler.loops import while_loop as while_loop
    from rematc.compiler.residuals import print_saved_residuals as print_saved_residuals
    from rematc.compiler.residuals import saved_residuals as saved_residuals
    from rematc.compiler.side_by_side import print_fwd_bwd as print_fwd_bwd
    from rematc.compiler.text import parse as parse
    from rematc.ir.errors import CompileError as CompileError
    from rematc.ir.errors import InternalError as InternalError

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `remat-compile --help` waits for neither NumPy
# nor JAX.
_HOMES = {
    "all_gather": "rematc.compiler.batching",
    "axis_index": "rematc.compiler.batching",
    "pmax": "rematc.compiler.batching",
    "pmean": "rematc.compiler.batching",
    "pmin": "rematc.compiler.batching",
    "psum": "rematc.compiler.batching",
    "vmap": "rematc.compiler.batching",
    "checkpoint": "rematc.compiler.checkpointing",
    "remat": "rematc.compiler.checkpointing",
    "checkpoint_name": "rematc.compiler.checkpointing",
    "cond": "rematc.compiler.branching",
    "switch": "rematc.compiler.branching",
    "scan": "rematc.compiler.control_flow",
    "associative_scan": "rematc.compiler.loops",
    "bounded_while_loop": "rematc.compiler.loops",
    "fori_loop": "rematc.compiler.loops",
    "map": "rematc.compiler.loops",
    "while_loop": "rematc.compiler.loops",
    "grad": "rematc.compiler.differentiation",
    "jvp": "rematc.compiler.differentiation",
    "linearize": "rematc.compiler.differentiation",
    "value_and_grad": "rematc.compiler.differentiation",
    "vjp": "rematc.compiler.differentiation",
    "Compiled": "rematc.compiler.driver",
    "CompiledFunction": "rematc.compiler.driver",
    "Lowered": "rematc.compiler.driver",
    "compile": "rematc.compiler.driver",
    "load": "rematc.compiler.driver",
    "lower": "rematc.compiler.driver",
    "trace": "rematc.compiler.driver",
    "jit": "rematc.compiler.execution",
    "hessian": "rematc.compiler.jacobians",
    "jacfwd": "rematc.compiler.jacobians",
    "jacrev": "rematc.compiler.jacobians",
    "print_saved_residuals": "rematc.compiler.residuals",
    "saved_residuals": "rematc.compiler.residuals",
    "print_fwd_bwd": "rematc.compiler.side_by_side",
    "parse": "rematc.compiler.text",
    "CompileError": "rematc.ir.errors",
    "InternalError": "rematc.ir.errors",
}
_SUBMODULES = ("numpy", "policies")

__all__ = ["__version__", *_HOMES, *_SUBMODULES]  # noqa: PLE0604  # names, gathered from the table


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return importlib.import_module(f"rematc.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rematc' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
