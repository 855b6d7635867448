"""`check_jax`: whether the `jax.checkpoint`s in a JAX function do what they are there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jaxlib.version

from rematc.compiler.check_jax.placing import Placed, placed_well
from rematc.compiler.reports.check import KEPT, NOTHING, UNDONE, UNKNOWN, judge
from rematc.compiler.reports.comparison import Comparison, compare_modules
from rematc.ir.errors import CompileError
from rematc.ir.units import format_bytes
from rematc.lowering.jax_internals.costs import cost_of
from rematc.lowering.reading import module_of
from rematc.lowering.runtime import CompilerOptions, compile_program
from rematc.lowering.stripping import without_barriers
from rematc.lowering.target import Target
from rematc.lowering.targeting import target_of

#: Recomputation that leaves more than this part of the memory is said to save nothing.
_NO_GAIN = 0.95


@dataclass(frozen=True, slots=True)
class JaxCheck:
    """What XLA made of a JAX function's checkpoints. Memory is temporary memory as XLA reports it, in bytes.

    Attributes:
        verdict: "kept", "undone", "no product recomputed" or "cannot tell", as in `Check`.
        message: the verdict as a sentence.
        way_out: what to do about it; "" where nothing needs to be done.
        comparison: the products of the module that XLA was given and of the one that it runs.
        barriers: optimization barriers in the program as JAX lowers it.
        temp_bytes: compiled as JAX compiles it.
        without_bytes: the same program with its barriers taken out, so that XLA may merge the recomputation with the
            forward pass: about what it takes without checkpoints. None where it was not measured; it is not where all
            recomputation is in loops, from which taking out barriers does not remove it.
        held_bytes: with the compile option that keeps barriers until XLA has scheduled. None where this jaxlib keeps
            them by itself.
        flops: floating-point operations as JAX compiles it, a loop's body counted once.
        without_flops: the same with the barriers taken out.
        placed: what the same loss takes under a policy on the whole, which rematc places (`value_and_grad`). None for
            what is not a gradient of `jax.grad` or `jax.value_and_grad`, or cannot be imported.
    """

    verdict: str
    message: str
    way_out: str
    comparison: Comparison
    barriers: int
    temp_bytes: int
    without_bytes: int | None
    held_bytes: int | None
    flops: float
    without_flops: float | None
    placed: Placed | None = None

    @property
    def is_effective(self) -> bool | None:
        """Whether the checkpoints save memory; None where that was not measured."""
        return None if self.without_bytes is None else self.temp_bytes < _NO_GAIN * self.without_bytes

    def __str__(self) -> str:
        lines = [self.message, *[f"  {row}" for row in self.comparison.where]]
        if self.way_out:
            lines.append(f"  {self.way_out}")
        lines.append(f"  temporary memory {format_bytes(self.temp_bytes)}, {self.flops / 1e9:.1f} GFLOP")
        if self.without_bytes is not None and self.without_flops is not None:
            amount = format_bytes(self.without_bytes)
            lines.append(f"  with the barriers taken out {amount}, {self.without_flops / 1e9:.1f} GFLOP")
        if self.held_bytes is not None:
            lines.append(f"  with barriers that hold {format_bytes(self.held_bytes)}")
        if self.placed is not None:
            amount = f"{format_bytes(self.placed.temp_bytes)}, {self.placed.flops / 1e9:.1f} GFLOP"
            lines.append(f"  with a policy on the whole, '{self.placed.policy}', placed by rematc {amount}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The check as JSON-able data."""
        return {**asdict(self), "where": [str(row) for row in self.comparison.where]}


