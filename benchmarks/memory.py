"""Memory of rematerialization, rematc beside JAX on the jax that is installed: the project's main table.

    python benchmarks/memory.py [--only chain,transformer] [--quick] [--json FILE] [--tables FILE]

Each model is one body for both (benchmarks/architectures/), differentiated with respect to its parameters. A policy
stands on the whole, unmodified model; beside it JAX with the same policy on each block, wrapped by hand, and the cut
of the model's equations into eight equal runs, each checkpointed. The columns:

    temporary   MiB of temporary memory, as XLA says (memory_analysis)
    predicted   what rematc said of it before XLA saw the program (Lowered.predicted_peak), over it
    products    matrix products and convolutions executed, in loops as often as they run
    GFLOP       as XLA says (cost_analysis), a loop's body counted once
    time        median run time over that of JAX without rematerialization, runs interleaved
    compile     seconds that XLA takes
    gradients   largest difference from JAX's without rematerialization, over the largest entry of each array; and
                from the same side's without rematerialization, 0 where they are equal bit for bit

With --quick nothing is run: memory and work only. What is printed is one line a model (with --json read back by
--from FILE); the tables go to a file.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import numpy as np

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import JAX, MODELS, ON_REQUEST, REMATC, Model, unwrapped
from benchmarks.naive import cut_into_runs
from rematc.ir.errors import CompileError
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import executed_products
from rematc.lowering.pipeline import default_pipeline
from rematc.passes.policies import parse_policy

POLICIES = ("nothing", "dots", "dots-no-batch", "names", "auto")
NAIVE_RUNS = 8
JAX_POLICIES: dict[str, Any] = {
    "nothing": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots-no-batch": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
#: What makes XLA:CPU before jaxlib 0.12 keep JAX's barriers too: what an expert would pass.
KEPT: dict[str, str | bool] = {"xla_disable_hlo_passes": "cse_barrier_expander"}


@dataclass(frozen=True, slots=True)
class Variant:
    """How one program of a table is made.

    Attributes:
        side: rematc or jax.
        placement: none, whole, blocks, groups (blocks and groups of them, nested), runs (the cut into equal runs), and
            for JAX "blocks, option": with the compile option that makes barriers hold; for rematc "whole, call": with
            segments as functions that are not inlined, and no option, and "whole, optimization_barrier", which is what
            programs have by default that are not deep.
        policy: its name in `POLICIES`; "" with no checkpoint.
    """

    side: str
    placement: str
    policy: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.side, self.placement, self.policy) if part)


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled program: what XLA says of it, and how to run it."""

    variant: Variant
    temporary: int
    predicted: int | None
    products: int
    flops: float
    seconds: float
    run: Callable[[], Any]


@dataclass(slots=True)
class Row:
    """One line of a table; what was not measured is None."""

    model: str
    variant: Variant
    temporary: int
    predicted: int | None
    products: int
    flops: float
    compile_seconds: float
    time: float | None = None
    difference: float | None = None
    own_difference: float | None = None
    samples: list[float] = field(default_factory=list)


def variants(model: Model, policies: Sequence[str]) -> Iterator[Variant]:
    """The programs of a model's table."""
    other = "whole, optimization_barrier" if model.name in ON_REQUEST else "whole, call"
    yield Variant("jax", "none")
    yield Variant("rematc", "none")
    if model.has_groups:
        yield Variant("rematc", "blocks", "nothing")
        yield Variant("rematc", "groups", "nothing")
        yield Variant("jax", "groups", "nothing")
    for policy in policies:
        if policy == "names" and not model.names:
            continue
        if policy == "auto":
            if _is_policy(policy):
                yield Variant("rematc", "whole", policy)
                yield Variant("rematc", other, policy)
            continue
        yield Variant("rematc", "whole", policy)
        if policy == "nothing":
            yield Variant("rematc", other, policy)
        yield Variant("jax", "whole", policy)
        yield Variant("jax", "blocks", policy)
        if _drops_barriers():
            yield Variant("jax", "blocks, option", policy)
    yield Variant("jax", f"{NAIVE_RUNS} runs", "nothing")
    if _drops_barriers():
        yield Variant("jax", f"{NAIVE_RUNS} runs, option", "nothing")


def _is_policy(text: str) -> bool:
    try:
        parse_policy(text)
    except CompileError:
        return False
    return True


def _drops_barriers() -> bool:
    version = tuple(int(part) for part in jaxlib.version.__version__.split(".")[:2])
    return jax.default_backend() == "cpu" and version < (0, 12)


# -- programs --------------------------------------------------------------------------------------------------------


