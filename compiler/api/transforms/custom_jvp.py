"""`custom_jvp`: functions whose forward derivatives the user gives.

A call records the function's graph with the graphs of its rules beside it. Differentiation puts the rules in its place:
what they compute answers to policies like any other code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, ParamSpec, TypeVar, cast

import jax.tree_util
import numpy as np

from rematc.compiler.api.transforms.custom_rules import (
    Application,
    Closure,
    SymbolicZero,
    check_primal_outputs,
    defined_at,
    emitted,
    inexact,
    is_no_tangent,
    location_of,
    no_tangent,
    paths_of,
    positions_of,
    structure_of,
    traced_rule,
    with_closure,
)
from rematc.compiler.functions.calls import TracedFunction, trace_call, with_types
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.compiler.tracing.trace import current_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.ops.bodies import chosen, others
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.types import TensorType
from rematc.lowering.signature import Function, function_name

P = ParamSpec("P")
R = TypeVar("R")
Rule = TypeVar("Rule", bound=Callable[..., object])


def custom_jvp(fun: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()) -> CustomJvpFunction[P, R]:
    """`fun` with a forward derivative of the user's; the meaning is `jax.custom_jvp`'s.

    Args:
        fun: a function of arrays and pytrees of arrays.
        nondiff_argnums: positions of arguments that have no derivative: functions, flags, sizes. The rule gets them
            first.

    Returns:
        The function, whose `defjvp` or `defjvps` sets the rule. As the rule is linear in the tangents, it holds for
        reverse-mode derivatives too.
    """
    return CustomJvpFunction(fun, positions_of(nondiff_argnums))


class CustomJvpFunction(Generic[P, R]):
    """What `custom_jvp` returns: the function, and the place for its rule.

    Attributes:
        fun: the function itself.
        nondiff_argnums: the positions of arguments without a derivative.
    """

    def __init__(self, fun: Callable[P, R], nondiff_argnums: tuple[int, ...]) -> None:
        self.fun = fun
        self.nondiff_argnums = nondiff_argnums
        self._rule: Function | None = None
        self._symbolic_zeros = False
        self._adjoint: Adjoint | None = None
        functools.update_wrapper(self, fun, updated=())

    def defadjoint(self, adjoint: Callable[..., object], argnum: int) -> None:
        """Say that the function is linear in one argument, and what its transpose is.

        Args:
            adjoint: `(*other_args, cotangents of the outputs) -> cotangent of the argument`.
            argnum: the position of the argument.
        """
        self._adjoint = Adjoint(adjoint, argnum)

    def defjvp(self, jvp: Rule, symbolic_zeros: bool = False) -> Rule:
        """Set the rule.

        Args:
            jvp: `(*nondiff_args, primals, tangents) -> (outputs, tangents of the outputs)`. Primals and tangents are
                tuples of one structure; the tangents of integers and booleans are zeros of the dtype `float0`. The
                tangents of the outputs have their shapes and element types and are linear in the tangents; None
                stands for zero.
            symbolic_zeros: whether a tangent that is zero comes as a `SymbolicZero` instead of an array of zeros.

        Returns:
            `jvp`, so that this is a decorator.
        """
        self._rule, self._symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., object] | None) -> None:
        """Set the rule by one function for each argument, `(tangent, output, *primals) -> tangent of the output`.

        None stands for an argument on which the output does not depend. Tangents of several arguments are added.
        """
        if self.nondiff_argnums:
            raise CompileError(
                "defjvps has a function for each argument and no place for those of nondiff_argnums; use defjvp",
                user_location(),
            )

        def jvp(primals: Sequence[object], tangents: Sequence[object]) -> tuple[object, object]:
            outputs = cast(Callable[..., object], self)(*primals)
            terms = [
                rule(tangent, outputs, *primals)
                for rule, tangent in zip(jvps, tangents, strict=True)
                if rule is not None
            ]
            if not terms:
                return outputs, jax.tree_util.tree_map(lambda leaf: None, outputs)
            return outputs, functools.reduce(functools.partial(jax.tree_util.tree_map, np.add), terms)

        jvp.__name__ = f"{function_name(self.fun)}_jvps"
        self.defjvp(jvp)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._rule is None:
            raise CompileError(
                f"'{function_name(self.fun)}' has a custom_jvp without a rule; set one with defjvp", user_location()
            )
        if current_trace() is None:
            return self.fun(*args, **kwargs)
        return cast(R, self._record(Application.of(self.fun, args, kwargs, self.nondiff_argnums)))

    def _record(self, application: Application) -> object:
        order = derivative_order()
        with of_order(0):
            body = trace_call(self.fun, application.call)
        count = len(application.call.arrays)
        rule, wrt, of = None, application.is_inexact, inexact(body.graph.result_types)
        if order:
            wrt = application.perturbed() if self._symbolic_zeros else wrt
            with of_order(order - 1):
                rule, of = self._traced(application, body, wrt)
        adjoint = None if self._adjoint is None else self._adjoint.traced(application, body, of)
        closure = Closure([one for one in (body, rule, adjoint) if one is not None])
        types = (*body.graph.result_types, *chosen(body.graph.result_types, of))
        op = CustomJvp(
            closure.graph(body, count),
            None if rule is None else with_types(closure.graph(rule, count), types),
            with_closure(wrt, closure),
            of,
            len(closure),
        )
        if adjoint is not None:
            assert self._adjoint is not None
            linear = self._adjoint.is_linear(application)
            graph = closure.graph(adjoint, count - sum(linear))
            op = replace(op, adjoint=graph, linear=with_closure(linear, closure))
        return emitted(op, application, body, closure)

    def _traced(
        self, application: Application, body: TracedFunction, wrt: tuple[bool, ...]
    ) -> tuple[TracedFunction, tuple[bool, ...]]:
        """The graph of the rule, and which results have tangents."""
        assert self._rule is not None
        rule, call, count = self._rule, application.call, len(application.call.arrays)
        what = f"the jvp rule '{function_name(rule)}' of '{application.name}'"
        found = _Outputs()

        def flat(*arrays: object) -> object:
            given = iter(arrays[count:])
            tangents = [
                next(given) if is_set else self._zero(type) for type, is_set in zip(call.types, wrt, strict=True)
            ]
            pair = rule(
                *application.nondiff_args, application.differentiable(arrays[:count]), application.tangents(tangents)
            )
            return found.take(what, rule, pair)

        types = (*call.types, *chosen(call.types, wrt))
        weak = (*call.weak, *chosen(call.weak, wrt))
        names = (*call.names, *[f"d{name}" for name in chosen(call.names, wrt)])
        traced = traced_rule(flat, function_name(rule), types, weak, names)
        check_primal_outputs(what, rule, traced, body, found.tree)
        _check_tangents(what, rule, traced, body, found)
        of = tuple(
            [
                is_set and type.dtype.is_inexact
                for is_set, type in zip(found.has_tangent, body.graph.result_types, strict=True)
            ]
        )
        return traced, of

    def _zero(self, type: TensorType) -> object:
        if self._symbolic_zeros:
            return SymbolicZero(type.shape, type.dtype.numpy)
        return no_tangent(type.shape)


@dataclass(frozen=True, slots=True)
class Adjoint:
    """The transpose of a function that is linear in one argument.

    Attributes:
        function: `(*other_args, cotangents of the outputs) -> cotangent of the argument`.
        argnum: the position of the argument.
    """

    function: Function
    argnum: int

    def is_linear(self, application: Application) -> tuple[bool, ...]:
        """For each array, whether it belongs to the argument."""
        return tuple([owner == self.argnum for owner in application.call.owners()])

    def traced(self, application: Application, body: TracedFunction, of: tuple[bool, ...]) -> TracedFunction:
        """The graph from the other arguments' arrays and cotangents. It is differentiated as often as the function."""
        call, linear, outputs = application.call, self.is_linear(application), body.graph.result_types
        values = others(call.arrays, linear)

        def flat(*arrays: object) -> object:
            given, cts = iter(arrays[: len(values)]), iter(arrays[len(values) :])
            arguments = application.differentiable(
                [None if is_set else next(given) for is_set in linear],
            )
            filled = [next(cts) if is_set else no_tangent(type.shape) for type, is_set in zip(outputs, of, strict=True)]
            tree = jax.tree_util.tree_unflatten(body.out_tree, filled)
            return self.function(*[one for place, one in enumerate(arguments) if place != self.argnum], tree)

        types = (*others(call.types, linear), *chosen(outputs, of))
        names = (*others(call.names, linear), *["ct"] * sum(of))
        return traced_rule(flat, f"adjoint_of_{application.name}", types, (False,) * len(types), names)


