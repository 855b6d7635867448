"""Memory and time of a program that closes over a large array, from tracing to the loaded file.

    python benchmarks/large_constant.py [--gib 2]

After each step: seconds, and the memory of the process beyond that before the first step, in copies of the array (the
user's own is not counted): what the step leaves, and its peak. The array is in no text: it is a hidden argument.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

import rematc

T = TypeVar("T")


class Meter:
    """Measures the resident memory of this process in copies of an array."""

    def __init__(self, array: np.ndarray) -> None:
        self._size = array.nbytes
        self._peak = self._start = resident()
        threading.Thread(target=self._watch, daemon=True).start()

    def step(self, name: str, run: Callable[[], T]) -> T:
        """Run a step and print what it took."""
        self._peak, start = resident(), time.perf_counter()
        result = run()
        seconds = time.perf_counter() - start
        left, peak = [(amount - self._start) / self._size for amount in (resident(), self._peak)]
        print(f"{name:12}{seconds:>9.2f}s{left:>10.2f}{max(left, peak):>10.2f}", flush=True)
        return result

    def _watch(self) -> None:
        while True:
            self._peak = max(self._peak, resident())
            time.sleep(0.005)


def resident() -> int:
    """The resident memory of this process, in bytes (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    """Measure the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=float, default=2.0, help="size of the array")
    gib = parser.parse_args().gib
    table = np.random.default_rng(0).standard_normal(int(gib * 2**28), np.float32)
    small, x = table[:100].copy(), np.float32(2)

    def loss(scale: np.ndarray) -> object:
        return np.sum(table * scale)

    rematc.value_and_grad(lambda scale: np.sum(small * scale))(x)  # loads the libraries
    meter = Meter(table)
    print(f"{'step':12}{'seconds':>10}{'copies':>10}{'peak':>10}")
    lowered = meter.step("lower", lambda: rematc.lower(rematc.value_and_grad(loss), x))
    text = meter.step("print", lowered.stablehlo)
    compiled = meter.step("compile", lowered.compile)
    meter.step("run", lambda: np.asarray(compiled(x)[0]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program"
        meter.step("save", lambda: compiled.save(file))
        print(f"the file has {file.stat().st_size / table.nbytes:.2f} times the array, the text {len(text)} characters")
        loaded = meter.step("load", lambda: rematc.load(file))
        meter.step("run loaded", lambda: np.asarray(loaded(x)[0]))


if __name__ == "__main__":
    main()