def build(model: Model, variant: Variant, arguments: tuple[Any, ...]) -> Built:
    """Compile one program. Raises CompileError, or what JAX raises, for a model that a side cannot compile."""
    return (_build_rematc if variant.side == "rematc" else _build_jax)(model, variant, arguments)


def _build_rematc(model: Model, variant: Variant, arguments: tuple[Any, ...]) -> Built:
    policy = f"names={','.join(model.names)}" if variant.policy == "names" else variant.policy
    placement, _, strategy = variant.placement.partition(", ")
    is_local = placement in ("blocks", "groups")

    def wrap(function: Any) -> Any:
        return rematc.checkpoint(function, policy=policy)

    loss = model.build(REMATC, wrap if is_local else unwrapped, wrap if placement == "groups" else unwrapped)
    step = rematc.value_and_grad(loss, policy=policy if placement == "whole" else None)
    lowered = rematc.lower(step, *arguments, passes=default_pipeline(strategy) if strategy else None)
    compiled = lowered.compile()
    temporary, flops = compiled.memory().temp_bytes, compiled.flops()
    products = _products(compiled.hlo_optimized())
    seconds = compiled.executable.compile_seconds
    predicted = lowered.predicted_peak()
    return Built(variant, temporary, predicted, products, flops, seconds, lambda: compiled(*arguments))


def _build_jax(model: Model, variant: Variant, arguments: tuple[Any, ...]) -> Built:
    policy = JAX_POLICIES.get(variant.policy)
    if variant.policy == "names":
        policy = jax.checkpoint_policies.save_only_these_names(*model.names)
    placement, _, option = variant.placement.partition(", ")

    def wrap(function: Any) -> Any:
        return jax.checkpoint(function, policy=policy)

    loss = model.build(
        JAX, wrap if placement in ("blocks", "groups") else unwrapped, wrap if placement == "groups" else unwrapped
    )
    if placement == "whole":
        loss = wrap(loss)
    elif placement.endswith("runs"):
        loss = cut_into_runs(loss, arguments, NAIVE_RUNS)
    lowered = jax.jit(jax.value_and_grad(loss)).lower(*arguments)
    start = time.perf_counter()
    compiled = lowered.compile(compiler_options=KEPT if option else None)
    seconds = time.perf_counter() - start
    memory: Any = compiled.memory_analysis()
    cost: Any = compiled.cost_analysis()
    products = _products(compiled.as_text() or "")
    flops = cost.get("flops", 0.0)
    return Built(variant, memory.temp_size_in_bytes, None, products, flops, seconds, lambda: compiled(*arguments))


def _products(text: str) -> int:
    return executed_products(parse_hlo(text)).total.most


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(model: Model, policies: Sequence[str], rounds: int, wanted: Sequence[str] | None = None) -> list[Row]:
    """The programs of a model's table, compiled, run `rounds` times in turn (not at all with 0), and compared.

    `wanted` are names of programs; None for all. Times and differences are to the first one.
    """
    arguments = jax.device_put(model.arguments())  # once, and not in what is timed
    rows: list[Row] = []
    programs: list[Built] = []
    for variant in variants(model, policies):
        if wanted is not None and str(variant) not in wanted:
            continue
        built = build(model, variant, arguments)
        programs.append(built)
        figures = (built.temporary, built.predicted, built.products, built.flops, built.seconds)
        rows.append(Row(model.name, variant, *figures))
        print(
            f"{model.name}: {variant}: {built.temporary / 2**20:.0f} MiB, {_predicted(rows[-1])}",
            file=sys.stderr,
            flush=True,
        )
    if rounds:
        _compare_gradients(rows, programs)
        _time(rows, programs, rounds)
    return rows


