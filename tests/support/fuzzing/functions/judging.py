"""Random functions judged: what each entry of rematc's gives for a second derivative, beside JAX.

    python -m tests.support.fuzzing.functions.judging START COUNT

prints a line of JSON for each find, and the counts at the end; `... judging FILE` judges what is in a file:

    # law: checkpoint: grad of grad
    # seed: 7                          of the point and the policies
    def f(x, w, i):
        return L.np.sum(x * L.stop(L.np.sin(x)))
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np

from tests.support.fuzzing.functions.drawing import draw
from tests.support.fuzzing.functions.entries import ENTRIES, KINDS, REVERSE_FIRST, Entry, Point, expected
from tests.support.fuzzing.functions.source import Function, Written, reduced

#: How far results may lie from JAX's, relative to the largest: by the narrowest numbers in the function.
_TOLERANCES = (("bfloat16", 0.25), ("float16", 0.03), ("noise", 1e-4), ("float32", 1e-4), ("", 1e-8))
#: A unit in the last place of those numbers.
_UNITS = (("bfloat16", 2**-8), ("float16", 2**-11), ("noise", 2**-24), ("float32", 2**-24), ("", 2**-52))
#: Where a function makes much of rounding, results may be off by so many times what JAX's own are, in so many runs.
_FACTOR, _RUNS = 8, 3


class WrongDerivativeError(AssertionError):
    """A derivative that is not JAX's.

    Attributes:
        far: by how much it differs.
    """

    def __init__(self, message: str, far: float = float("inf")) -> None:
        super().__init__(message)
        self.far = far


@dataclass(frozen=True, slots=True)
class Find:
    """A function and an entry that gives something else than JAX, or refuses it.

    Attributes:
        law: entry and kind.
        seed: of the point and the policies.
        error: what is wrong.
        text: the function.
    """

    law: str
    seed: int
    error: str
    text: str

    def written(self) -> str:
        """As a file."""
        said = [f"law: {self.law}", f"seed: {self.seed}", *self.error.splitlines()[:4]]
        return "\n".join(f"# {line}" for line in said) + f"\n{self.text}"


def kind_of(function: Function | Written, random: Random) -> str:
    """A kind of derivative that the function has."""
    traits = function.traits()
    if "forward" in traits:
        return "jvp of jvp"
    return random.choice(REVERSE_FIRST if "rules" in traits else KINDS)


def broken(function: Function | Written, entry: Entry, kind: str, seed: int, wanted: Sequence[Any]) -> Exception | None:
    """What is wrong with what an entry gives; nothing where JAX's own program has the fault."""
    try:
        found = entry.of(function, kind, Point.of(seed), Random(seed))
        _compare(function.text(), found, wanted)
    except WrongDerivativeError as error:
        if error.far <= _FACTOR * _spread(function, kind, seed):
            return None
        return None if _is_wrong_in_jax(function, entry, kind, seed, wanted) else error
    except Exception as error:  # noqa: BLE001, RUF100  # whatever the compiler raises is a find
        return None if _is_wrong_in_jax(function, entry, kind, seed, wanted) else error
    return None


def _spread(function: Function | Written, kind: str, seed: int) -> float:
    """By how much JAX's derivative changes where the point moves by units: what rounding may make of it."""
    text = function.text()
    unit = next(number for word, number in _UNITS if word in text)
    point, random, spread = Point.of(seed), np.random.default_rng(seed), 0.0
    there = expected(function, kind, point)
    for _ in range(_RUNS):
        moved = [array * (1 + unit * random.choice([-1.0, 1.0], array.shape)) for array in point.args[:2]]
        found = expected(function, kind, replace(point, args=(*moved, point.args[2])))
        spread = max(spread, *(float(np.max(np.abs(x - y), initial=0)) for x, y in zip(found, there, strict=True)))
    return spread


def _is_wrong_in_jax(function: Function | Written, entry: Entry, kind: str, seed: int, wanted: Sequence[Any]) -> bool:
    """Whether JAX differentiates for this entry, and refuses its own program, or has another derivative, too."""
    for way in entry.in_jax:
        try:
            _compare(function.text(), way(function, kind, Point.of(seed)), wanted)
        except Exception:  # noqa: BLE001, RUF100  # JAX's refusals are of many types
            return True
    return False


