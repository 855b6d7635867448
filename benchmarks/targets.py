"""Models at sizes for GPUs and TPUs, compiled ahead of time: JAX, JAX by hand, and rematc under policies and budgets.

    python benchmarks/targets.py [--target h100,v5e] [--only chain,gpt2] [--policies none,nothing,auto] [--budgets 3]
        [--json FILE] [--write docs/devices.md]

The models are those of benchmarks/architectures/ with larger arguments, stacks of other blocks
(benchmarks/whole/blocks.py), and GPT-2 (`SIZED`). By hand JAX has the policy in `jax.checkpoint` around each block, in
a scan around its body; beside `auto` it has `dots`. rematc gets the unchanged loss. Budgets lie between the memory of
`nothing` and of `dots` by hand, both included, evenly. Nothing runs. The columns, JAX's figure before rematc's:

    MiB         of temporary memory, as XLA says (memory_analysis); on a TPU without what lies in vector memory
    over        rematc's over JAX's; for a budget over the budget
    predicted   what rematc said of it before XLA saw the program, over it
    FLOPs       of products, rematc's over JAX's, in loops as often as they run; for a TPU `cycles`, those that XLA
                estimates its kernels to take, where it says (copies have none). For a budget over JAX's `nothing`

With `--json` rows that are in the file are not measured again; it is written after each. `--write` puts the table
between the marks in a document; with `--policies ""` nothing is measured for it. A program that fails is a row with its
error, which is tried again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import JAX, MODELS, chain, convolutional, sequences, unwrapped
from benchmarks.language import BY_HAND, POLICIES, Step, of_jax, of_rematc
from benchmarks.whole import WHOLE, Whole
from benchmarks.whole.blocks import BLOCKS

MEBIBYTE = 2**20
_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped
TARGETS = ("h100", "v5e")
#: The budgets' ends, by the policies of JAX by hand whose memory they are.
ENDS = ("nothing", "dots")
BEGIN, END = "<!-- begin benchmark of targets -->", "<!-- end benchmark of targets -->"


def sized(name: str, arguments: Callable[[], tuple[Any, ...]], is_scanned: bool = False) -> Whole:
    """A model of benchmarks/architectures/ with arguments of these shapes."""

    def shapes() -> tuple[Any, ...]:
        def shape(leaf: Any) -> Any:
            return _struct(np.shape(leaf), np.asarray(leaf).dtype)

        return tuple(jax.tree_util.tree_map(shape, arguments()))

    return Whole(name, lambda block: MODELS[name].build(JAX, block, unwrapped), shapes, is_scanned)


#: By name; those that compile fast come first.
SIZED = {
    model.name: model
    for model in (
        sized("chain", functools.partial(chain.arguments, 16384)),
        sized("scanned", functools.partial(sequences.scanned_arguments, batch=32, length=512), True),
        sized("mixture", functools.partial(sequences.mixture_arguments, batch=64)),
        sized("translation", functools.partial(sequences.translation_arguments, batch=64)),
        sized("lstm", functools.partial(sequences.lstm_arguments, batch=1024), True),
        sized("state-space", functools.partial(sequences.state_space_arguments, batch=64)),
        sized("resnet", functools.partial(convolutional.resnet_arguments, batch=128)),
        sized("unet", functools.partial(convolutional.unet_arguments, batch=64)),
        sized("diffusion", functools.partial(convolutional.diffusion_arguments, batch=32)),
        *BLOCKS,
        *[WHOLE[name] for name in ("gpt2-scan-4", "gpt2-scan", "gpt2")],
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Two programs, or one within a budget.

    Attributes:
        target: what they are compiled for.
        model: its name.
        program: the policy, or which of the budgets.
        hand: JAX's by hand.
        ours: rematc's.
        budget: bytes; None for a policy.
        error: why there are no figures.
    """

    target: str
    model: str
    program: str
    hand: Step | None = None
    ours: Step | None = None
    budget: int | None = None
    error: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a row is told from others by."""
        return self.target, self.model, self.program

    def cells(self) -> list[str]:
        """Of the table."""
        if self.hand is None or self.ours is None:
            return [self.model, self.program, self.error.replace("|", " "), "", "", "", ""]
        least = self.hand.temporary if self.budget is None else self.budget
        return [
            self.model,
            self.program,
            f"{least / MEBIBYTE:.0f}",
            f"{self.ours.temporary / MEBIBYTE:.0f}",
            _ratio(self.ours.temporary, least),
            "" if self.ours.predicted is None else _ratio(self.ours.predicted, self.ours.temporary),
            _ratio(self.ours.work, self.hand.work),
        ]


def _ratio(found: float, expected: float) -> str:
    return f"{found / expected:.2f}" if expected else ""


def budgets(rows: Sequence[Row], count: int) -> Iterator[tuple[str, int, Step]]:
    """Names and bytes of so many budgets between the ends, and JAX's step to set their work beside."""
    hands = {row.program: row.hand for row in rows}
    least, most = (hands.get(policy) for policy in ENDS)
    if least is None or most is None or not count:
        return
    for index in range(count):
        share = index / max(count - 1, 1)
        size = least.temporary + round(share * (most.temporary - least.temporary))
        yield f"budget {index + 1} of {count}", size, least


