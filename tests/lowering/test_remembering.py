"""What is remembered is made once, whoever asks."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rematc.lowering.remembering import Remembered


def test_equal_keys_are_made_once_and_the_oldest_are_forgotten() -> None:
    made: list[int] = []

    def square(remembered: Remembered[int, int], n: int) -> int:
        def make() -> int:
            made.append(n)
            return n * n

        return remembered.find(n, make)

    remembered = Remembered[int, int](most=2)
    assert [square(remembered, n) for n in (2, 3, 2, 4, 2, 3)] == [4, 9, 4, 16, 4, 9]
    assert made == [2, 3, 4, 3]
    assert remembered.values() == [4, 9]
    remembered.clear()
    assert len(remembered) == 0


def test_what_does_not_last_is_made_each_time() -> None:
    remembered = Remembered[str, list[int]](is_lasting=lambda made: False)
    assert remembered.find("x", list) is not remembered.find("x", list)


def test_what_asks_for_itself_is_made_again() -> None:
    remembered = Remembered[str, int]()
    assert remembered.find("x", lambda: 1 + remembered.find("x", lambda: 1)) == 2


def test_several_threads_get_what_the_first_one_makes() -> None:
    remembered = Remembered[str, object]()
    both = threading.Barrier(2)
    made: list[object] = []

    def make() -> object:
        made.append(object())
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.1)  # for another thread that makes it too
        return made[-1]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: remembered.find("x", make), range(4)))
    assert len(made) == 1
    assert all(one is made[0] for one in found)


def test_where_the_first_thread_fails_the_next_one_makes_it() -> None:
    remembered = Remembered[str, int]()
    begun = threading.Event()

    def fail() -> int:
        begun.set()
        raise ValueError("no")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(remembered.find, "x", fail)
        begun.wait(5)
        assert pool.submit(remembered.find, "x", lambda: 7).result(5) == 7
        with pytest.raises(ValueError, match="no"):
            first.result(5)