def check_jax(function: Callable[..., Any], *args: Any, **kwargs: Any) -> JaxCheck:
    """Compile a JAX function as JAX does, and say whether XLA kept what its `jax.checkpoint`s recompute.

        step = jax.jit(jax.value_and_grad(loss))
        print(rematc.check_jax(step, params, batch))

    It is compiled up to four times (as it is; without barriers; with barriers that hold, where this jaxlib drops
    them; and with the checkpoints where rematc would place them) and not run.

    Args:
        function: what `jax.jit` returns, or a function to be handed to it.
        args: its arguments: arrays or `jax.ShapeDtypeStruct`s.
        kwargs: its keyword arguments.

    Raises:
        CompileError: where `function` is neither. What JAX raises for a function that it cannot lower goes through.
    """
    if not callable(function):
        raise CompileError(f"check_jax takes a JAX function, got a {type(function).__name__}; pass jax.jit(f)")
    jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
    lowered = jitted.lower(*args, **kwargs)
    compiled = lowered.compile()
    before = lowered.as_text(dialect="hlo", debug_info=True)
    comparison = compare_modules(before, compiled.as_text() or "")
    module = module_of(lowered.compiler_ir("stablehlo"))
    barriers = module.barriers
    is_flat = comparison.recomputed > comparison.looped or not comparison.recomputed
    target = target_of((args, kwargs))
    is_comparable = comparison.barriers and is_flat and target.devices == 1  # of many, where arguments lie is not known
    without = _without(module.text, target, (args, kwargs)) if is_comparable else None
    options = target.compile_options(has_barriers=barriers > 0)
    held = _temp_bytes(lowered.compile(compiler_options=options)) if options else None
    temp = _temp_bytes(compiled)
    cure = "" if held is None else _cure(options, held, temp)
    verdict, message, way_out = _judge(comparison, barriers, temp, None if without is None else without[0], cure)
    return JaxCheck(
        verdict,
        message,
        way_out,
        comparison,
        barriers,
        temp,
        None if without is None else without[0],
        held,
        float(cost_of(lowered, compiled).get("flops", 0.0)),
        None if without is None else without[1],
        placed_well(function, args, lowered.out_info) if barriers and not kwargs else None,
    )


def _without(text: str, target: Target, arguments: Any) -> tuple[int, float] | None:
    """Temporary memory and FLOPs of the module without barriers, on the device that the arguments lie on."""
    program = without_barriers(text, "without_barriers")
    if program is None:
        return None
    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree_util.tree_leaves(arguments)]
    executable = compile_program(program, target, shardings=shardings)
    return executable.memory().temp_bytes, executable.flops()


def _temp_bytes(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)


def _judge(comparison: Comparison, barriers: int, temp: int, without: int | None, cure: str) -> tuple[str, str, str]:
    """Verdict, sentence and way out. Products that run are not enough: memory must be saved too.

    `cure` is what to do about barriers that XLA drops, "" where it drops none or they would change nothing.
    """
    verdict, message, way_out = judge(comparison)
    if verdict == UNKNOWN:
        if without is not None and temp >= _NO_GAIN * without:
            return verdict, f"{message}; the checkpoints {_in_vain(temp, without)}", way_out or cure or _WRAP
        return verdict, message, way_out
    if not comparison.recomputed:
        return _without_products(message, barriers, temp, without, cure)
    if comparison.recomputed == comparison.looped and verdict != UNDONE:
        count = f"{comparison.recomputed} products are" if comparison.recomputed > 1 else "1 product is"
        return KEPT, f"{count} recomputed, all in loops, where XLA merges nothing with what is outside", ""
    if verdict == UNDONE:
        return verdict, message, cure or _WRAP
    if cure:
        message = (
            f"jaxlib {jaxlib.version.__version__} deletes barriers before it schedules: {comparison.recomputed} "
            "products are recomputed, and what that was to save is not saved"
        )
        return UNDONE, message, cure
    if without is not None and temp >= _NO_GAIN * without:
        message = f"{comparison.recomputed} products are recomputed, and the checkpoints {_in_vain(temp, without)}"
        return UNDONE, message, _WRAP
    return KEPT, message, ""


def _in_vain(temp: int, without: int) -> str:
    """What checkpoints do that save nothing: `save no memory`, or `cost memory`, with the figures."""
    what = "cost memory" if temp > without else "save no memory"
    return f"{what}: {format_bytes(temp)}, and {format_bytes(without)} with the barriers taken out"


_WRAP = (
    "wrap smaller parts, each layer say: a checkpoint recomputes all that it wraps before its backward pass begins, "
    "and so saves only what other checkpoints need; rematc.value_and_grad(loss, policy=...) cuts by itself"
)


def _cure(options: CompilerOptions, held: int, temp: int) -> str:
    """The options that make barriers hold, if they help; else ""."""
    if held >= _NO_GAIN * temp:
        return ""
    effect = f"{format_bytes(held)} instead of {format_bytes(temp)}"
    return f"pass compiler_options={dict(options)} to jax.jit ({effect}), or upgrade to jaxlib 0.12"


def _without_products(message: str, barriers: int, temp: int, without: int | None, cure: str) -> tuple[str, str, str]:
    if not barriers:
        return NOTHING, f"no checkpoint outside loops leaves a barrier; {message}", ""
    count = "1 barrier" if barriers == 1 else f"{barriers} barriers"
    if without is not None and (cure or temp >= _NO_GAIN * without):
        return UNDONE, f"{count}, and the checkpoints {_in_vain(temp, without)}; {message}", cure or _WRAP
    return KEPT, f"{count}; {message}", ""
