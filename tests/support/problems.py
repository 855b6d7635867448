"""Problems for the planner: drawn at random, and as differentiation gives them."""

from __future__ import annotations

from hypothesis import strategies

from rematc.passes.planning.problem import GIVEN, Problem, Stages, problem_of


@strategies.composite
def problems(draw: strategies.DrawFn, most: int = 12) -> Problem:
    """Any graph: several results of a node, values in place of others, nodes that must not run again."""
    random = draw(strategies.randoms(use_true_random=False))
    producer = [GIVEN] * random.randint(0, 3)
    reads: list[list[int]] = []
    replaces = [-1] * len(producer)
    for node in range(random.randint(1, most)):
        operands = sorted(random.sample(range(len(producer)), min(len(producer), random.randint(0, 3))))
        free = [value for value in operands if random.random() < 0.3]
        reads.append(operands)
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            producer.append(node)
            replaces.append(free.pop() if free else -1)
    return problem_of(
        cost=[random.randint(0, 9) for _ in reads],
        reads=reads,
        size=[random.randint(0, 9) for _ in producer],
        producer=producer,
        workspace=[random.choice([0, 0, 5]) for _ in reads],
        is_repeatable=[random.random() < 0.9 for _ in reads],
        results=[value for value in range(len(producer)) if random.random() < 0.15 and value not in replaces],
        replaces=replaces,
    )


@strategies.composite
def joints(draw: strategies.DrawFn, most: int = 7) -> Problem:
    """A forward graph of one result a node, and a backward graph that reads its values in reversed order."""
    random = draw(strategies.randoms(use_true_random=False))
    count = random.randint(2, most)
    reads = [
        sorted({max(0, i - random.choice([0, 0, 0, 1, 2])) for _ in range(random.randint(1, 2))}) for i in range(count)
    ]
    # Value 0 is given, value i + 1 that of node i; the cotangent of each comes from the one after it.
    for i in reversed(range(count)):
        kept = [value for value in (*reads[i], i + 1) if random.random() < 0.7]
        reads.append(sorted({len(reads), *kept}))
    total = 2 * count
    return problem_of(
        cost=[random.randint(1, 9) for _ in range(total)],
        reads=reads,
        size=[random.randint(0, 1)] + [random.randint(1, 9) for _ in range(total)],
        producer=[GIVEN, *range(total)],
        results=[total],
    )


@strategies.composite
def staged(draw: strategies.DrawFn, problem: Problem) -> Stages:
    """A way to run a problem."""
    random = draw(strategies.randoms(use_true_random=False))
    count = len(problem.cost)
    begins = sorted(random.sample(range(1, count), random.randint(0, min(4, count - 1)))) if count > 1 else []
    again = [tuple(sorted(random.sample(range(begin), random.randint(0, begin)))) for begin in begins]
    return Stages(tuple(begins), tuple(again))
