"""The primitive `rematc_checkpoint`: a region whose derivative is ours, in JAX's jaxprs.

JAX asks it what it asks `jax.checkpoint`, and when. It is batched with all that is in it; its derivative is a region
again; and where JAX splits a derivative into what it knows and what is linear, it is split under the policies, as what
it is by then. So a policy is about a whole batch where `jax.vmap` is inside of `jax.grad`, in loops and `jax.jit`, too,
and about one element where it is outside; and a `jax.jvp` inside of `jax.grad` is computed again with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np
from jax._src.checkify import Error, checkify_jaxpr, error_checks
from jax._src.core import set_current_trace
from jax._src.interpreters import partial_eval as pe
from jax._src.interpreters.batching import batch_jaxpr_axes, fancy_primitive_batchers, zero_if_mapped
from jax._src.interpreters.mlir import jaxpr_subcomp
from jax.extend.core import Primitive, Var, jaxpr_as_fun
from jax.interpreters import ad, mlir

from rematc.lowering.jax_internals.jaxprs import captured_as_inputs, closed

#: JAX leaves these without annotations.
_is_undefined: Any = ad.is_undefined_primal
_instantiate: Any = ad.instantiate_zeros
_in_trace: Any = set_current_trace

_checkpoint_p: Any = Primitive("rematc_checkpoint")
_checkpoint_p.multiple_results = True


@dataclass(frozen=True, slots=True)
class Derivative:
    """A forward derivative of a function: its operands, then tangents, to its results, then theirs.

    Attributes:
        wrt: for each operand, whether it has a tangent.
        of: the same for each result.
    """

    wrt: tuple[bool, ...]
    of: tuple[bool, ...]

    def operands(self, operands: Sequence[Any]) -> list[Any]:
        """Each operand's own, then again for those that have a tangent."""
        return [*operands, *[one for one, is_set in zip(operands, self.wrt, strict=True) if is_set]]

    def results(self, results: Sequence[Any]) -> list[Any]:
        """The same of results."""
        return [*results, *[one for one, is_set in zip(results, self.of, strict=True) if is_set]]

    def with_further(self, place: int, count: int) -> Derivative:
        """Of the function with further operands from `place` on, which have no tangents."""
        return replace(self, wrt=(*self.wrt[:place], *(False,) * count, *self.wrt[place:]))


Derivatives = tuple[Derivative, ...]
Linear = Callable[[Sequence[Any]], Sequence[Any]]


class RegionRules(Protocol):
    """What a region's derivatives are, by its jaxpr, which JAX may have batched, and those that it has already.

    Operands and results are those of the jaxpr, then the tangents of each derivative.
    """

    def has_tangent(self, jaxpr: Any, derivatives: Derivatives, wrt: tuple[bool, ...]) -> tuple[bool, ...]:
        """For each result, whether one more derivative has a tangent for it."""

    def evaluate(self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]) -> Sequence[Any]:
        """The results."""

    def split(
        self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]
    ) -> tuple[Sequence[Any], Linear] | None:
        """The results but for the last derivative's tangents, and a function of its operands' tangents to these.

        None where JAX is to split what `evaluate` does.
        """

    def checkpointed(self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]) -> Sequence[Any]:
        """The results, by operations of JAX's, the regions of `jax.checkpoint` among them."""


def apply_region(jaxpr: Any, region: RegionRules, operands: Sequence[Any], derivatives: Derivatives = ()) -> list[Any]:
    """Apply a region to JAX values, one for each input of its jaxpr: inside a trace one equation.

    Args:
        jaxpr: a closed one, without constants and effects.
        region: how it is differentiated.
        operands: the values, and tangents.
        derivatives: how it has been.
    """
    results: list[Any] = _checkpoint_p.bind(*operands, jaxpr=jaxpr, region=region, derivatives=derivatives)
    return results


def expand_region(jaxpr: Any, region: RegionRules, derivatives: Derivatives, operands: Sequence[Any]) -> Sequence[Any]:
    """What a region computes, as operations of JAX's: of the last derivative what is known, then what is linear."""
    if derivatives:
        count = len(derivatives[-1].wrt)
        found = region.split(jaxpr, derivatives, operands[:count])
        if found is not None:
            results, linear = found
            return [*results, *linear(operands[count:])]
    return _evaluate(*operands, jaxpr=jaxpr, region=region, derivatives=derivatives)