def measured(target: str, model: Whole, program: str, shapes: tuple[Any, ...], budget: tuple[int, Step] | None) -> Row:
    """A row. What cannot be compiled is one with the error."""
    try:
        if budget is not None:
            size, hand = budget
            return Row(target, model.name, program, hand, of_rematc(model, "none", shapes, target, size), size)
        hand = of_jax(model, BY_HAND.get(program, program), shapes, target)
        return Row(target, model.name, program, hand, of_rematc(model, program, shapes, target))
    except Exception as error:  # noqa: BLE001, RUF100  # a table of many programs goes on
        return Row(target, model.name, program, error=f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")


def measure(target: str, model: Whole, options: argparse.Namespace, rows: dict[tuple[str, str, str], Row]) -> None:
    """Add the rows of a model that are not there."""
    device: Any = rematc.targets.devices(target)[0]
    on = jax.sharding.SingleDeviceSharding(device)
    shapes = jax.tree_util.tree_map(lambda leaf: _struct(leaf.shape, leaf.dtype, sharding=on), model.shapes())

    def add(program: str, budget: tuple[int, Step] | None = None) -> None:
        if (target, model.name, program) in rows:
            return
        row = measured(target, model, program, shapes, budget)
        rows[row.key] = row
        print(f"{target}: {' | '.join(row.cells())}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps([dataclasses.asdict(one) for one in rows.values()], indent=1) + "\n")

    for policy in options.policies.split(","):
        add(policy)
    here = [row for row in rows.values() if row.key[:2] == (target, model.name)]
    for program, size, hand in budgets(here, options.budgets):
        add(program, (size, hand))


def read(file: Path) -> dict[tuple[str, str, str], Row]:
    """The rows of a file that was written before; none where there is none."""
    rows = [
        Row(**{**row, **{side: Step(**row[side]) for side in ("hand", "ours") if row[side]}})
        for row in (json.loads(file.read_text()) if file.exists() else [])
    ]
    return {row.key: row for row in rows if not row.error}


def tables(rows: Sequence[Row]) -> str:
    """A table for each target, and how close predictions are."""
    lines = [versions(), ""]
    for target in dict.fromkeys(row.target for row in rows):
        work = "cycles" if re.match(r"v\d", target) else "FLOPs"
        lines += [f"### On {target}", ""]
        lines += [f"| model | policy | MiB: baseline, or budget | rematc | over | predicted | {work} |"]
        lines += ["|---|---|--:|--:|--:|--:|--:|"]
        here = [row for row in rows if row.target == target]
        lines += [f"| {' | '.join(row.cells())} |" for row in here]
        known = [row.ours for row in here if row.ours is not None and row.ours.predicted is not None]
        close = sum(abs((one.predicted or 0) - one.temporary) <= 0.15 * one.temporary for one in known)
        missing = [name for name in SIZED if name not in {row.model for row in here}]
        lines += ["", f"Predicted within 15 %: {close} of {len(known)}. Not run: {', '.join(missing) or 'none'}.", ""]
    return "\n".join(lines)


def versions() -> str:
    """Of what compiled."""
    try:
        libtpu = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        libtpu = "none"
    return f"jax {jax.__version__}, libtpu {libtpu}."


def write(file: Path, text: str) -> None:
    """Put the text between the marks of a document. Raises ValueError where it has none."""
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file} has no '{BEGIN}' before '{END}'")
    file.write_text(f"{before}{BEGIN}\n{text.strip()}\n{END}{after}")


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=",".join(TARGETS), help="of rematc.targets, separated by commas")
    parser.add_argument("--only", help=f"models, separated by commas, of: {', '.join(SIZED)}")
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas")
    parser.add_argument("--budgets", type=int, default=3, help="how many")
    parser.add_argument("--json", type=Path, help="a file for the rows; those in it are not measured again")
    parser.add_argument("--write", type=Path, help="a document for the table")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SIZED)
    if unknown := set(names) - set(SIZED):
        parser.error(f"no model {', '.join(sorted(unknown))}")
    settings: Any = jax.config
    settings.update("jax_platforms", "cpu")
    rows = read(options.json) if options.json else {}
    for name in names if options.policies else ():
        for target in options.target.split(","):
            measure(target, SIZED[name], options, rows)
    order = {name: index for index, name in enumerate(SIZED)}
    text = tables(sorted(rows.values(), key=lambda row: (row.target, order[row.model])))
    print(text)
    if options.write:
        write(options.write, text)


if __name__ == "__main__":
    main()
