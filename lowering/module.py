"""A graph as the text of a StableHLO module.

    module @train_step {
      func.func public @main(%arg0: tensor<4x8xf32> loc("x"), ...) -> (tensor<f32>) {
        %0 = stablehlo.dot_general %arg0, ... loc(#loc1)
        return %7 : tensor<f32> loc(unknown)
      } loc(unknown)
      func.func private @layer(...) ...
    } loc(unknown)
    #loc1 = loc("loss"("model.py":12:8))

The body of a `call` is a private function, printed once for all calls of an equal body. Locations stand at the end
under aliases, so that a line is as long as its op.
"""

from __future__ import annotations

from rematc.ir.core import Graph
from rematc.ir.facts import Effect
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.ops import (
    arithmetic,
    case,
    complex_parts,
    conversion,
    convolution,
    custom_call,
    custom_derivatives,
    devices,
    dot,
    dynamic,
    effects,
    factorization,
    folding,
    fourier,
    indexing,
    inverse,
    logical,
    mapped,
    placement,
    random,
    random_bits,
    reduction,
    regions,
    rounding,
    scan,
    shape,
    sorting,
    special,
    spectral,
    structural,
    transcendental,
    triangular,
    while_,
    window,
)
from rematc.lowering.program import Module
from rematc.lowering.target import Target
from rematc.lowering.writer import TOKEN, UNKNOWN, Writer, quoted, symbol
from rematc.passes.legalize.legalization import Legalize
from rematc.passes.manual_computations import with_manual_computations
from rematc.passes.offload_order import OffloadOrder
from rematc.passes.phases import phases_of

#: Importing a family enters its rules in `rematc.lowering.writer.RULES`.
FAMILIES = (
    arithmetic,
    case,
    complex_parts,
    conversion,
    convolution,
    custom_call,
    custom_derivatives,
    devices,
    dot,
    dynamic,
    effects,
    factorization,
    folding,
    fourier,
    indexing,
    inverse,
    logical,
    mapped,
    placement,
    random,
    random_bits,
    reduction,
    regions,
    rounding,
    scan,
    shape,
    sorting,
    special,
    spectral,
    structural,
    transcendental,
    triangular,
    while_,
    window,
)


def stablehlo_text(graph: Graph, target: Target | None = None, *, module_name: str | None = None) -> str:
    """The text of `stablehlo_module`."""
    return stablehlo_module(graph, target, module_name=module_name).text


def stablehlo_module(graph: Graph, target: Target | None = None, *, module_name: str | None = None) -> Module:
    """The StableHLO module whose public function `main` is `graph`, legalized.

    Args:
        graph: what to print.
        target: where the module is to run; a CPU by default. Decompositions of matrices, which StableHLO lacks, read
            it: they are calls of the platform's own kernels. So do convolutions inside of loops, branches and
            functions, which XLA:CPU computes fast in one layout only.
        module_name: name of the module; the graph's name by default.

    Raises:
        MissingRuleError: at the user's line, for an op without a lowering rule.
        CompileError: for an op that a pass should have removed, or for which the platform has no kernel.
    """
    target = target or Target.of("cpu")
    graph = with_manual_computations(graph)
    legal = Legalize().run(OffloadOrder().run(graph) if target.waits_for_offloads else graph)
    shares, keeps = target.shares_behind_barriers, target.keeps_bfloat16
    graph = Legalize(target.platform, target.devices, shares, keeps).run(legal)
    writer = Writer(target, phases_of(graph))
    writer.is_tuned = graph is not legal
    _function(writer, graph, "public @main")
    for callee, body in writer.pending_functions():
        _function(writer, body, f"private @{callee}")
    writer.lines += writer.foreign
    head = f"module @{symbol(module_name or graph.name)} {{"
    text = "\n".join([head, *writer.lines, f"}} {UNKNOWN}", *writer.loc_aliases, ""])
    return Module(
        text,
        callbacks=tuple(writer.callbacks),
        barriers=writer.barriers,
        memories=frozenset(writer.memories),
        calls=writer.calls,
        tuned_for=writer.target.platform if writer.is_tuned else None,
        meshes=tuple(writer.meshes),
        partitions=writer.partitions,
        constrained_at=writer.constrained_at,
    )


def _function(writer: Writer, graph: Graph, signature: str) -> None:
    """Append `func.func <signature>(...) -> (...) { ... }`."""
    is_entry = signature.startswith("public")
    has_tokens = graph.effect is Effect.ORDERED
    writer.token = "%token" if has_tokens else None
    with writer.scope(is_inside=not is_entry):
        params = [f"%token: {TOKEN} {UNKNOWN}"] if has_tokens else []
        for index, value in enumerate(graph.params):
            writer.bind(value, f"%arg{index}")
            params.append(
                f"%arg{index}: {writer.type(value.type)}{_memory(writer, value.type, is_entry)} {_param_loc(value)}"
            )
        results = [TOKEN] if has_tokens else []
        results += [f"{writer.type(value.type)}{_memory(writer, value.type, is_entry)}" for value in graph.results]
        writer.lines.append(f"  func.func {signature}({', '.join(params)}) -> ({', '.join(results)}) {{")
        writer.body(graph)
        writer.returned(
            "func.return",
            [*writer.tokens(graph.effect), *[writer.name(value) for value in graph.results]],
            [*writer.token_types(graph.effect), *[writer.type(value.type) for value in graph.results]],
        )
        writer.lines.append(f"  }} {UNKNOWN}")


def _memory(writer: Writer, type: TensorType, is_entry: bool) -> str:
    """The attribute that tells XLA where an argument or result of the program lies."""
    if not is_entry or not type.on_host:
        return ""
    writer.memories.add("pinned_host")
    return ' {mhlo.memory_kind = "pinned_host"}'


def _param_loc(value: Value) -> str:
    return f"loc({quoted(value.name)})" if value.name else UNKNOWN
