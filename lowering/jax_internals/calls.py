"""The primitive `rematc_call`, which stands for one call of a `Program` inside a jaxpr.

So `jax.jit` caches, dispatches and shards our programs with its own machinery, at its own speed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jax
from jax._src import config, debugging
from jax._src.callback import _callback_op_sharding, emit_python_callback
from jax._src.interpreters import mlir as mlir_internals
from jax._src.sharding_impls import SPMDAxisContext
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from rematc.ir.errors import CompileError
from rematc.ir.facts import Effect
from rematc.lowering.jax_internals.callbacks import remembering
from rematc.lowering.jax_internals.settings import initialize_kernels
from rematc.lowering.jax_internals.shardings import on_meshes
from rematc.lowering.jax_internals.types import abstract_value
from rematc.lowering.program import Program
from rematc.lowering.validation import parse
from rematc.lowering.writer import CALLBACK, Callback

# Any: JAX types neither its primitives nor what MLIR's Python classes are generic in.
_call_p: Any = Primitive("rematc_call")
_call_p.multiple_results = True


def apply_program(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Apply a program to JAX values, one for each of its parameters: inside a trace one equation, outside it runs."""
    results: list[Any] = _call_p.bind(*operands, program=program, **on_meshes(program.module.meshes))
    return results


#: JAX's own effects of `jax.debug.print`, so that its loops take our programs, and ordered effects are in one order.
_EFFECTS: dict[Effect, frozenset[Any]] = {
    Effect.NONE: frozenset(),
    Effect.UNORDERED: frozenset({debugging.debug_effect}),
    Effect.ORDERED: frozenset({debugging.ordered_debug_effect}),
}


def effects_of(effect: Effect) -> frozenset[Any]:
    """JAX's effects that stand for one of ours."""
    return _EFFECTS[effect]


def _abstract_evaluate(
    *operands: Any, program: Program, placed: Any = None
) -> tuple[list[jax.core.ShapedArray], frozenset[Any]]:
    found = [(operand.shape, operand.dtype) for operand in operands]
    expected = [(type.shape, type.dtype.numpy) for type in program.param_types]
    if found != expected:
        raise CompileError(
            f"'{program.name}' takes ({', '.join(map(str, program.param_types))}), "
            f"got ({', '.join(operand.str_short(short_dtypes=True) for operand in operands)}); "
            "64-bit values need jax.enable_x64(True)"
        )
    return [abstract_value(type) for type in program.result_types], _EFFECTS[program.effect]


def _evaluate(*operands: Any, program: Program, placed: Any = None) -> list[Any]:
    # Outside all traces: only under `jax.disable_jit()`, which must not reach into a compiled program.
    with jax.disable_jit(False):
        results: list[Any] = _jitted(program)(*operands)
    return results


@functools.lru_cache(maxsize=32)
def _jitted(program: Program) -> Any:
    def run(*operands: Any) -> list[Any]:
        return apply_program(program, operands)

    run.__name__ = program.name
    return jax.jit(run)


def lower_call(ctx: mlir.LoweringRuleContext, *operands: Any, program: Program, placed: Any = None) -> Sequence[Any]:
    """Move the program's functions into the module that JAX is lowering, and call what was `main`.

    Raises CompileError where the program cannot run on a platform that it is lowered for.
    """
    _check_devices(ctx, program)
    platforms = platforms_of(ctx)
    if program.module.uses_host_memory and "cpu" in platforms:
        raise host_memory_error(program, "cpu")
    if program.choice is not None:
        program.choice.check(program.name, platforms)
    _prepare_kernels(program, platforms)
    source = parse(program.text)
    _drop_memory_kinds(source)
    _emit_callbacks(ctx, source, program)
    symbol = mlir.merge_mlir_modules(
        ctx.module_context.module, program.name, source, dst_symtab=ctx.module_context.symbol_table
    )
    result_types = [mlir.aval_to_ir_type(ctx.module_context, aval) for aval in ctx.avals_out]
    name = ir.FlatSymbolRefAttr.get(symbol)
    if program.effect is not Effect.ORDERED:
        results: Sequence[Any] = func.CallOp(result_types, name, operands).results
        return results
    token = ctx.tokens_in.get(debugging.ordered_debug_effect)
    outcome = func.CallOp([token.type, *result_types], name, [token, *operands]).results
    following = mlir.TokenSet({debugging.ordered_debug_effect: outcome[0]})
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(following))
    return list(outcome)[1:]


def lower_calls(
    ctx: mlir.LoweringRuleContext, operands: Sequence[Any], programs: Mapping[str, Program]
) -> Sequence[Any]:
    """As `lower_call`, with a program for each of the platforms that JAX lowers for: one, but for `jax.export`."""
    first, *others = programs.values()
    if all(other.text == first.text for other in others):
        return lower_call(ctx, *operands, program=first)
    rules: Any = {name: functools.partial(lower_call, program=program) for name, program in programs.items()}
    effects = effects_of(first.effect)
    results: Sequence[Any] = mlir_internals.lower_per_platform(ctx, first.name, rules, None, effects, *operands)
    return results


