"""By default each word of a test's cases runs once."""

from __future__ import annotations

from tests.support.samples import families, rows
from tests.support.selection import FEW, ONE_IN, chosen


def test_each_word_is_there_once() -> None:
    cases = [("t", "add-f32[3]"), ("t", "add-f32[4]"), ("t", "add-bf16[3]"), ("t", "sub-f32[3]"), ("t", "sub-bf16[3]")]
    assert chosen(cases) == [True, False, True, True, False]


def test_words_are_those_of_one_test() -> None:
    assert chosen([(name, case) for name in "ab" for case in ("x-1", "x-2", "x-3", "x-4")]) == [True, *[False] * 3] * 2


def test_few_cases_and_what_has_none_run() -> None:
    assert all(chosen([("t", f"x-{index}") for index in range(FEW)]))
    assert all(chosen([("t", None)] * (FEW + 1)))


def test_numbers_are_one_in_several() -> None:
    found = chosen([("t", str(index)) for index in range(2 * ONE_IN)])
    assert [index for index, is_set in enumerate(found) if is_set] == [0, ONE_IN]


def test_every_op_with_samples_runs() -> None:
    keys = list(rows())
    kept = {key for key, is_set in zip(keys, chosen(("t", key) for key in keys), strict=True) if is_set}
    assert len(kept) < len(keys) / 3

    def ops(of: set[str] | list[str]) -> set[str]:
        found = set()
        for key in of:
            family, index = rows()[key]
            found.add(families()[family][index].op.name)
        return found

    assert ops(kept) == ops(keys)
