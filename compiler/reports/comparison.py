"""A module as it enters XLA against the module that XLA runs: which recomputed products are still there.

A product that stands in the entering module once more than value numbering needs is recomputed: XLA could have merged
it, and a barrier (or a conditional) is there to keep it from doing so. With P products of a size planned, M of them
distinct, and F found:

    F >= P       all are there
    M <= F < P   P - F of the P - M recomputed ones were merged
    F < M        XLA has rewritten products of this size as something else (a product with a vector as a sum of
                 multiples, two products of one operand as a wider one); it says nothing of barriers

Sizes without a recomputed product cannot have lost one. Sizes are numbers of multiplications, since XLA swaps,
transposes and flattens operands as it likes. Of products with vectors nothing is said: XLA turns some of them into
multiplications and sums.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rematc.lowering.hlo.merging import TooLargeError, repeated_products
from rematc.lowering.hlo.module import SourceLine
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import Executed, Product, Times, executed_products


@dataclass(frozen=True, slots=True)
class Merged:
    """Recomputed products of one kind and line that XLA merged with their first evaluation.

    Attributes:
        product: what is multiplied.
        source: the user's line, if it is known.
        count: how many were merged.
        planned: of how many recomputed ones.
    """

    product: str
    source: SourceLine | None
    count: int
    planned: int

    def __str__(self) -> str:
        place = "" if self.source is None else f" from {self.source}"
        return f"{self.count} of {self.planned}: {self.product}{place}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Planned and found.

    Attributes:
        planned: products in the module that XLA was given.
        recomputed: how many of them are evaluated a second time.
        looped: how many of these in loops, where XLA merges nothing with what is outside.
        barriers: what keeps recomputation apart outside of loops: optimization barriers, calls that are not inlined,
            and conditionals whose branch is known.
        found: products in the module that XLA runs, as text (a conditional makes it a range).
        merged: how many recomputed products XLA merged.
        where: these by kind and line.
        rewritten: planned products of sizes that XLA computes in another form.
        unseen: how many of the recomputed products are of such sizes, or with vectors; of them nothing can be told.
        duplicated: products that XLA computes more often than planned.
        unknown_loops: loops whose number of steps is not known; their bodies count once.
        unread: why the modules could not be compared; "" where they could.
    """

    planned: int = 0
    recomputed: int = 0
    looped: int = 0
    barriers: int = 0
    found: str = "0"
    merged: int = 0
    where: tuple[Merged, ...] = ()
    rewritten: int = 0
    unseen: int = 0
    duplicated: int = 0
    unknown_loops: int = 0
    unread: str = ""


def compare_modules(before: str, after: str) -> Comparison:
    """Compare the text of a module before XLA's passes with the text after them.

    Raises nothing: what cannot be read is said in `unread`.
    """
    entering, running = parse_hlo(before), parse_hlo(after)
    try:
        repetition = repeated_products(entering)
    except TooLargeError:
        return Comparison(unread="its calls spread to too many instructions")
    found = executed_products(running)
    if entering.entry is None or running.entry is None:
        return Comparison(unread="the text has no entry")
    planned, merged = _by_size(repetition.all), _by_size(repetition.merged)
    seen = Counter({product: count for product, count in repetition.repeated.items() if not product.is_with_vector})
    if _is_partitioned(after):
        # Sizes are those of a device's parts: only the number of products can be compared.
        planned, merged = _as_one(planned), _as_one(merged)
        seen = Counter({replace(product, multiplications=1): count for product, count in seen.items()})
        found = replace(found, products=_of_one_size(found.products))
    compared = _compared(planned, merged, found, seen, entering.unread + found.unread)
    with_vectors = repetition.repeated.total() - seen.total()
    return replace(
        compared,
        planned=repetition.all.total(),
        recomputed=repetition.repeated.total(),
        looped=repetition.looped,
        barriers=repetition.barriers,
        unseen=compared.unseen + with_vectors,
    )


def _by_size(counts: Mapping[Product, int]) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for product, count in counts.items():
        if not product.is_with_vector:
            sizes[product.multiplications] += count
    return sizes


_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")


def _is_partitioned(text: str) -> bool:
    """Whether a module runs on several devices, each of which has a part of each array."""
    found = _PARTITIONS.search(text.partition("\n")[0])
    return found is not None and int(found[1]) > 1


def _as_one(counts: Counter[int]) -> Counter[int]:
    return Counter({1: counts.total()})


def _of_one_size(products: Mapping[Product, Times]) -> dict[Product, Times]:
    counts: dict[Product, Times] = {}
    for product, times in products.items():
        alike = replace(product, multiplications=1)
        counts[alike] = counts.get(alike, Times(0, 0)) + times
    return counts


def _compared(
    planned: Counter[int], distinct: Counter[int], found: Executed, repeated: Counter[Product], unread: int
) -> Comparison:
    there = found.by_size()
    lost: dict[int, int] = {}
    rewritten = unseen = 0
    for size, count in planned.items():
        if there[size] < distinct[size]:
            rewritten += count - there[size]
            unseen += count - distinct[size]
        elif there[size] < count:
            lost[size] = count - there[size]
    where = _where(lost, repeated, found)
    return Comparison(
        found=str(found.total),
        merged=sum(lost.values()),
        where=where,
        rewritten=rewritten,
        unseen=unseen,
        duplicated=sum(max(count - planned[size], 0) for size, count in there.items() if size in planned),
        unknown_loops=found.unknown_loops,
        unread=f"{unread} lines of XLA's text are in a form unknown here" if unread and lost else "",
    )


def _where(lost: Mapping[int, int], repeated: Counter[Product], found: Executed) -> tuple[Merged, ...]:
    """The merged products by line: lines of which the running module has least, first."""
    rows: list[Merged] = []
    for size, count in lost.items():
        remaining = count
        candidates = [(product, planned) for product, planned in repeated.items() if product.multiplications == size]
        there: Counter[SourceLine | None] = Counter()
        for product, times in found.products.items():
            if product.multiplications == size and not product.is_with_vector:
                there[product.source] += times.most
        candidates.sort(key=lambda row: there[row[0].source] - row[1])
        for product, planned in candidates:
            taken = min(planned, remaining)
            if taken:
                rows.append(Merged(product.text, product.source, taken, planned))
            remaining -= taken
    return tuple(sorted(rows, key=lambda row: -row.count))