class _Outputs:
    """What a jvp rule returned.

    Attributes:
        tree: the structure of its primal outputs.
        has_tangent: for each, whether it has a tangent that is not zero.
    """

    tree: jax.tree_util.PyTreeDef
    has_tangent: tuple[bool, ...]

    def take(self, what: str, rule: Function, pair: object) -> tuple[list[object], list[object]]:
        """Primal outputs and present tangents, flat."""
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise CompileError(
                f"{what} returns a pair (outputs, tangents of the outputs), got {structure_of(pair)}", defined_at(rule)
            )
        primals, self.tree = jax.tree_util.tree_flatten(pair[0])
        tangents = self._tangents(what, rule, pair[1])
        self.has_tangent = tuple([tangent is not None for tangent in tangents])
        return primals, [tangent for tangent in tangents if tangent is not None]

    def _tangents(self, what: str, rule: Function, given: object) -> list[object]:
        """For each primal output its tangent; None for zero, also in place of a subtree."""
        found: list[object] = [None] * self.tree.num_leaves

        def note(tangent: object, part: object) -> None:
            places = jax.tree_util.tree_leaves(part)
            if tangent is not None and places != [part]:
                raise ValueError("an array in place of a tree")
            for place in places:
                found[place] = None if is_no_tangent(tangent) else tangent

        try:
            places = jax.tree_util.tree_unflatten(self.tree, range(self.tree.num_leaves))
            jax.tree_util.tree_map(note, given, places, is_leaf=lambda leaf: leaf is None)
        except (ValueError, TypeError):
            raise CompileError(
                f"{what} returns tangents of the structure {structure_of(given)} for outputs of the structure "
                f"{self.tree}",
                defined_at(rule),
            ) from None
        return found


def _check_tangents(what: str, rule: Function, traced: TracedFunction, body: TracedFunction, found: _Outputs) -> None:
    count = len(found.has_tangent)
    rows = zip(paths_of(found.tree, "output"), body.graph.results, strict=True)
    tangents = zip(traced.graph.results[count:], traced.out_weak[count:], strict=True)
    for path, output in chosen(tuple(rows), found.has_tangent):
        tangent, is_weak = next(tangents)
        if not output.type.dtype.is_inexact:
            raise CompileError(
                f"{what} returns {tangent.type} as tangent of {path}, which is {output.type} and has none; "
                "return None there",
                location_of(tangent, traced.graph, rule),
            )
        if tangent.type.shape != output.type.shape or (tangent.type != output.type and not is_weak):
            raise CompileError(
                f"{what} returns {tangent.type} as tangent of {path}; expected {output.type}, the type of the output",
                location_of(tangent, traced.graph, rule),
            )
