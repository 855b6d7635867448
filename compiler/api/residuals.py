"""`saved_residuals`, and the same printed."""

from __future__ import annotations

from rematc.compiler.functions.calls import trace_call
from rematc.compiler.reports.residuals import SavedResidual, describe_residuals, size_of
from rematc.compiler.tracing.arguments import CallArguments, lies
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.ir.units import counted, format_bytes
from rematc.lowering.propagation import shards_of
from rematc.lowering.signature import Function
from rematc.lowering.targeting import current_target
from rematc.passes.linearize import linearize


def saved_residuals(fun: Function, *args: object, **kwargs: object) -> list[SavedResidual]:
    """What differentiating `fun` at these arguments saves for its backward pass.

    `fun` is differentiated with respect to all floating-point arguments. Arguments that the backward pass needs are
    in the list; they cost no copy. Of what is spread over devices, sizes are those of one device's part. Nothing is
    compiled or executed; arguments may be `jax.ShapeDtypeStruct`s.
    """
    call = CallArguments.of(fun, args, kwargs)
    with differentiated():
        traced = trace_call(fun, call)
    linearized = linearize(traced.graph, traced.wrt)
    shards = shards_of(linearized.forward, current_target(args), [*call.lying, *map(lies, traced.captures)])
    return describe_residuals(linearized.residuals, linearized.forward, shards=shards)


def print_saved_residuals(fun: Function, *args: object, **kwargs: object) -> None:
    """Print `saved_residuals`, a line each: type, size, where it comes from; then the sum of what is no argument."""
    rows = saved_residuals(fun, *args, **kwargs)
    width = max((len(str(row.type)) for row in rows), default=0)
    for row in rows:
        print(f"{row.type!s:{width}}  {format_bytes(row.bytes):>10}  {row.provenance}")
    computed = [row for row in rows if not row.is_argument]
    values, arguments = counted(len(computed), "value"), counted(len(rows) - len(computed), "argument")
    print(f"{values} saved, {size_of(computed)}; {arguments} kept")
