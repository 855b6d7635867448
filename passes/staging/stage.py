"""A policy on a whole program, so that it saves what it would save on each block of the program.

Before:  graph @loss(%w0, %w1, %x) { first layer ...  second layer ...  loss }
After:   graph @loss(%w0, %w1, %x) { %1 = checkpoint %w0, %x {...}   %2 = checkpoint %w1, %1 {...} ... }

One region around everything is recomputed at once before its backward pass begins, and so saves next to nothing. Of
regions in a row each is recomputed just before its own backward pass, and what it computed dies with it. What crosses
from one to another is saved: the forward pass has it anyway, and the backward pass could not begin without it. The
segments are found in the program (`segments`); loops are staged step by step (`loops`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.collecting import collection_paused
from rematc.ir.core import Equation, Graph
from rematc.ir.policy import Policy
from rematc.ir.values import Value
from rematc.passes.inline import inline_for_differentiation
from rematc.passes.kernels import CPU, Fusion
from rematc.passes.linearize import under_policy
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.staging.apart import Apart, held_apart
from rematc.passes.staging.loops import staged_loops
from rematc.passes.staging.outline import Body, Outliner
from rematc.passes.staging.profile import Profile, Profiler
from rematc.passes.staging.segments import Cuts, choose_cuts, ways_to_cut


def ways_to_stage(
    graph: Graph,
    policy: Policy,
    wrt: Sequence[bool],
    of: Sequence[bool],
    slices: int = 1,
    fusion: Fusion = CPU,
    shards: Shards = WHOLE,
) -> Iterator[Graph]:
    """`graph` under a policy as a whole, in segments: the ways that are worth comparing, the most promising one first.

    The forward and the backward pass become one program. A way is made when it is asked for.

    Args:
        graph: what is to be differentiated.
        policy: what may be saved.
        wrt: the parameters that it is going to be differentiated by.
        of: the results that are going to get cotangents.
        slices: in how many the largest value of the derivative is going to run, and what else is larger than one.
        fusion: what kernels compute themselves.
        shards: how the graph is spread over devices, each of which is to hold little.
    """
    given = _Given.of(graph, policy, wrt, of, slices, fusion, shards)
    return iter((graph,)) if given is None else map(given.cut, _ways_to_cut(given))


def _ways_to_cut(given: _Given) -> Iterator[Cuts]:
    """By the profile; then of those by another one, that differ, the first and the last: they are least alike.

    There is another one where a device's reductions compute with them only what nothing else reads: a stage that
    computes something again may be done with what is written for them before it holds much.
    """
    ways = list[Cuts]()
    for cuts in ways_to_cut(given.profile, given.loops):
        ways.append(cuts)
        yield cuts
    if given.fusion.reduces_alone:
        other = given.profiler.profile(replace(given.fusion, reduces_alone=False))
        first, *others = ways_to_cut(other, given.loops)
        yield from (cuts for cuts in (first, *others[-1:]) if cuts not in ways)


@collection_paused()
def staged(graph: Graph, policy: Policy, wrt: Sequence[bool], of: Sequence[bool]) -> Graph:
    """`graph` under a policy as a whole, in segments, where the forward and the backward pass are two programs.

    A graph that is not worth cutting becomes one region; under a policy that saves everything there is none.
    """
    given = _Given.of(graph, policy, wrt, of)
    return graph if given is None else given.cut(choose_cuts(given.profile, given.loops))


@dataclass(frozen=True, slots=True)
class _Given:
    """What is to be cut: a graph without calls, its loops, which are staged by themselves, and its profile.

    `profiler` gives others, as devices fuse differently from its own `fusion`. `bodies` are those of all ways. Where
    something is computed `apart`, the graph is what is left.
    """

    graph: Graph
    policy: Policy
    loops: dict[int, tuple[Equation, ...]]
    profile: Profile
    profiler: Profiler
    fusion: Fusion
    apart: Apart | None = None
    bodies: dict[Body, Graph] = field(default_factory=dict)

    @staticmethod
    def of(
        graph: Graph,
        policy: Policy,
        wrt: Sequence[bool],
        of: Sequence[bool],
        slices: int = 1,
        fusion: Fusion = CPU,
        shards: Shards = WHOLE,
    ) -> _Given | None:
        """None under a policy that saves everything."""
        if policy.is_everything:
            return None
        graph = inline_for_differentiation(graph)
        apart = held_apart(graph, policy, wrt)
        if apart is not None:
            graph, wrt = apart.rest, (*wrt, *(False,) * apart.held)
        shards.follow(graph)
        loops = staged_loops(graph, policy, shards)
        profiler = Profiler(graph, policy, wrt, of, loops, slices, shards)
        return _Given(graph, policy, loops, profiler.profile(fusion), profiler, fusion, apart)

    def cut(self, cuts: Cuts) -> Graph:
        """The graph with segments as regions, but for loops and what is kept."""
        cut = self._cut(cuts)
        return cut if self.apart is None else self.apart.joined(cut)

    def _cut(self, cuts: Cuts) -> Graph:
        graph, loops, repeated = self.graph, self.loops, self.profile.repeated
        if not cuts.places and not loops:
            return under_policy(graph, self.policy)
        outliner = Outliner(graph, self.policy, repeated, self.profile.last_use, self.bodies)
        equations: list[Equation] = []
        outside: list[Value] = [value for value in graph.results if value in repeated]
        for begin, end in itertools.pairwise((0, *cuts.places, len(graph.equations))):
            if begin in loops or begin >= cuts.kept:
                rows = [loops.get(index, (graph.equations[index],)) for index in range(begin, end)]
                kept = [one for row in rows for one in row if not repeated.issuperset(one.results) or one.op.effect]
                outside.extend(value for one in kept for value in one.operands if value in repeated)
                equations.extend(kept)
            elif (region := outliner.region(begin, end)) is not None:
                equations.append(region)
        return Graph(graph.name, graph.params, (*outliner.outside(outside), *equations), graph.results)


def staged_by_all(graph: Graph, policy: Policy) -> Graph:
    """`staged`, for a graph of which nobody knows yet by what it is differentiated."""
    wrt, of = ([type.dtype.is_inexact for type in types] for types in (graph.param_types, graph.result_types))
    return staged(graph, policy, wrt, of)
