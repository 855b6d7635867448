"""Memory and time of a long recurrence: plain, checkpointed, in nested levels, from snapshots; beside JAX and equinox.

    python benchmarks/scan.py [--rounds N] [--growth] [--blocks]

The gradient of a recurrence of 1,000 steps: XLA's temporary memory, the shortest time of a call as a ratio to that of
JAX's plain scan (all are called in turns in one process), and the seconds to trace, lower and compile. Equinox's
checkpointed loop has a row where equinox is installed. `--growth` compiles loops of 100, 1,000 and 10,000 steps.
`--blocks` measures loops of checkpointed steps in checkpoints, one block after another: the shape of jax#27748, where
such blocks need more memory than one of them should.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc

STEPS, WIDTH, BATCH = 1000, 512, 32
ARGUMENTS = (
    np.full((WIDTH, WIDTH), 1 / WIDTH, np.float32),
    np.ones((BATCH, WIDTH), np.float32),
)
MEBIBYTE = 2**20
Wrap = Callable[[Any], Any]


def unchanged(function: Any) -> Any:
    return function


def loss(lib: Any, scan: Any, wrap: Wrap, steps: int = STEPS, **options: Any) -> Any:
    """A recurrence with three values a step that the backward pass needs."""

    def run(w: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> tuple[Any, None]:
            return lib.sin(lib.tanh(c @ w) * c), None

        return scan(wrap(step), x, None, steps, **options)[0].sum()

    return run


@dataclass(frozen=True, slots=True)
class Measured:
    """One way to take the gradient.

    Attributes:
        mebibytes: XLA's temporary memory.
        seconds: to trace, lower and compile.
        call: the compiled function.
    """

    mebibytes: float
    seconds: float
    call: Callable[..., Any]


def ours(wrap: Wrap = unchanged, steps: int = STEPS, **options: Any) -> Measured:
    return of_rematc(loss(np, rematc.scan, wrap, steps, **options), *ARGUMENTS)


def theirs(wrap: Wrap = unchanged, steps: int = STEPS) -> Measured:
    return of_jax(loss(jnp, jax.lax.scan, wrap, steps), *ARGUMENTS)


def of_rematc(function: Any, *arguments: Any) -> Measured:
    """Value and gradients, by rematc."""
    start = time.perf_counter()
    compiled = rematc.compile(rematc.value_and_grad(function, (0, 1)), *arguments)
    return Measured(compiled.memory().temp_bytes / MEBIBYTE, time.perf_counter() - start, compiled)


def of_jax(function: Any, *arguments: Any) -> Measured:
    """Value and gradients, by JAX."""
    start = time.perf_counter()
    compiled = jax.jit(jax.value_and_grad(function, (0, 1))).lower(*arguments).compile()
    memory = compiled.memory_analysis()
    return Measured(memory.temp_size_in_bytes / MEBIBYTE, time.perf_counter() - start, compiled)


def of_equinox(checkpoints: int) -> Measured | None:
    """Equinox's loop with as many checkpoints; None where equinox is not installed."""
    if importlib.util.find_spec("equinox") is None:
        return None
    import equinox.internal  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  # an optional baseline

    def run(w: Any, x: Any) -> Any:
        def step(state: Any) -> Any:
            number, c = state
            return number + 1, jnp.sin(jnp.tanh(c @ w) * c)

        _, last = equinox.internal.while_loop(
            lambda state: state[0] < STEPS,
            step,
            (jnp.zeros((), jnp.int32), x),
            max_steps=STEPS,
            kind="checkpointed",
            checkpoints=checkpoints,
        )
        return last.sum()

    return of_jax(run, *ARGUMENTS)


def seconds_of(call: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))  # type: ignore[no-untyped-call]  # jax
    return time.perf_counter() - start


