"""Misspelt names: what is near is asked about, what is equally near as well, and nothing else."""

from __future__ import annotations

import pytest

from rematc.ir.spelling import nearest, question, suggestion


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("dtos", ["dots", "nothing"], ("dots",)),
        ("Dots", ["dots", "dots-no-batch"], ("dots",)),
        ("sin", ["sine", "sinh", "cosine"], ("sine", "sinh")),
        ("sin", [], ()),
        ("gameboy", ["cpu", "cuda"], ()),
        ("", ["cpu"], ()),
    ],
)
def test_the_nearest_names(name: str, known: list[str], found: tuple[str, ...]) -> None:
    assert nearest(name, known) == found


def test_as_text() -> None:
    assert question("sin", ["sine", "sinh"]) == "did you mean 'sine' or 'sinh'?"
    assert suggestion("sin", ["sine"]) == "; did you mean 'sine'?"
    assert suggestion("x", ["sine"]) == question("x", ["sine"]) == ""
