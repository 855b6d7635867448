"""`custom_vjp`: functions whose backward derivatives the user gives.

A call records the function's graph with the graphs of its rules beside it. Differentiation puts the rules in its place:
what they compute answers to policies like any other code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar, cast

import jax.tree_util

from rematc.compiler.api.transforms.custom_rules import (
    Application,
    Closure,
    CustomVjpPrimal,
    SymbolicZero,
    check_primal_outputs,
    defined_at,
    emitted,
    inexact,
    is_no_tangent,
    location_of,
    no_tangent,
    positions_of,
    structure_of,
    traced_rule,
    with_closure,
)
from rematc.compiler.functions.calls import TracedFunction, trace_call, with_types
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.compiler.tracing.trace import Tracer, current_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.bodies import chosen
from rematc.ir.ops.custom_vjp import CustomVjp
from rematc.ir.types import TensorType
from rematc.lowering.signature import Function, function_name

P = ParamSpec("P")
R = TypeVar("R")
Rule = TypeVar("Rule", bound=Callable[..., object])


def custom_vjp(fun: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()) -> CustomVjpFunction[P, R]:
    """`fun` with a backward derivative of the user's; the meaning is `jax.custom_vjp`'s.

    Args:
        fun: a function of arrays and pytrees of arrays.
        nondiff_argnums: positions of arguments that have no derivative: functions, flags, sizes. The backward rule
            gets them first; the forward rule has them where they are.

    Returns:
        The function, whose `defvjp` sets the rules. It has no forward-mode derivative.
    """
    return CustomVjpFunction(fun, positions_of(nondiff_argnums))


class CustomVjpFunction(Generic[P, R]):
    """What `custom_vjp` returns: the function, and the place for its rules.

    Attributes:
        fun: the function itself.
        nondiff_argnums: the positions of arguments without a derivative.
    """

    def __init__(self, fun: Callable[P, R], nondiff_argnums: tuple[int, ...]) -> None:
        self.fun = fun
        self.nondiff_argnums = nondiff_argnums
        self._fwd: Function | None = None
        self._bwd: Function | None = None
        self._symbolic_zeros = False
        functools.update_wrapper(self, fun, updated=())

    def defvjp(self, fwd: Callable[..., object], bwd: Callable[..., object], symbolic_zeros: bool = False) -> None:
        """Set the rules.

        Args:
            fwd: `(*args) -> (outputs, residuals)`: it is evaluated instead of the function where a derivative is
                taken. What of the residuals is no traced array reaches `bwd` as it is.
            bwd: `(*nondiff_args, residuals, cotangents) -> cotangents of the other arguments`, a tuple with one tree
                for each; None stands for zero. The cotangents of integer outputs are zeros of the dtype `float0`.
            symbolic_zeros: whether `fwd` gets each array as a `CustomVjpPrimal`, which says whether it may have a
                tangent, and `bwd` the cotangents of what has none as `SymbolicZero`.
        """
        self._fwd, self._bwd, self._symbolic_zeros = fwd, bwd, symbolic_zeros

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._fwd is None:
            raise CompileError(
                f"'{function_name(self.fun)}' has a custom_vjp without rules; set them with defvjp", user_location()
            )
        if current_trace() is None:
            return self.fun(*args, **kwargs)
        return cast(R, self._record(Application.of(self.fun, args, kwargs, self.nondiff_argnums)))

    def _record(self, application: Application) -> object:
        order = derivative_order()
        with of_order(0):
            body = trace_call(self.fun, application.call)
        count, of = len(application.call.arrays), inexact(body.graph.result_types)
        if order == 0:
            closure = Closure([body])
            wrt = with_closure(application.is_inexact, closure)
            op = CustomVjp(closure.graph(body, count), None, None, wrt, of, len(closure))
            return emitted(op, application, body, closure)
        perturbed = application.perturbed()
        with of_order(order - 1):
            forward = self._forward(application, body, perturbed)
            backward, wrt = self._backward(application, body, forward, of)
        closure = Closure([body, forward.traced, backward])
        # What the backward rule closes over reaches it like a residual.
        taken = Closure([backward])
        whole = closure.graph(forward.traced, count)
        first = dict(zip(closure.tracers, whole.params[count : count + len(closure)], strict=True))
        extra = [first[value] for value in taken.tracers]
        outputs = with_types(whole, (*body.graph.result_types, *forward.types))
        op = CustomVjp(
            closure.graph(body, count),
            Graph(outputs.name, outputs.params, outputs.equations, (*outputs.results, *extra)),
            taken.graph(backward, len(forward.types)),
            with_closure(wrt, closure),
            of,
            len(closure),
        )
        return emitted(op, application, body, closure)

    def _forward(self, application: Application, body: TracedFunction, perturbed: tuple[bool, ...]) -> _Forward:
        assert self._fwd is not None
        rule, call = self._fwd, application.call
        what = f"the forward rule '{function_name(rule)}' of '{application.name}'"
        trees: list[jax.tree_util.PyTreeDef] = []
        leaves: list[object] = []

        def flat(*arrays: object) -> object:
            if self._symbolic_zeros:
                arrays = tuple([CustomVjpPrimal(one, flag) for one, flag in zip(arrays, perturbed, strict=True)])
            pair = call.call(rule, arrays)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise CompileError(
                    f"{what} returns a pair (outputs, residuals), got {structure_of(pair)}", defined_at(rule)
                )
            outputs, tree = jax.tree_util.tree_flatten(pair[0])
            found, residual_tree = jax.tree_util.tree_flatten(pair[1])
            trees.extend((tree, residual_tree))
            leaves.extend(found)
            return outputs, [leaf for leaf in found if isinstance(leaf, Tracer)]

        traced = traced_rule(flat, function_name(rule), call.types, call.weak, call.names)
        check_primal_outputs(what, rule, traced, body, trees[0])
        count = trees[0].num_leaves
        return _Forward(traced, traced.graph.result_types[count:], traced.out_weak[count:], tuple(leaves), trees[1])

    def _backward(
        self, application: Application, body: TracedFunction, forward: _Forward, of: tuple[bool, ...]
    ) -> tuple[TracedFunction, tuple[bool, ...]]:
        """The graph of the backward rule, and which arrays have cotangents."""
        assert self._bwd is not None
        rule, call, outputs = self._bwd, application.call, body.graph.result_types
        what = f"the backward rule '{function_name(rule)}' of '{application.name}'"
        count = len(forward.types)
        present: list[bool] = []

        def flat(*arrays: object) -> list[object]:
            given = iter(arrays[count:])
            cts = [next(given) if is_set else self._zero(type) for type, is_set in zip(outputs, of, strict=True)]
            tree = jax.tree_util.tree_unflatten(body.out_tree, cts)
            found = rule(*application.nondiff_args, forward.residuals(arrays[:count]), tree)
            try:
                matched = application.match(found)
            except (ValueError, TypeError):
                raise CompileError(
                    f"{what} returns a tuple with the cotangents of each argument, of the structure "
                    f"{application.structure()}; got {structure_of(found)}",
                    defined_at(rule),
                ) from None
            present.extend(
                [
                    ct is not None and is_set and not is_no_tangent(ct)
                    for ct, is_set in zip(matched, application.is_inexact, strict=True)
                ]
            )
            return list(chosen(matched, present))

        types = (*forward.types, *chosen(outputs, of))
        weak = (*forward.weak, *chosen(body.out_weak, of))
        names = (*(None,) * count, *["ct"] * sum(of))
        traced = traced_rule(flat, function_name(rule), types, weak, names)
        rows = zip(chosen(call.names, present), chosen(call.types, present), traced.graph.results, strict=True)
        for name, expected, ct in rows:
            if ct.type.shape != expected.shape or not ct.type.dtype.is_inexact:
                raise CompileError(
                    f"{what} returns {ct.type} as cotangent of {name}; expected {expected}, the type of the argument",
                    location_of(ct, traced.graph, rule),
                )
        graph = with_types(traced.graph, chosen(call.types, present))
        converted = TracedFunction(
            graph, traced.out_tree, traced.out_weak, traced.captures, traced.constants, traced.records
        )
        return converted, tuple(present)

    def _zero(self, type: TensorType) -> object:
        if self._symbolic_zeros:
            return SymbolicZero(type.shape, type.dtype.numpy)
        return no_tangent(type.shape)


@dataclass(frozen=True, slots=True)
class _Forward:
    """A traced forward rule.

    Attributes:
        traced: its graph: outputs, then residuals.
        types: of the residuals.
        weak: for each residual, whether it is a Python number's.
    """

    traced: TracedFunction
    types: tuple[TensorType, ...]
    weak: tuple[bool, ...]
    _leaves: tuple[object, ...]
    _tree: jax.tree_util.PyTreeDef

    def residuals(self, arrays: Sequence[object]) -> object:
        """The tree of residuals with these in place of the traced arrays."""
        given = iter(arrays)
        leaves = [next(given) if isinstance(leaf, Tracer) else leaf for leaf in self._leaves]
        return jax.tree_util.tree_unflatten(self._tree, leaves)