def _compare(text: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    tolerance = next(number for word, number in _TOLERANCES if word in text)
    for one, other in zip(found, wanted, strict=True):
        actual, due = np.asarray(one), np.asarray(other)
        if (actual.dtype, actual.shape) != (due.dtype, due.shape):
            raise WrongDerivativeError(f"{actual.dtype}{actual.shape}, JAX has {due.dtype}{due.shape}")
        far = float(np.max(np.abs(actual - due), initial=0))
        if not far <= tolerance * (1 + float(np.max(np.abs(due), initial=0))):
            raise WrongDerivativeError(f"{actual.tolist()}, JAX has {due.tolist()}", far)


def judged(
    function: Function | Written, kind: str, seed: int, entries: Sequence[Entry]
) -> Iterator[tuple[Entry, Exception]]:
    """What is wrong, by entry; nothing where JAX itself refuses, or has no finite derivative."""
    wanted = _expected(function, kind, seed)
    if wanted is None:
        return
    for entry in entries:
        error = broken(function, entry, kind, seed, wanted)
        if error is not None:
            yield entry, error


def _expected(function: Function | Written, kind: str, seed: int) -> list[Any] | None:
    try:
        wanted = expected(function, kind, Point.of(seed))
    except Exception:  # noqa: BLE001, RUF100  # JAX's refusals are of many types
        return None
    return wanted if all(np.isfinite(one).all() for one in wanted) else None


def finds(
    seeds: Sequence[int], shrink: bool = True, counts: Counter[str] | None = None, without: str = ""
) -> Iterator[Find]:
    """All that is wrong with the functions of these seeds."""
    counts = Counter() if counts is None else counts
    for seed in seeds:
        function, random = draw(seed), Random(seed)
        if without and re.search(without, function.text()):
            continue
        kind = kind_of(function, random)
        entries = [entry for entry in ENTRIES if kind in entry.kinds and random.random() < entry.share]
        wanted = _expected(function, kind, seed)
        counts["functions"] += 1
        counts["JAX has none"] += wanted is None
        for entry in entries if wanted is not None else ():
            counts[f"{entry.name}: {kind}"] += 1
            error = broken(function, entry, kind, seed, wanted or ())
            if error is not None:
                yield (
                    minimal(function, entry, kind, seed, error) if shrink else find(function, entry, kind, seed, error)
                )


def minimal(function: Function, entry: Entry, kind: str, seed: int, error: Exception) -> Find:
    """The find of the smallest function that fails in the same way."""
    last, subject = [error], re.sub(r"\d+", "", str(error))[-60:]

    def fails(smaller: Function) -> bool:
        wanted = _expected(smaller, kind, seed)
        found = None if wanted is None else broken(smaller, entry, kind, seed, wanted)
        is_same = type(found) is type(error) and (
            isinstance(error, WrongDerivativeError) or re.sub(r"\d+", "", str(found))[-60:] == subject
        )
        if found is not None and is_same:
            last[0] = found
        return is_same

    return find(reduced(function, fails), entry, kind, seed, last[0])


def find(function: Function, entry: Entry, kind: str, seed: int, error: Exception) -> Find:
    return Find(f"{entry.name}: {kind}", seed, f"{type(error).__name__}: {error}", function.text())


def read(text: str) -> tuple[Written, Entry, str, int]:
    """The function of a file, and how it is judged."""
    said = dict(line[2:].split(": ", 1) for line in text.splitlines() if line.startswith("# ") and ": " in line)
    name, kind = said["law"].split(": ")
    entry = next(entry for entry in ENTRIES if entry.name == name)
    return Written(text[text.index("def f(") :]), entry, kind, int(said["seed"])


def judge_text(text: str) -> None:
    """Raise what is wrong with the function of a file."""
    function, entry, kind, seed = read(text)
    with jax.enable_x64(True):
        for _, error in judged(function, kind, seed, [entry]):
            raise error


def main() -> None:
    """Print the finds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", help="a file, or the first seed")
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--as-drawn", action="store_true", help="do not make finds smaller")
    parser.add_argument("--without", default="", help="leave out functions whose text matches this expression")
    options = parser.parse_args()
    if not options.what.isdigit():
        judge_text(Path(options.what).read_text(encoding="utf-8"))
        return
    first, counts, begun = int(options.what), Counter[str](), time.process_time()
    gc.disable()
    warnings.simplefilter("ignore")  # policies speak of names that no value has
    with jax.enable_x64(True):
        for seed in range(first, first + options.count):
            for found in finds([seed], not options.as_drawn, counts, options.without):
                print(
                    json.dumps({"law": found.law, "seed": seed, "error": found.error, "text": found.text}), flush=True
                )
            if seed % 25 == 24:
                gc.collect()
                print(f"{seed - first + 1} in {time.process_time() - begun:.0f} s", file=sys.stderr, flush=True)
    print(json.dumps({"counts": counts, "seconds": time.process_time() - begun}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
