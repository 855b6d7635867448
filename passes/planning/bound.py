"""How fast a plan within a budget can be at best: what has to run again after a step without room for everything.

Of what stands before a node p, only so many bytes are live while p runs for the first time. From these come all values
that nodes from p up to q read. With h the values that are held and r the nodes that run again, the least of

    sum cost r + lambda (sum size h - room)    where each value that is read, by r as well, is in h or its node in r

is a bound for each lambda >= 0, and a minimum cut. What runs again between p and q is different work from what runs
again after q: the bounds of windows one after another add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from rematc.passes.planning.problem import GIVEN, Booleans, Integers, Problem, simulate

#: What finite capacities add up to at most: scipy's are 32 bits wide.
_CAPACITY = 1 << 30
_INFINITE = (1 << 31) - 1
#: At how many steps windows begin that reach to the end, and at how many of these others do; how many nodes and steps.
_STEPS, _BEST, _NODES_AND_STEPS = 20, 4, 20_000
#: How many cuts for a window, of which most need five.
_CUTS = 12


def bound(problem: Problem, budget: int) -> int:
    """Nanoseconds that every plan within the budget takes at least."""
    run = simulate(problem)
    total = int(problem.cost.sum())
    if run.peak <= budget:
        return total
    count = len(problem.cost)
    whole = {step: _window(problem, step, count, budget) for step in _steps(run.live, budget)}
    steps = [*sorted(sorted(whole, key=lambda step: -whole[step])[:_BEST]), count]
    # The best windows one after another, from each step on.
    best = [0.0] * len(steps)
    for i in reversed(range(len(steps) - 1)):
        best[i] = max(best[i + 1], whole[steps[i]])
        for j in range(i + 1, len(steps) - 1):
            best[i] = max(best[i], _window(problem, steps[i], steps[j], budget) + best[j])
    return total + max(0, int(np.ceil(best[0] * (1 - 1e-9) - 1e-6)))


def _steps(live: Integers, budget: int) -> list[int]:
    """Steps that take too much: of each of so many parts of them the one that takes most."""
    over = np.flatnonzero(live > budget)
    most = max(1, min(_STEPS, _NODES_AND_STEPS // len(live), len(over)))
    return [int(part[np.argmax(live[part])]) for part in np.array_split(over, most)]


@dataclass(frozen=True, slots=True)
class _Network:
    """Edges of the cut: from where to where, its weight, and whether this is time, bytes, or without end."""

    tail: Integers
    head: Integers
    weight: Integers
    is_time: Booleans
    is_bytes: Booleans
    count: int

    def cut(self, price: float) -> tuple[float, float, float]:
        """The least of time and price times bytes, and the two of it; nothing where they are too large by far."""
        capacity = np.where(self.is_bytes, price, 1.0) * self.weight
        if not capacity.any():
            return 0.0, 0.0, 0.0
        scale = _CAPACITY / float(capacity.sum())
        whole = np.where(self.is_time | self.is_bytes, np.floor(capacity * scale), _INFINITE).astype(np.int32)
        graph = csr_array((whole, (self.tail, self.head)), shape=(self.count, self.count))
        flow = maximum_flow(graph, 0, 1)
        rest = graph - flow.flow
        rest.eliminate_zeros()
        is_before = np.zeros(self.count, np.bool_)
        is_before[breadth_first_order(rest, 0, return_predecessors=False)] = True
        is_cut = is_before[self.tail] & ~is_before[self.head]
        time, size = (float(self.weight[is_cut & kind].sum()) for kind in (self.is_time, self.is_bytes))
        return flow.flow_value / scale, time, size


def _window(problem: Problem, first: int, end: int, budget: int) -> float:
    """Nanoseconds that have to run again between two nodes, as the first has only the budget to run in."""
    own = {value for value in problem.reads[first] if problem.producer[value] < first}
    needed = {value for node in range(first, end) for value in problem.reads[node] if problem.producer[value] < first}
    if end == len(problem.cost):
        needed |= set(np.flatnonzero(problem.is_result & (problem.producer < first)).tolist())
    needed -= own
    held = float(problem.size[sorted(needed)].sum())
    room = budget - int(problem.workspace[first]) - _size(problem, own) - _size(problem, problem.writes[first])
    room += sum(
        min(int(problem.size[value]), int(problem.size[problem.replaces[value]]))
        for value in problem.writes[first]
        if problem.replaces[value] in own
    )
    if held <= room or not needed:  # a budget that the first node alone exceeds bounds nothing
        return 0.0
    return _least(_network(problem, first, needed, own), held, room, int(problem.cost.sum()))


def _least(network: _Network, held: float, room: int, total: int) -> float:
    """The most over prices: from the line of all that is held and that of all that runs again to where they meet."""
    time, most, best = 0.0, held, 0.0
    _, high, least = network.cut(total + 1.0)
    if least > room:
        return 0.0
    for _ in range(_CUTS):
        price = (high - time) / (most - least)
        value, new_time, new_size = network.cut(price)
        best = max(best, value - price * room)
        if new_size >= most or new_size <= least:
            break
        if new_size > room:
            time, most = new_time, new_size
        else:
            high, least = new_time, new_size
    return best


def _network(problem: Problem, first: int, needed: set[int], own: set[int]) -> _Network:
    """Node 0 is where all that is needed comes from, 1 the end; a value is before the cut where it has to be had."""
    place: dict[tuple[bool, int], int] = {}
    edges: list[tuple[int, int, int, int]] = []
    work = sorted(needed)
    for value in work:
        place[False, value] = len(place) + 2
        edges.append((0, place[False, value], 0, 2))
    while work:
        value = work.pop()
        node = int(problem.producer[value])
        if node == GIVEN or not problem.is_repeatable[node]:
            edges.append((place[False, value], 1, int(problem.size[value]), 1))
            continue
        if (True, node) not in place:
            place[True, node] = len(place) + 2
            edges.append((place[True, node], 1, int(problem.cost[node]), 0))
            for operand in problem.reads[node]:
                if operand in own:
                    continue
                if (False, operand) not in place:
                    place[False, operand] = len(place) + 2
                    work.append(operand)
                edges.append((place[True, node], place[False, operand], 0, 2))
        edges.append((place[False, value], place[True, node], int(problem.size[value]), 1))
    tail, head, weight, kind = np.array(edges, np.int64).T
    return _Network(tail, head, weight, kind == 0, kind == 1, len(place) + 2)


def _size(problem: Problem, values: Iterable[int]) -> int:
    return sum(int(problem.size[value]) for value in values)
