"""From a traced function to a program: the passes that every program goes through, then StableHLO."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.ops.placement import has_placements
from rematc.ir.values import Array
from rematc.lowering.module import stablehlo_module
from rematc.lowering.program import PlatformChoice, Program
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target, targeting
from rematc.lowering.xla_cpu.held_readers import HoldReaders
from rematc.lowering.xla_cpu.late_loops import LateLoops
from rematc.lowering.xla_cpu.prediction import Prediction, predict
from rematc.passes.barriers import has_recomputation
from rematc.passes.behind_barriers import BehindBarriers
from rematc.passes.manager import PassManager, PassRecord, parse_pipeline
from rematc.passes.offload_order import OffloadOrder
from rematc.passes.planning.device import device_of
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.product_operands import ProductOperands

#: Loops that are none first, then barriers: they dissolve regions, so that everything after them sees one flat graph.
#: What is recomputed reads the barriers' results, which no other equation has, so cse cannot merge it with the forward
#: evaluation.
_PASSES = "unroll,barriers,simplify,cse,dce,narrow,unpad"
#: Compound ops last: what is lowered, and predicted, are plain ones.
DEFAULT_PIPELINE = f"{_PASSES},legalize"
#: What comes before the pass `plan`: one flat graph, without what would go anyway, in an order that holds less.
BEFORE_PLAN = "unroll,inline,simplify,cse,dce,narrow,unpad,fold_transposes,own_repeats,readers_first"
#: And where XLA has loops so, what is the same in all of their steps before them.
MOVED = "hoist,simplify,cse,dce,own_repeats,readers_first"


def default_pipeline(strategy: str) -> str:
    """The default passes with another strategy of `barriers`."""
    return f"{jax_pipeline(strategy)},legalize"


def jax_pipeline(strategy: str) -> str:
    """The default passes for a graph that goes on as a JAX function: compound ops stay, with their derivatives."""
    return _PASSES.replace("barriers", f"barriers{{strategy={strategy}}}", 1)


def passed_for_jax(graph: Graph, target: Target) -> Graph:
    """A graph after the passes that goes on as a JAX function, for a target."""
    passed = run_passes(graph, jax_pipeline(target.barrier_strategy), target=target).graph
    return OffloadOrder().run(passed) if target.waits_for_offloads else passed


@dataclass(frozen=True, slots=True)
class PassedGraph:
    """A graph after the passes.

    Attributes:
        graph: what is lowered.
        records: what each pass did, and how long it took.
    """

    graph: Graph
    records: tuple[PassRecord, ...]


def run_passes(
    graph: Graph,
    pipeline: str | None = None,
    after_each: Callable[[str, Graph], None] | None = None,
    target: Target | None = None,
    *,
    holds_readers: bool = True,
) -> PassedGraph:
    """Run a pipeline (the default one if None), verifying after each pass; see `rematc.passes.manager`.

    Where the program is made for a target, what is late on it is held as well (`HoldReaders`), unless `holds_readers`
    says that `with_readers_held` is to do it.
    """
    passes = parse_pipeline(DEFAULT_PIPELINE if pipeline is None else pipeline)
    if target is None:
        result = PassManager(passes, after_each=after_each).run(graph)
    else:
        fusion = device_of(target.platform, target.device_kind).fusion
        late = [BehindBarriers(fusion), ProductOperands(fusion)] if fusion.feeds_products else []
        late += [LateLoops()] if target.platform == "cpu" else []
        with targeting(target):
            held = [HoldReaders()] if holds_readers else []
            result = PassManager([*passes, *late, *held], after_each=after_each).run(graph)
    return PassedGraph(result.graph, result.records)


@collection_paused()
def make_program(
    graph: Graph, constants: tuple[Array, ...], target: Target | None = None, choice: PlatformChoice | None = None
) -> Program:
    """The program of a graph whose last parameters are `constants`.

    Args:
        graph: what is called.
        constants: arrays for its last parameters.
        target: what it is for; by default the current one.
        choice: what of the graph was imported for the target's platform alone.
    """
    return Program(
        stablehlo_module(graph, target or current_target()),
        param_types=graph.param_types,
        result_types=graph.result_types,
        name=graph.name,
        constants=constants,
        effect=graph.effect,
        choice=choice,
    )


@collection_paused()
def program_of(graph: Graph, constants: tuple[Array, ...], choice: PlatformChoice | None = None) -> Program:
    """The program of a graph for the current target, through the default passes, as it is to be compiled."""
    target = current_target()
    passed = run_passes(graph, target=target).graph
    program = make_program(passed, constants, target, choice)
    return dataclasses.replace(program, is_depth_first=runs_depth_first(passed, target))


def runs_depth_first(
    graph: Graph,
    target: Target,
    prediction: Callable[[], Prediction] | None = None,
    shards: Callable[[], Shards] = lambda: WHOLE,
) -> bool:
    """Whether a graph, after the passes, is to be compiled with XLA:CPU's depth-first scheduler.

    Args:
        graph: what is to be compiled.
        target: for what.
        prediction: predicts it, if somebody needs that for more; asked only where the answer is open.
        shards: how it is spread over devices. Of a graph with placements of which nobody knows that, what each device
            holds is not predicted.
    """
    if target.platform != "cpu" or has_recomputation(graph) or (has_placements(graph) and shards().is_whole):
        return False
    return (prediction() if prediction else predict(graph, target, (), shards())).is_depth_first