def avals_of_results(jaxpr: Any, derivatives: Derivatives) -> list[Any]:
    """JAX's types of a region's results."""
    return _with_tangents(jaxpr.out_avals, [derivative.results for derivative in derivatives])


def _avals_of_operands(jaxpr: Any, derivatives: Derivatives) -> list[Any]:
    return _with_tangents(jaxpr.in_avals, [derivative.operands for derivative in derivatives])


def _with_tangents(avals: Sequence[Any], doubled: Sequence[Callable[[Sequence[Any]], list[Any]]]) -> list[Any]:
    """The types, and those of the tangents of each derivative, which says what has one."""
    found = list(avals)
    for one in doubled:
        found += one([aval.to_tangent_aval() for aval in found])[len(found) :]
    return found


def by_jax(jaxpr: Any, derivatives: Derivatives) -> Callable[..., Sequence[Any]]:
    """A jaxpr's derivatives as JAX has them, as a function of the operands."""
    if not derivatives:
        function: Callable[..., Sequence[Any]] = jaxpr_as_fun(jaxpr)
        return function
    inner, last = by_jax(jaxpr, derivatives[:-1]), derivatives[-1]
    count = len(last.wrt)

    def derived(*operands: Any) -> list[Any]:
        primals = operands[:count]

        def of_moving(*moving: Any) -> tuple[Any, ...]:
            return tuple(inner(*_with_moving(primals, last.wrt, moving)))

        moving = [x for x, flag in zip(primals, last.wrt, strict=True) if flag]
        results, tangents = jax.jvp(of_moving, moving, list(operands[count:]))
        return [*results, *[t for t, is_set in zip(tangents, last.of, strict=True) if is_set]]

    return derived


def _with_moving(operands: Sequence[Any], is_moving: Sequence[bool], moving: Sequence[Any]) -> list[Any]:
    """The operands, with others in the places of those that move."""
    rest = iter(moving)
    return [next(rest) if flag else x for x, flag in zip(operands, is_moving, strict=True)]


def _evaluate(*operands: Any, jaxpr: Any, region: RegionRules, derivatives: Derivatives) -> Sequence[Any]:
    return region.evaluate(jaxpr, derivatives, operands) if derivatives else list(jaxpr_as_fun(jaxpr)(*operands))


def _abstract_evaluate(*operands: Any, jaxpr: Any, region: RegionRules, derivatives: Derivatives) -> Sequence[Any]:
    return avals_of_results(jaxpr, derivatives)


# -- differentiation ---------------------------------------------------------------------------------------------------