def platforms_of(ctx: mlir.LoweringRuleContext) -> tuple[str, ...]:
    """The platforms that an equation is lowered for."""
    found: tuple[str, ...] = mlir_internals._platforms_for_eqn(ctx)
    return found


def device_count(ctx: mlir.LoweringRuleContext) -> int:
    """Over how many devices the program is spread that an equation is a part of."""
    context = ctx.module_context.axis_context
    count: int = context.mesh.size if isinstance(context, SPMDAxisContext) else context.num_devices
    return count


def _check_devices(ctx: mlir.LoweringRuleContext, program: Program) -> None:
    """Raise CompileError where constraints of the program could not hold: they must not be dropped."""
    if not program.module.partitions:
        return
    if not config.use_shardy_partitioner.value:
        raise CompileError(
            f"'{program.name}' has sharding constraints, which rematc writes for Shardy; leave "
            "jax_use_shardy_partitioner on, or use rematc.jax.value_and_grad, which hands constraints back to JAX",
            program.module.constrained_at,
        )
    found = device_count(ctx)
    if found != program.module.partitions:
        raise CompileError(
            f"'{program.name}' has sharding constraints over a mesh of {program.module.partitions} devices, and is "
            f"compiled for {found}; pass arrays, or jax.ShapeDtypeStructs, that lie on the devices of the mesh",
            program.module.constrained_at,
        )


def _emit_callbacks(ctx: mlir.LoweringRuleContext, module: ir.Module, program: Program) -> None:
    """Put the platform's own calls of Python in the place of the module's."""
    if not program.module.callbacks:
        return
    found: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if target == CALLBACK:
                found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for operation in found:
        number = ir.StringAttr(operation.attributes["backend_config"]).value
        _emit_callback(ctx, operation, program.module.callbacks[int(number)])
        operation.erase()


def _emit_callback(ctx: mlir.LoweringRuleContext, operation: Any, callback: Callback) -> None:
    token, operands = None, list(operation.operands)
    if callback.is_ordered:
        token, *operands = operands
    given, taken = ([abstract_value(type) for type in types] for types in (callback.operands, callback.results))
    sharding = _callback_op_sharding(ctx.module_context.axis_context, None, taken)
    with ir.InsertionPoint(operation), operation.location:
        outcome, following, _ = emit_python_callback(
            dataclasses.replace(ctx, avals_in=given, avals_out=taken),
            remembering(callback.function),
            token,
            operands,
            given,
            taken,
            has_side_effect=callback.has_effect,
            sharding=sharding,
        )
    replacements = [following, *outcome] if callback.is_ordered else list(outcome)
    for old, new in zip(operation.results, replacements, strict=True):
        old.replace_all_uses_with(new)


def _prepare_kernels(program: Program, platforms: Sequence[str]) -> None:
    needed = program.module.kernel_platform
    if needed is None:
        return
    for platform in platforms:
        if platform != needed:
            raise CompileError(
                f"'{program.name}' calls linear algebra kernels of platform '{needed}' and cannot run on '{platform}'; "
                f"compile it for '{platform}' from the start (rematc.compile(..., target='{platform}')), "
                f"or run it on '{needed}'"
            )
    initialize_kernels()


def _drop_memory_kinds(module: ir.Module) -> None:
    """Where arguments and results lie is said on the entry function only, and JAX says it there."""
    for op in module.body.operations:
        for attribute in ("arg_attrs", "res_attrs"):
            if attribute in op.attributes:
                del op.attributes[attribute]


def host_memory_error(program: Program, platform: str) -> CompileError:
    """What to say where a program offloads and the platform cannot."""
    return CompileError(
        f"'{program.name}' offloads values to the host's memory, but on platform '{platform}' there is none apart from "
        "the device's; save these values instead of offloading them, or run it on a GPU or TPU"
    )


def _refuse_jvp(primals: object, tangents: object, *, program: Program, placed: Any = None) -> NoReturn:
    raise CompileError(
        f"JAX cannot differentiate '{program.name}', which is compiled already; "
        "use rematc.grad, or rematc.value_and_grad, before compiling it"
    )


def _refuse_batching(operands: object, dimensions: object, *, program: Program, placed: Any = None) -> NoReturn:
    raise CompileError(
        f"jax.vmap cannot batch '{program.name}', which is compiled already; write the batch dimension in the function"
    )


_call_p.def_effectful_abstract_eval(_abstract_evaluate)
_call_p.def_impl(_evaluate)
# `inline=False`: equal calls share one copy of the program in a module.
mlir.register_lowering(_call_p, lower_call, inline=False)
ad.primitive_jvps[_call_p] = _refuse_jvp
batching.primitive_batchers[_call_p] = _refuse_batching
