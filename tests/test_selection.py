"""By default every file runs, and each word of a test's cases."""

from __future__ import annotations

from tests.support.samples import families, rows
from tests.support.selection import FEW, ONE_CASE_IN, ONE_TEST_IN, Case, chosen


def of_one_test(*ids: str) -> list[bool]:
    return chosen(Case("f", "t", id) for id in ids)


def test_each_word_is_there_once() -> None:
    found = of_one_test("add-f32[3]", "add-f32[4]", "add-bf16[3]", "sub-f32[3]", "sub-bf16[3]")
    assert found == [True, False, True, True, False]


def test_words_are_those_of_one_test() -> None:
    cases = [Case(file, "t", f"x-{index}") for file in "ab" for index in range(FEW + 1)]
    assert chosen(cases) == [True, *[False] * FEW] * 2


def test_few_cases_run_and_of_numbers_one_in_several() -> None:
    assert all(of_one_test(*[f"x-{index}" for index in range(FEW)]))
    found = of_one_test(*map(str, range(2 * ONE_CASE_IN)))
    assert [index for index, is_set in enumerate(found) if is_set] == [0, ONE_CASE_IN]


def test_of_a_file_one_test_in_several_runs_and_what_is_wanted() -> None:
    cases = [Case("f", "wanted", is_wanted=True), *[Case("f", f"t{index}") for index in range(2 * ONE_TEST_IN)]]
    found = chosen(cases)
    assert [index for index, is_set in enumerate(found) if is_set] == [0, 1, 1 + ONE_TEST_IN]


def test_what_is_slow_is_left_out_and_stands_in_no_ones_place() -> None:
    cases = [Case("f", "slow", is_slow=True), Case("f", "named", is_wanted=True, is_slow=True), Case("f", "first")]
    assert chosen(cases) == [False, True, True]
    some = [Case("f", "t", f"x-{index}", is_slow=index > 1) for index in range(FEW + 1)]
    assert chosen(some) == [True, True, *[False] * (FEW - 1)]


def test_every_op_with_samples_runs() -> None:
    keys = list(rows())
    kept = [key for key, is_set in zip(keys, of_one_test(*keys), strict=True) if is_set]
    assert len(kept) < len(keys) / 3

    def ops(of: list[str]) -> set[str]:
        found = set()
        for key in of:
            family, index = rows()[key]
            found.add(families()[family][index].op.name)
        return found

    assert ops(kept) == ops(keys)
