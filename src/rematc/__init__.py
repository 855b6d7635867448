"""rematc: a rematerialization compiler.

It takes a function written in NumPy, differentiates it, decides which intermediate values to keep for the backward
pass and which to compute again, and compiles the result with XLA.

    import numpy as np, rematc

    value, grads = rematc.value_and_grad(loss, policy="dots")(params, x)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rematc.debug
    import rematc.ir
    import rematc.jax
    import rematc.lax
    import rematc.numpy
    import rematc.policies
    import rematc.random
    import rematc.targets  # noqa: F401  # makes the submodules known to type checkers
    from rematc.compiler.api.clearing import clear_caches as clear_caches
    from rematc.compiler.api.control_flow.branching import cond as cond
    from rematc.compiler.api.control_flow.branching import switch as switch
    from rematc.compiler.api.control_flow.loops import associative_scan as associative_scan
    from rematc.compiler.api.control_flow.loops import bounded_while_loop as bounded_while_loop
    from rematc.compiler.api.control_flow.loops import fori_loop as fori_loop
    from rematc.compiler.api.control_flow.loops import map as map
    from rematc.compiler.api.control_flow.loops import while_loop as while_loop
    from rematc.compiler.api.control_flow.scan import scan as scan
    from rematc.compiler.api.debugging.calling import io_callback as io_callback
    from rematc.compiler.api.debugging.calling import pure_callback as pure_callback
    from rematc.compiler.api.from_jax import from_jax as from_jax
    from rematc.compiler.api.jit import jit as jit
    from rematc.compiler.api.residuals import print_saved_residuals as print_saved_residuals
    from rematc.compiler.api.residuals import saved_residuals as saved_residuals
    from rematc.compiler.api.side_by_side import print_fwd_bwd as print_fwd_bwd
    from rematc.compiler.api.text import parse as parse
    from rematc.compiler.api.transforms.batching import all_gather as all_gather
    from rematc.compiler.api.transforms.batching import axis_index as axis_index
    from rematc.compiler.api.transforms.batching import pmax as pmax
    from rematc.compiler.api.transforms.batching import pmean as pmean
    from rematc.compiler.api.transforms.batching import pmin as pmin
    from rematc.compiler.api.transforms.batching import psum as psum
    from rematc.compiler.api.transforms.batching import vmap as vmap
    from rematc.compiler.api.transforms.checkpointing import checkpoint as checkpoint
    from rematc.compiler.api.transforms.checkpointing import checkpoint_name as checkpoint_name
    from rematc.compiler.api.transforms.checkpointing import remat as remat
    from rematc.compiler.api.transforms.custom_jvp import custom_jvp as custom_jvp
    from rematc.compiler.api.transforms.custom_rules import SymbolicZero as SymbolicZero
    from rematc.compiler.api.transforms.custom_vjp import custom_vjp as custom_vjp
    from rematc.compiler.api.transforms.differentiation import jvp as jvp
    from rematc.compiler.api.transforms.differentiation import linearize as linearize
    from rematc.compiler.api.transforms.differentiation import stop_gradient as stop_gradient
    from rematc.compiler.api.transforms.differentiation import vjp as vjp
    from rematc.compiler.api.transforms.gradients import grad as grad
    from rematc.compiler.api.transforms.gradients import value_and_grad as value_and_grad
    from rematc.compiler.api.transforms.implicit import closure_convert as closure_convert
    from rematc.compiler.api.transforms.implicit import custom_linear_solve as custom_linear_solve
    from rematc.compiler.api.transforms.implicit import custom_root as custom_root
    from rematc.compiler.api.transforms.jacobians import hessian as hessian
    from rematc.compiler.api.transforms.jacobians import jacfwd as jacfwd
    from rematc.compiler.api.transforms.jacobians import jacrev as jacrev
    from rematc.compiler.check_jax.functions import check_jax as check_jax
    from rematc.compiler.driver.ahead import compile as compile
    from rematc.compiler.driver.ahead import lower as lower
    from rematc.compiler.driver.ahead import pareto as pareto
    from rematc.compiler.driver.ahead import trace as trace
    from rematc.compiler.driver.compiled import CompiledFunction as CompiledFunction
    from rematc.compiler.driver.compiled import load as load
    from rematc.compiler.driver.lowered import Compiled as Compiled
    from rematc.compiler.driver.lowered import Lowered as Lowered
    from rematc.compiler.frontends.stablehlo.importing import from_stablehlo as from_stablehlo
    from rematc.ir.errors import CompileError as CompileError
    from rematc.ir.errors import InternalError as InternalError
    from rematc.lowering.planning import Budget as Budget
    from rematc.passes.planning.plan import Plan as Plan

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `remat-compile --help` waits for neither NumPy
# nor JAX.
_HOMES = {
    "vmap": "rematc.compiler.api.transforms.batching",
    "checkpoint": "rematc.compiler.api.transforms.checkpointing",
    "remat": "rematc.compiler.api.transforms.checkpointing",
    "checkpoint_name": "rematc.compiler.api.transforms.checkpointing",
    "custom_jvp": "rematc.compiler.api.transforms.custom_jvp",
    "custom_vjp": "rematc.compiler.api.transforms.custom_vjp",
    "SymbolicZero": "rematc.compiler.api.transforms.custom_rules",
    "grad": "rematc.compiler.api.transforms.gradients",
    "jvp": "rematc.compiler.api.transforms.differentiation",
    "linearize": "rematc.compiler.api.transforms.differentiation",
    "stop_gradient": "rematc.compiler.api.transforms.differentiation",
    "value_and_grad": "rematc.compiler.api.transforms.gradients",
    "vjp": "rematc.compiler.api.transforms.differentiation",
    "io_callback": "rematc.compiler.api.debugging.calling",
    "pure_callback": "rematc.compiler.api.debugging.calling",
    "clear_caches": "rematc.compiler.api.clearing",
    "Compiled": "rematc.compiler.driver.lowered",
    "CompiledFunction": "rematc.compiler.driver.compiled",
    "Lowered": "rematc.compiler.driver.lowered",
    "compile": "rematc.compiler.driver.ahead",
    "load": "rematc.compiler.driver.compiled",
    "lower": "rematc.compiler.driver.ahead",
    "pareto": "rematc.compiler.driver.ahead",
    "trace": "rematc.compiler.driver.ahead",
    "check_jax": "rematc.compiler.check_jax.functions",
    "jit": "rematc.compiler.api.jit",
    "from_jax": "rematc.compiler.api.from_jax",
    "closure_convert": "rematc.compiler.api.transforms.implicit",
    "custom_linear_solve": "rematc.compiler.api.transforms.implicit",
    "custom_root": "rematc.compiler.api.transforms.implicit",
    "hessian": "rematc.compiler.api.transforms.jacobians",
    "jacfwd": "rematc.compiler.api.transforms.jacobians",
    "jacrev": "rematc.compiler.api.transforms.jacobians",
    "print_saved_residuals": "rematc.compiler.api.residuals",
    "saved_residuals": "rematc.compiler.api.residuals",
    "print_fwd_bwd": "rematc.compiler.api.side_by_side",
    "from_stablehlo": "rematc.compiler.frontends.stablehlo.importing",
    "parse": "rematc.compiler.api.text",
    "Budget": "rematc.lowering.planning",
    "Plan": "rematc.passes.planning.plan",
    "CompileError": "rematc.ir.errors",
    "InternalError": "rematc.ir.errors",
}
# Their home is `rematc.lax`; they are found here, too.
_OF_LAX = {
    "all_gather": "rematc.compiler.api.transforms.batching",
    "axis_index": "rematc.compiler.api.transforms.batching",
    "pmax": "rematc.compiler.api.transforms.batching",
    "pmean": "rematc.compiler.api.transforms.batching",
    "pmin": "rematc.compiler.api.transforms.batching",
    "psum": "rematc.compiler.api.transforms.batching",
    "cond": "rematc.compiler.api.control_flow.branching",
    "switch": "rematc.compiler.api.control_flow.branching",
    "scan": "rematc.compiler.api.control_flow.scan",
    "associative_scan": "rematc.compiler.api.control_flow.loops",
    "bounded_while_loop": "rematc.compiler.api.control_flow.loops",
    "fori_loop": "rematc.compiler.api.control_flow.loops",
    "map": "rematc.compiler.api.control_flow.loops",
    "while_loop": "rematc.compiler.api.control_flow.loops",
}
_SUBMODULES = ("debug", "ir", "jax", "lax", "numpy", "policies", "random", "targets")

__all__ = ["__version__", *_HOMES, *_SUBMODULES]  # noqa: PLE0604  # names, gathered from the table


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return importlib.import_module(f"rematc.{name}")
    home = _HOMES.get(name, _OF_LAX.get(name))
    if home is None:
        raise AttributeError(f"module 'rematc' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