def _differentiate(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, region: RegionRules, derivatives: Derivatives
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The derivative of a region is a region."""
    wrt = tuple([_is_present(primal, tangent) for primal, tangent in zip(primals, tangents, strict=True)])
    operands = [*primals, *[tangent for tangent, is_set in zip(tangents, wrt, strict=True) if is_set]]
    if any(wrt):
        of = region.has_tangent(jaxpr, derivatives, wrt)
        derivatives = (*derivatives, Derivative(wrt, of))
    else:
        of = (False,) * len(avals_of_results(jaxpr, derivatives))
    found = _checkpoint_p.bind(*operands, jaxpr=jaxpr, region=region, derivatives=derivatives)
    results, outgoing = found[: len(of)], iter(found[len(of) :])
    pairs = zip(results, of, strict=True)
    return results, [next(outgoing) if is_set else ad.Zero(jax.typeof(y).to_tangent_aval()) for y, is_set in pairs]


def _is_present(primal: Any, tangent: Any) -> bool:
    return not isinstance(tangent, ad.Zero) and bool(jax.numpy.issubdtype(jax.typeof(primal).dtype, np.inexact))


def _split(trace: Any, *tracers: Any, jaxpr: Any, region: RegionRules, derivatives: Derivatives) -> Sequence[Any]:
    """The rule for partial evaluation while JAX traces: of a derivative, all is known but what is linear.

    Anything else stays whole, as where JAX looks for what is the same in all steps of a loop.
    """
    count = len(derivatives[-1].wrt) if derivatives else len(tracers)
    known = [tracer.pval.get_known() for tracer in tracers]
    if any(one is None for one in known[:count]) or all(one is not None for one in known):
        params = {"jaxpr": jaxpr, "region": region, "derivatives": derivatives}
        usual: Sequence[Any] = trace.default_process_primitive(_checkpoint_p, tracers, params)
        return usual
    found = region.split(jaxpr, derivatives, known[:count])
    with _in_trace(trace):
        if found is None:
            return region.evaluate(jaxpr, derivatives, tracers)
        results, linear = found
        return [*results, *linear(tracers[count:])]


def _split_equation(
    saveable: Callable[..., Any], is_unknown: Sequence[bool], is_there: Sequence[bool], eqn: Any
) -> tuple[Any, Any, Sequence[bool], Sequence[bool], list[Any]]:
    """The rule for partial evaluation inside of `jax.checkpoint`, the policy of which is asked about what is in it.

    A region of which all is known is computed again as a whole, unless the policy saves everything.
    """
    if any(is_unknown):
        call = _as_call(eqn)
        rule: Any = pe.partial_eval_jaxpr_custom_rules[call.primitive]
        split: tuple[Any, Any, Sequence[bool], Sequence[bool], list[Any]] = rule(saveable, is_unknown, is_there, call)
        return split
    count = len(eqn.outvars)
    if saveable(eqn.primitive, *[variable.aval for variable in eqn.invars], **eqn.params) in (True, pe.Saveable):
        return eqn, None, [False] * count, [False] * count, []
    missing = [x for x, flag in zip(eqn.invars, is_there, strict=True) if isinstance(x, Var) and not flag]
    return eqn, eqn, [False] * count, [True] * count, missing


def _as_call(eqn: Any) -> Any:
    """The equation as one of `jax.jit`, with the region as one of `jax.checkpoint` in it."""
    avals = [variable.aval for variable in eqn.invars]
    params = dict(eqn.params)
    region = params.pop("region")
    inner = jax.make_jaxpr(lambda *operands: region.checkpointed(**params, operands=operands))(*avals)
    shape = jax.make_jaxpr(jax.jit(lambda *operands: (0.0,) * len(eqn.outvars), keep_unused=True))(*avals)
    (call,) = shape.jaxpr.eqns
    return eqn.replace(primitive=call.primitive, params={**call.params, "jaxpr": inner})


def _transpose(cts: Sequence[Any], *operands: Any, **params: Any) -> Sequence[Any]:
    """Of a region that is linear in some operands."""
    is_linear = [_is_undefined(operand) for operand in operands]

    def linear(*moving: Any) -> list[Any]:
        return list(expand_region(**params, operands=_with_moving(operands, is_linear, moving)))

    avals = [operand.aval for operand, flag in zip(operands, is_linear, strict=True) if flag]
    found = iter(jax.linear_transpose(linear, *avals)([_instantiate(ct) for ct in cts]))
    return [next(found) if flag else None for flag in is_linear]


# -- other transformations ---------------------------------------------------------------------------------------------


def _batch(
    axis_data: Any,
    operands: Sequence[Any],
    dimensions: Sequence[int | None],
    *,
    jaxpr: Any,
    region: RegionRules,
    derivatives: Derivatives,
) -> tuple[Sequence[Any], Sequence[int | None]]:
    """The jaxpr for all elements. Its operands are batched with their tangents, and in front, where there are any.

    Where tangents alone are batched, what they are of is not: the region becomes that of JAX's derivative.
    """
    count = len(jaxpr.in_avals)
    owners = list(range(count))
    for derivative in derivatives:
        owners = derivative.operands(owners)
    batched = {owner for owner, dimension in zip(owners, dimensions, strict=True) if dimension is not None}
    if any(dimensions[owner] is None for owner in batched):
        joint, constants = captured_as_inputs(
            jax.make_jaxpr(by_jax(jaxpr, derivatives))(*_avals_of_operands(jaxpr, derivatives))
        )
        further = (*dimensions, *[None] * len(constants))
        return _batch(axis_data, (*operands, *constants), further, jaxpr=joint, region=region, derivatives=())
    moved, given = list(dimensions[:count]), list(operands)
    if derivatives:
        moved = [0 if place in batched else None for place in range(count)]
        rows = zip(operands, dimensions, owners, strict=True)
        given = [_in_front(x, dimension, axis_data.size) if owner in batched else x for x, dimension, owner in rows]
    destinations = [zero_if_mapped] * len(jaxpr.out_avals)
    found, is_batched = batch_jaxpr_axes(jaxpr, axis_data, moved, destinations)  # type: ignore[no-untyped-call]
    whole, captured = captured_as_inputs(found)
    flags = list(is_batched)
    for derivative in derivatives:
        flags = derivative.results(flags)
    bound = [*given[:count], *captured, *given[count:]]
    kept = tuple([derivative.with_further(count, len(captured)) for derivative in derivatives])
    results = _checkpoint_p.bind(*bound, jaxpr=whole, region=region, derivatives=kept)
    return results, [0 if flag else None for flag in flags]


def _in_front(value: Any, dimension: int | None, size: int) -> Any:
    """A value for all elements, these in front."""
    if dimension is None:
        return jax.numpy.broadcast_to(value, (size, *jax.numpy.shape(value)))
    return jax.numpy.moveaxis(value, dimension, 0)


def _drop_unused(used: Sequence[bool], *given: Any) -> tuple[list[bool], Any]:
    """The rule for dead code: an equation with the results that are used, and the operands that these need."""
    eqn = given[-1]
    if not any(used):
        return [False] * len(eqn.invars), None
    if eqn.params["derivatives"]:
        return [True] * len(eqn.invars), eqn
    jaxpr, needed = pe.dce_jaxpr(eqn.params["jaxpr"].jaxpr, list(used))
    if all(used) and all(needed):
        return needed, eqn
    invars = [variable for variable, flag in zip(eqn.invars, needed, strict=True) if flag]
    outvars = [variable for variable, flag in zip(eqn.outvars, used, strict=True) if flag]
    return needed, eqn.replace(invars=invars, outvars=outvars, params={**eqn.params, "jaxpr": closed(jaxpr)})


def _check(*given: Any, jaxpr: Any, **params: Any) -> tuple[Any, Sequence[Any]]:
    """The rule of `checkify`: errors of the values, beside the region as it is; since jax 0.12 a context is first."""
    at = next(index for index, one in enumerate(given) if isinstance(one, Error))
    context, (error, enabled, *operands) = given[:at], given[at:]
    check: Any = checkify_jaxpr
    found, _ = check(*context, jaxpr, enabled, error, *operands[: len(jaxpr.in_avals)])
    return found, _checkpoint_p.bind(*operands, jaxpr=jaxpr, **params)


def _lower(ctx: mlir.LoweringRuleContext, *operands: Any, **params: Any) -> Sequence[Any]:
    """The region's equations where it stands; of derivatives, the graph's."""
    if params["derivatives"]:
        derived: Sequence[Any] = mlir.lower_fun(_evaluate, multiple_results=True)(ctx, *operands, **params)
        return derived
    results, tokens = jaxpr_subcomp(
        ctx.module_context,
        params["jaxpr"].jaxpr,
        ctx.name_stack,
        ctx.tokens_in,
        (),
        *operands,
        dim_var_values=ctx.dim_var_values,
        const_lowering=ctx.const_lowering,
        outer_traceback=ctx.traceback,
    )
    ctx.set_tokens_out(tokens)
    return results


_checkpoint_p.def_impl(_evaluate)
_checkpoint_p.def_abstract_eval(_abstract_evaluate)
ad.primitive_jvps[_checkpoint_p] = _differentiate
ad.primitive_transposes[_checkpoint_p] = _transpose
pe.custom_partial_eval_rules[_checkpoint_p] = _split
pe.partial_eval_jaxpr_custom_rules[_checkpoint_p] = _split_equation
pe.dce_rules[_checkpoint_p] = _drop_unused
fancy_primitive_batchers[_checkpoint_p] = _batch
error_checks[_checkpoint_p] = _check
mlir.register_lowering(_checkpoint_p, _lower)
