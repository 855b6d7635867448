"""What loops and branches do with the arguments and results of the functions that they are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import jax.tree_util
import numpy as np

from rematc.compiler.api.jit import run_graph
from rematc.compiler.functions.calls import emit_op1, trace_call
from rematc.compiler.tracing.arguments import CallArguments, is_array_like, leaf_type
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.conversion import Convert
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.signature import Function, function_name


@dataclass(frozen=True, slots=True)
class Leaves:
    """A pytree of arrays, taken apart.

    Attributes:
        values: its leaves.
        tree: how they make it up.
        paths: where each stands: `['h']`, `[0]`, nothing for a lone leaf.
        types: type of each.
        weak: for each, whether it is a Python number.
    """

    values: tuple[object, ...]
    tree: jax.tree_util.PyTreeDef
    paths: tuple[str, ...]
    types: tuple[TensorType, ...]
    weak: tuple[bool, ...]

    @staticmethod
    def of(what: str, tree: object) -> Leaves:
        """Take a tree apart. Raises CompileError, which calls it `what`, for a leaf that is no array."""
        rows, structure = jax.tree_util.tree_flatten_with_path(tree)
        paths = tuple([jax.tree_util.keystr(path) for path, _ in rows])
        values = tuple([np.asarray(leaf) if isinstance(leaf, bool) else leaf for _, leaf in rows])
        for path, value in zip(paths, values, strict=True):
            if not is_array_like(value):
                raise CompileError(
                    f"{what}{path} is a {type(value).__name__}, expected an array or a number", user_location()
                )
        types = [leaf_type(value) for value in values]
        return Leaves(
            values, structure, paths, tuple([one for one, _ in types]), tuple([is_weak for _, is_weak in types])
        )

    def converted(self) -> list[object]:
        """The leaves in these types: Python numbers in them may have taken those of the arrays that they meet."""
        return [
            value if leaf_type(value)[0] == type else emit_op1(Convert(type.dtype), value)
            for value, type in zip(self.values, self.types, strict=True)
        ]


def executed(record: Function, *operands: object) -> object:
    """Record and run, outside all traces; equal graphs are compiled once."""
    call = CallArguments.of(None, operands, {})
    traced = trace_call(record, call)
    results = run_graph(traced.graph, (*call.arrays, *traced.constants))
    return jax.tree_util.tree_unflatten(traced.out_tree, results)


def structure_text(tree: jax.tree_util.PyTreeDef) -> str:
    """`{'h': *, 'n': *}`: a structure with a star for each array."""
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")")


def described(function: Function) -> str:
    """A function in errors: its name and, where it is known, the line where it is written."""
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"'{function_name(function)}'{place}"


def line_of(value: Value, graph: Graph) -> Location | None:
    """The user's line that computes a value of a graph, or the one that is running."""
    return line_among(value, graph.equations)


def line_among(value: Value, equations: Iterable[Equation]) -> Location | None:
    """As `line_of`, of a graph in the making."""
    for eqn in equations:
        if value in eqn.results and eqn.loc is not None:
            return eqn.loc
    return user_location()