def _compare_gradients(rows: Sequence[Row], programs: Sequence[Built]) -> None:
    """Also the first run of each program, which is not timed."""
    references: dict[str, list[Any]] = {}
    for row, program in zip(rows, programs, strict=True):
        gradients = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(program.run()[1])]
        own = references.setdefault(program.variant.side, gradients)
        row.difference = _difference(gradients, next(iter(references.values())))
        row.own_difference = _difference(gradients, own)


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest difference, over the largest entry of its array."""
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.size:
            scale = float(np.abs(other).max()) or 1.0
            worst = max(worst, float(np.abs(one - other).max()) / scale)
    return worst


def _time(rows: Sequence[Row], programs: Sequence[Built], rounds: int) -> None:
    for _ in range(rounds):
        for row, program in zip(rows, programs, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(program.run())  # type: ignore[no-untyped-call]  # jax
            row.samples.append(time.perf_counter() - start)
    baseline = statistics.median(rows[0].samples)
    for row in rows:
        row.time = statistics.median(row.samples) / baseline


# -- printing --------------------------------------------------------------------------------------------------------


def table(model: Model, rows: Sequence[Row]) -> str:
    """A model's rows as Markdown."""
    lines = [
        f"### {model.name}: {model.about}",
        "",
        "| program | temporary MiB | predicted | products | GFLOP | time | compile s | gradients: to JAX, own |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        is_run = row.time is not None
        cells = (
            f"{row.temporary / 2**20:.0f}",
            _predicted(row),
            f"{row.products}",
            f"{row.flops / 1e9:.1f}",
            f"{row.time:.2f}" if is_run else "",
            f"{row.compile_seconds:.1f}",
            f"{row.difference:.0e}, {row.own_difference:.0e}" if is_run else "",
        )
        lines.append(f"| {row.variant} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """One line a model: temporary MiB of JAX and of rematc, and run time over JAX's without rematerialization."""
    lines = [
        "| temporary MiB | no remat: JAX | `nothing`: JAX | by hand | rematc | `dots`: JAX | by hand | rematc "
        "| `auto`: rematc | time: `dots` | `auto` |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    by_variant = {(row.model, row.variant): row for row in rows}
    ratios: list[float] = []
    for model in dict.fromkeys(row.model for row in rows):
        found = functools.partial(_found, by_variant, model)
        by_hand = "blocks, option" if found("jax", "blocks, option", "dots") else "blocks"
        cells = [_mib(found("jax", "none"))]
        for policy in ("nothing", "dots"):
            jax_whole, ours = found("jax", "whole", policy), found("rematc", "whole", policy)
            cells += [_mib(jax_whole), _mib(found("jax", by_hand, policy)), f"**{_mib(ours)}**" if ours else ""]
            if jax_whole and ours:
                ratios.append(ours.temporary / jax_whole.temporary)
        auto = found("rematc", "whole", "auto")
        cells += [_mib(auto), *[_time_ratio(row) for row in (found("rematc", "whole", "dots"), auto)]]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    if ratios:
        lines += [
            "",
            f"Geometric mean of rematc over JAX, policy on the whole: {statistics.geometric_mean(ratios):.2f}",
        ]
    return "\n".join(lines) + "\n"


def _found(
    rows: Mapping[tuple[str, Variant], Row], model: str, side: str, placement: str, policy: str = ""
) -> Row | None:
    return rows.get((model, Variant(side, placement, policy)))


def _mib(row: Row | None) -> str:
    return "" if row is None else f"{row.temporary / 2**20:.0f}"


def _time_ratio(row: Row | None) -> str:
    return "" if row is None or row.time is None else f"{row.time:.2f}"


def _write(file: Path, header: str, rows: Sequence[Row]) -> None:
    file.write_text(json.dumps({"header": header, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def _read(file: Path) -> tuple[str, list[Row]]:
    read = json.loads(file.read_text())
    return read["header"], [Row(**{**row, "variant": Variant(**row["variant"])}) for row in read["rows"]]


def _predicted(row: Row) -> str:
    return "" if row.predicted is None else f"{row.predicted / row.temporary:.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help=f"models, separated by commas, of: {', '.join(MODELS)}")
    parser.add_argument("--policies", default=",".join(POLICIES), help="policies, separated by commas")
    parser.add_argument("--programs", help="only these, as the tables call them, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="compile only: memory and work")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each program")
    parser.add_argument("--json", type=Path, help="a file for the rows as JSON")
    parser.add_argument("--from", dest="given", type=Path, help="measure nothing: take the rows of such a file")
    parser.add_argument("--tables", type=Path, help="a file for all columns of all programs, as Markdown")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [name for name in MODELS if name not in ON_REQUEST]
    wanted = [text.strip() for text in options.programs.split(";")] if options.programs else None
    if unknown := set(names) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}")
    header = f"jax {jax.__version__}, jaxlib {jaxlib.version.__version__} on {jax.default_backend()}\n"
    rows: list[Row] = []
    if options.given:
        header, rows = _read(options.given)
    for name in names if not options.given else ():
        rounds = 0 if options.quick else options.rounds
        rows += measure(MODELS[name], options.policies.split(","), rounds, wanted)
        if options.json:
            _write(options.json, header, rows)
    print(header, summary(rows), sep="\n")
    if options.tables:
        measured = dict.fromkeys(row.model for row in rows)
        tables = [table(MODELS[name], [row for row in rows if row.model == name]) for name in measured]
        options.tables.write_text("\n".join((header, *tables)))


if __name__ == "__main__":
    main()
