"""Import of linear maps that are given by how to solve for them: `custom_linear_solve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import jaxpr_as_fun

from rematc.compiler.frontends.jax.block import Block, Region, imports
from rematc.compiler.frontends.jax.custom_derivatives import (
    differentiated_inputs,
    inexact_outputs,
    last_inputs,
    source_of,
    traced_jvp,
    with_common_captures,
)
from rematc.compiler.frontends.jax.retracing import trace
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.ir.core import Graph
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import bind


@imports("custom_linear_solve")
def custom_linear_solve(block: Block, eqn: Any) -> Sequence[Value]:
    """`custom_jvp` of the solution, which is linear in the right side: its adjoint is the solution for the transpose.

    For A x = b it is dx = A⁻¹ (db - dA x), which JAX's jvp says in terms of the same primitive.
    """
    solution = _Solution(eqn)
    wrt = differentiated_inputs(block, eqn)
    if not any(wrt):
        return block.inline(solution.body(), block.operands(eqn))
    count, outputs = len(eqn.invars), len(eqn.outvars)
    of = (*inexact_outputs(eqn)[: solution.sides], *(False,) * (outputs - solution.sides))
    rule, reason = traced_jvp(block, eqn, wrt, "custom_linear_solve")
    regions, captured = with_common_captures(_parts(block, solution, rule, sum(wrt)))
    flags = (False,) * len(captured)
    linear = (*flags, *(index >= count - solution.sides for index in range(count)))
    adjoint = regions.get("adjoint")
    op = CustomJvp(
        regions["body"],
        _without_aux(regions["rule"], outputs, sum(of)) if rule is not None else None,
        (*flags, *wrt),
        of,
        adjoint=adjoint,
        linear=linear if adjoint is not None else (),
        reason=reason,
        source=source_of(eqn, len(captured)) if not reason else None,
    )
    return block.b.emit(op, *captured, *block.operands(eqn))


def _parts(block: Block, solution: _Solution, rule: Any | None, tangents: int) -> dict[str, Region]:
    """The graphs of an op by what they are.

    The adjoint is differentiated as often as the solution, the rule once less; further derivatives are JAX's, which
    knows that both are solutions. The solution that the adjoint is has no adjoint of its own: where it is
    differentiated its rule is, in which the tangents are solved for.
    """
    order, is_in_adjoint = derivative_order(), block.shared.is_in_adjoint
    block.shared.is_in_adjoint = False
    with of_order(max(order - 1, 0)):
        parts = {"body": block.region(solution.body(), "linear_solve")}
        if rule is not None:
            with block.shared.unlisted():
                parts["rule"] = block.region(rule, "linear_solve_jvp", last_inputs(rule, tangents))
    jaxpr = None if is_in_adjoint else solution.adjoint()
    if jaxpr is not None:
        block.shared.is_in_adjoint = True
        with block.shared.unlisted():
            parts["adjoint"] = block.region(jaxpr, "linear_solve_adjoint")
    block.shared.is_in_adjoint = is_in_adjoint
    return parts


def _without_aux(rule: Graph, outputs: int, tangents: int) -> Graph:
    """The rule without tangents of what is solved for beside the solution: they are zero."""
    return Graph(rule.name, rule.params, rule.equations, rule.results[: outputs + tangents])


class _Solution:
    """The parts of an equation: closed jaxprs for its meaning and its adjoint.

    Attributes:
        sides: how many arrays the right side has, and the solution.
    """

    def __init__(self, eqn: Any) -> None:
        self._eqn = eqn
        self._avals = [atom.aval for atom in eqn.invars]
        self._lengths = list(eqn.params["const_lengths"])
        self._jaxprs = eqn.params["jaxprs"]
        self.sides = len(self._avals) - sum(self._lengths)

    def _consts(self, operands: Sequence[Any], part: int) -> Sequence[Any]:
        start = sum(self._lengths[:part])
        return operands[start : start + self._lengths[part]]

    def body(self) -> Any:
        """(consts, right side) -> (solution, what is solved for beside it)."""

        def solve(*operands: Any) -> list[Any]:
            sides = operands[len(operands) - self.sides :]
            return list(jaxpr_as_fun(self._jaxprs.solve)(*self._consts(operands, 2), *sides))

        return trace(solve, self._avals)

    def adjoint(self) -> Any | None:
        """(consts, cts of the solution) -> cts of the right side; None where no transposed solution is given.

        It is the same primitive, of the transposed map.
        """
        if self._jaxprs.transpose_solve is None:
            return None
        first = len(self._avals) - self.sides

        def solve(*operands: Any) -> list[Any]:
            consts, cts = operands[:first], operands[first:]
            turned = [one for part in (1, 0, 3, 2) for one in self._consts(consts, part)]
            params = {
                "const_lengths": self._eqn.params["const_lengths"].transpose(),
                "jaxprs": self._jaxprs.transpose(),
            }
            found = bind(self._eqn.primitive, [*turned, *cts], params)
            return list(found[: self.sides])

        return trace(solve, [*self._avals[:first], *[variable.aval for variable in self._eqn.outvars[: self.sides]]])
