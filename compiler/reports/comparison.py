"""A module as it enters XLA against the module that XLA runs: which recomputed products are still there.

A product that stands in the entering module once more than value numbering needs is recomputed: XLA could have merged
it, and a barrier (or a conditional) is there to keep it from doing so. Products are compared in groups: those that
compute equal values, and those that cannot be told apart by the names that their operations have in both modules. With
P products of a group planned, M of them distinct, and F found:

    F >= P       all are there
    M <= F < P   P - F of the P - M recomputed ones were merged
    F < M        XLA has rewritten products of the group as something else (a product with a vector as a sum of
                 multiples, two products of one operand as a wider one); it says nothing of barriers

Where products are found under names that lead to no group, those groups of their size in which some are missing are
compared as one with them, by size alone.

Groups without a recomputed product cannot have lost one. Sizes are numbers of multiplications, since XLA swaps,
transposes and flattens operands as it likes. XLA for TPUs changes sizes, too: it pads and splits dimensions, and
makes those of batches a convolution's window. Where there are as many products of the names of a group as are planned,
of whatever size, all of it is there. Where XLA makes many of each, as of float64 on TPUs, all names must be there.
Of products with vectors nothing is said: XLA turns some of them into multiplications and sums.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rematc.ir.locations import relative
from rematc.lowering.hlo.merging import Repetition, TooLargeError, repeated_products
from rematc.lowering.hlo.module import SourceLine
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import Product, executed_products


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
        place = "" if self.source is None else f" from {relative(self.source.file)}:{self.source.line}"
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
    there = Counter({product: times.most for product, times in found.products.items()})
    if _is_partitioned(after):
        # Sizes are those of a device's parts: only names and the number of products can be compared.
        repetition, there = _at_one_size(repetition), _counts_at_one_size(there)
    groups = _groups(repetition, there)
    compared = _compared(groups, entering.unread + found.unread)
    with_vectors = repetition.repeated.total() - sum(group.repeated.total() for group in groups)
    return replace(
        compared,
        found=str(found.total),
        unknown_loops=found.unknown_loops,
        planned=repetition.all.total(),
        recomputed=repetition.repeated.total(),
        looped=repetition.looped,
        barriers=repetition.barriers,
        unseen=compared.unseen + with_vectors,
    )


_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")


def _is_partitioned(text: str) -> bool:
    """Whether a module runs on several devices, each of which has a part of each array."""
    found = _PARTITIONS.search(text.partition("\n")[0])
    return found is not None and int(found[1]) > 1


def _at_one_size(repetition: Repetition) -> Repetition:
    """The same products as if all were of one size."""
    return replace(
        repetition,
        all=_counts_at_one_size(repetition.all),
        merged=_counts_at_one_size(repetition.merged),
        equal=frozenset([(_of_one_size(first), _of_one_size(other)) for first, other in repetition.equal]),
    )


def _of_one_size(product: Product) -> Product:
    return replace(product, multiplications=1)


def _counts_at_one_size(counts: Counter[Product]) -> Counter[Product]:
    found: Counter[Product] = Counter()
    for product, count in counts.items():
        found[_of_one_size(product)] += count
    return found


#: The name of a product's operation and the user's line; these with the number of multiplications.
_Name = tuple[str, SourceLine | None]
_Sized = tuple[int, str, SourceLine | None]


@dataclass(frozen=True, slots=True)
class _Group:
    """Products that are compared together.

    Attributes:
        size: multiplications of each.
        planned: how many there are in the entering module.
        distinct: how many of these if equal ones were merged.
        repeated: the recomputed ones.
        found: those in the module that XLA runs.
        names: those of the planned ones.
        is_named: whether as many have these names in the module that XLA runs, of whatever size.
    """

    size: int
    planned: int
    distinct: int
    repeated: Counter[Product]
    found: Counter[Product]
    names: frozenset[_Name]
    is_named: bool

    @property
    def is_expanded(self) -> bool:
        """Whether XLA makes several products of each, and none of some: how many would be there says nothing then."""
        there = {_name(product) for product in self.found}
        return self.found.total() >= 2 * self.planned and there < self.names

    @property
    def is_whole(self) -> bool:
        """Whether it has a plan, and nothing of it is missing."""
        return 0 < self.planned <= self.found.total() and not self.is_expanded

    @staticmethod
    def joined(groups: Sequence[_Group]) -> _Group:
        """Groups of one size as one."""
        return _Group(
            groups[0].size,
            sum(group.planned for group in groups),
            sum(group.distinct for group in groups),
            sum([group.repeated for group in groups], Counter[Product]()),
            sum([group.found for group in groups], Counter[Product]()),
            frozenset().union(*[group.names for group in groups]),
            all(group.is_named for group in groups),
        )


def _groups(repetition: Repetition, there: Counter[Product]) -> list[_Group]:
    """The products of matrices in groups, by names and values; what is there of a size and no group has its own."""
    leader: dict[object, object] = {}

    def lead(one: object) -> object:
        while leader.setdefault(one, one) != one:
            leader[one] = leader[leader[one]]
            one = leader[one]
        return one

    for product in repetition.all:
        leader[lead(product)] = lead(_provenance(product))
    for first, other in repetition.equal:
        leader[lead(first)] = lead(other)
    members: dict[tuple[int, object], list[Product]] = {}
    for product in dict.fromkeys([*repetition.all, *there]):
        if not product.is_with_vector:
            origin = _provenance(product)
            place = (product.multiplications, lead(origin) if origin in leader else None)
            members.setdefault(place, []).append(product)
    repeated = repetition.repeated
    planned: defaultdict[_Name, Counter[int]] = defaultdict(Counter)
    for product, count in repetition.all.items():
        planned[_name(product)][product.multiplications] += count
    running: Counter[_Name] = Counter()
    for product, count in there.items():
        running[_name(product)] += count
    return [
        _Group(
            size,
            sum(repetition.all[one] for one in products),
            sum(repetition.merged[one] for one in products),
            Counter({one: repeated[one] for one in products if repeated[one]}),
            Counter({one: there[one] for one in products if there[one]}),
            frozenset([_name(one) for one in products if repetition.all[one]]),
            _is_named({_name(product) for product in products}, planned, running),
        )
        for (size, _), products in members.items()
    ]


def _is_named(names: Iterable[_Name], planned: Mapping[_Name, Counter[int]], running: Counter[_Name]) -> bool:
    """Whether what XLA runs has as many products of these names as are planned, and they are planned of one size."""
    return all(name[0] and len(planned[name]) == 1 and running[name] >= planned[name].total() for name in names)


def _provenance(product: Product) -> _Sized:
    """What products of one operation have in common in both modules, if XLA keeps their size."""
    return product.multiplications, *_name(product)


def _name(product: Product) -> _Name:
    """What products of one operation have in common in both modules."""
    return product.name, product.source


def _compared(groups: Sequence[_Group], unread: int) -> Comparison:
    lost: list[tuple[int, _Group]] = []
    rewritten = unseen = duplicated = 0
    for group in _by_size_where_names_fail(groups):
        count = group.found.total()
        if group.is_named and count < group.planned:
            rewritten += group.planned - count
        elif count < group.distinct or group.is_expanded:
            rewritten += max(group.planned - count, 0)
            unseen += group.planned - group.distinct
        elif count < group.planned:
            lost.append((group.planned - count, group))
        else:
            duplicated += count - group.planned
    return Comparison(
        merged=sum(count for count, _ in lost),
        where=_where(lost, sum([group.repeated for group in groups], Counter[Product]())),
        rewritten=rewritten,
        unseen=unseen,
        duplicated=duplicated,
        unread=f"{unread} lines of XLA's text are in a form unknown here" if unread and lost else "",
    )


def _by_size_where_names_fail(groups: Sequence[_Group]) -> Iterator[_Group]:
    """The groups of sizes that are planned; those that what has no group may be part of, as one with that."""
    sizes: dict[int, list[_Group]] = {group.size: [] for group in groups if group.planned}
    for group in groups:
        if group.size in sizes:
            sizes[group.size].append(group)
    for alike in sizes.values():
        if all(group.planned for group in alike):
            yield from alike
            continue
        yield from [group for group in alike if group.is_whole]
        yield _Group.joined([group for group in alike if not group.is_whole])


def _where(lost: Sequence[tuple[int, _Group]], repeated: Counter[Product]) -> tuple[Merged, ...]:
    """The merged products by kind and line: in each group those of which the running module has least, first."""
    planned: Counter[tuple[str, SourceLine | None]] = Counter()
    for product, count in repeated.items():
        planned[product.text, product.source] += count
    rows: Counter[tuple[str, SourceLine | None]] = Counter()
    for missing, group in lost:
        remaining = missing
        there: Counter[SourceLine | None] = Counter()
        for product, count in group.found.items():
            there[product.source] += count
        of_line: Counter[tuple[str, SourceLine | None]] = Counter()
        for product, count in group.repeated.items():
            of_line[product.text, product.source] += count
        for line, count in sorted(of_line.items(), key=lambda row: there[row[0][1]] - row[1]):
            taken = min(count, remaining)
            rows[line] += taken
            remaining -= taken
    return tuple([Merged(*line, count, planned[line]) for line, count in rows.most_common() if count])