def compare(rounds: int) -> None:
    """The recurrence in every way; all of them compute the same gradient."""
    rows: dict[str, Measured | None] = {
        "jax, plain": theirs(),
        "jax, checkpointed step": theirs(jax.checkpoint),
        "equinox, 10 checkpoints": of_equinox(10),
        "equinox, 40 checkpoints": of_equinox(40),
        "rematc, plain": ours(),
        "rematc, checkpointed step": ours(rematc.checkpoint),
        "rematc, levels=(10, 100)": ours(levels=(10, 100)),
        "rematc, levels=(40, 25)": ours(levels=(40, 25)),
        "rematc, levels=(10, 10, 10)": ours(levels=(10, 10, 10)),
        "rematc, snapshots=10": ours(snapshots=10),
        "rematc, snapshots=40": ours(snapshots=40),
    }
    arguments = tuple(jnp.asarray(argument) for argument in ARGUMENTS)
    present = {name: row for name, row in rows.items() if row is not None}
    expected = jax.tree.leaves(present["jax, plain"].call(*arguments))
    times: dict[str, list[float]] = {name: [] for name in present}
    for name, row in present.items():
        for got, wanted in zip(jax.tree.leaves(row.call(*arguments)), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-5, err_msg=name)
    for _ in range(rounds):
        for name, row in present.items():
            times[name].append(seconds_of(row.call, arguments))
    print(f"{STEPS} steps, one carry {ARGUMENTS[1].nbytes / 2**10:.0f} KiB, jax {jax.__version__}")
    print(f"{'':28}{'temporary':>14}{'a call / jax':>14}{'compile':>10}")
    for name, found in rows.items():
        if found is None:
            print(f"{name:28}{'not installed':>14}")
            continue
        ratio = f"{min(times[name]) / min(times['jax, plain']):.2f}" if rounds else "-"
        print(f"{name:28}{found.mebibytes:10.1f} MiB{ratio:>14}{found.seconds:8.2f} s")


def growth() -> None:
    """Seconds to compile loops of more and more steps."""
    ways: dict[str, Callable[[int], Measured]] = {
        "jax, plain": lambda n: theirs(steps=n),
        "rematc, plain": lambda n: ours(steps=n),
        "rematc, two levels": lambda n: ours(steps=n, levels=(10, n // 10)),
        "rematc, snapshots=10": lambda n: ours(steps=n, snapshots=10),
    }
    lengths = (100, 1_000, 10_000)
    print(f"{'seconds to compile, steps':28}" + "".join([f"{n:>10,}" for n in lengths]))
    for name, way in ways.items():
        seconds = [min(way(n).seconds for _ in range(2)) for n in lengths]
        print(f"{name:28}" + "".join([f"{one:10.2f}" for one in seconds]))


def in_blocks(lib: Any, scan: Any, checkpoint: Wrap, blocks: int, steps: int) -> Any:
    """Blocks one after another, each a checkpoint around a loop of checkpointed steps."""

    def run(rate: Any, x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            turned = lib.sin(rate * state)
            return state + turned + lib.cos(rate * turned), None

        def block(state: Any) -> Any:
            return scan(checkpoint(step), state, None, steps)[0]

        for _ in range(blocks):
            x = checkpoint(block)(x)
        return x.sum()

    return run


def blocks() -> None:
    """Loops in checkpoints: a block keeps its carries while it is taken backwards, and the others only their first."""
    rate, x = np.float32(0.8), np.ones((300, 100), np.float32)
    print(f"{'blocks of 100 steps':28}{'expected':>14}{'rematc':>12}{'jax':>12}   ({jax.__version__})")
    for count in (5, 10, 20):
        expected = (100 + count) * x.nbytes / MEBIBYTE
        mine = of_rematc(in_blocks(np, rematc.scan, rematc.checkpoint, count, 100), rate, x).mebibytes
        other = of_jax(in_blocks(jnp, jax.lax.scan, jax.checkpoint, count, 100), rate, x).mebibytes
        print(f"{count:<28}{expected:10.1f} MiB{mine:8.1f} MiB{other:8.1f} MiB", flush=True)


def main() -> None:
    """Print the tables that the options ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="calls of each way")
    parser.add_argument("--growth", action="store_true", help="compile time against the number of steps")
    parser.add_argument("--blocks", action="store_true", help="loops in checkpoints, one after another")
    options = parser.parse_args()
    if options.growth:
        growth()
    if options.blocks:
        blocks()
    if not (options.growth or options.blocks):
        compare(options.rounds)


if __name__ == "__main__":
    main()
