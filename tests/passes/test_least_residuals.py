"""The fewest bytes from which needed values follow, against all sets of values."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.passes.least_residuals import Derivation, least_residuals


@st.composite
def derivations(draw: st.DrawFn) -> tuple[list[Value], dict[Value, Derivation], list[Value]]:
    """Values in order, how each comes about from earlier ones, and which are needed."""
    values = [Value(TensorType(F32, ())) for _ in range(draw(st.integers(1, 7)))]
    found: dict[Value, Derivation] = {}
    factor = draw(st.sampled_from([1, 1, 2**31, 7 * 2**36]))
    for index, value in enumerate(values):
        size = draw(st.integers(0, 9)) * factor + (draw(st.integers(0, 3)) if factor > 1 else 0)
        operands = draw(st.none() | st.lists(st.sampled_from(values[:index]), max_size=3)) if index else None
        found[value] = Derivation(size, operands)
    needed = draw(st.lists(st.sampled_from(values), min_size=1, unique=True))
    return values, found, needed


def follow(saved: frozenset[Value], values: list[Value], found: dict[Value, Derivation]) -> set[Value]:
    there = set(saved)
    for value in values:
        operands = found[value].operands
        if operands is not None and there.issuperset(operands):
            there.add(value)
    return there


def cost(saved: frozenset[Value], found: dict[Value, Derivation]) -> int:
    # An empty value still takes its place: the least that a value costs is 1.
    return sum(max(found[value].bytes, 1) for value in saved)


@settings(max_examples=200)
@given(derivations())
def test_no_set_is_smaller(case: tuple[list[Value], dict[Value, Derivation], list[Value]]) -> None:
    values, found, needed = case
    saved = least_residuals(needed, found.get)
    assert follow(saved, values, found).issuperset(needed)
    best = min(
        cost(frozenset(chosen), found)
        for size in range(len(values) + 1)
        for chosen in itertools.combinations(values, size)
        if follow(frozenset(chosen), values, found).issuperset(needed)
    )
    assert cost(saved, found) == best


def test_nothing_is_needed() -> None:
    assert least_residuals([], lambda value: None) == frozenset()


def test_a_byte_counts_beside_gigabytes() -> None:
    first, second, third, needed = (Value(TensorType(F32, ())) for _ in range(4))
    for less, more in ((5 * 2**30, 5 * 2**30 + 1), (5 * 2**30 + 1, 5 * 2**30 + 2)):
        for both, one in ((less, more), (more, less)):
            found = {
                first: Derivation(both - 3, None),
                second: Derivation(3, None),
                third: Derivation(one, [first, second]),
                needed: Derivation(2**40, [third]),
            }
            saved = least_residuals([needed], found.get)
            assert saved == ({first, second} if both < one else {third})
