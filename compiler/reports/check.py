"""The check: whether the program that XLA runs still recomputes what was planned, and what memory it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rematc.compiler.reports.comparison import Comparison, compare_modules
from rematc.compiler.reports.differentiation import Differentiation
from rematc.compiler.reports.saving import SAVES, Saving
from rematc.compiler.reports.slices import SlicesReport
from rematc.ir.units import format_bytes
from rematc.lowering.runtime import Executable
from rematc.passes.accounting import Iterated, split_backward
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.planning.plan import Plan

#: The verdicts.
KEPT, NOTHING, UNDONE, UNKNOWN = "kept", "no product recomputed", "undone", "cannot tell"


@dataclass(frozen=True, slots=True)
class Check:
    """Planned and found.

    Attributes:
        verdict: one of `KEPT`, `NOTHING`, `UNDONE`, `UNKNOWN`.
        message: the verdict as a sentence.
        way_out: what to do about it; "" where nothing needs to be done.
        comparison: the products of the module that XLA was given and of the one that it runs.
        barriers: optimization barriers in the program.
        temp_bytes: temporary memory, as XLA reports it.
        predicted_bytes: what the plan predicted for it; None where it made no prediction.
        saving: what the policy saves; None where nothing is recomputed, or the program was not compiled without it.
    """

    verdict: str
    message: str
    way_out: str
    comparison: Comparison
    barriers: int
    temp_bytes: int
    predicted_bytes: int | None = None
    saving: Saving | None = None

    @property
    def is_broken(self) -> bool:
        """Whether XLA undid some of the plan. What is kept may save nothing all the same: see `is_in_vain`."""
        return self.verdict == UNDONE

    @property
    def is_in_vain(self) -> bool:
        """Whether the program was measured to take as much memory as without the policy, or more."""
        return self.saving is not None and self.saving.is_in_vain

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a sentence with its way out: recomputation is undone, or kept and saves no memory."""
        if self.is_broken:
            return (f"{self.message}; {self.way_out}",)
        if self.saving is not None and self.saving.is_in_vain:
            return ("; ".join(filter(None, [self.saving.message, self.saving.way_out])),)
        return ()

    @property
    def in_short(self) -> str:
        """`kept`, or what was undone: `12 of 24 merged`; and what is wrong with memory: `kept, costs memory`."""
        if self.verdict == UNDONE and self.comparison.merged and self.comparison.barriers:
            return f"{self.comparison.merged} of {self.comparison.recomputed} merged"
        if self.is_broken or self.saving is None or self.saving.verdict == SAVES:
            return self.verdict
        return f"{self.verdict}, {self.saving.verdict}"

    def __str__(self) -> str:
        lines = [self.message, *[f"  {row}" for row in self.comparison.where]]
        if self.way_out:
            lines.append(f"  {self.way_out}")
        memory = f"  temporary memory {format_bytes(self.temp_bytes)}"
        if self.predicted_bytes is not None:
            memory += f", predicted {format_bytes(self.predicted_bytes)}"
            if self.temp_bytes:
                memory += f" ({self.predicted_bytes / self.temp_bytes:.2f} of it)"
        lines.append(memory)
        if self.saving is None and self.verdict in (KEPT, UNKNOWN):
            lines.append("  not compared with the program without a policy: check(baseline) says what is saved")
        elif self.saving is not None:
            lines.append(f"  {self.saving.message}")
            if self.saving.way_out:
                lines.append(f"  {self.saving.way_out}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The check as JSON-able data."""
        data = asdict(self)
        data["comparison"]["where"] = [
            {"product": row.product, "source": None if row.source is None else str(row.source)}
            | {"merged": row.count, "planned": row.planned}
            for row in self.comparison.where
        ]
        return {**data, "saving": None if self.saving is None else self.saving.as_dict()}


def check_executable(
    executable: Executable,
    records: Sequence[object],
    predicted_bytes: int | None = None,
    saving: Saving | None = None,
    plan: Plan | None = None,
) -> Check:
    """Check a program against what XLA made of it.

    Args:
        executable: the compiled program.
        records: the differentiations in it (`Differentiation`), which say what was to be recomputed.
        predicted_bytes: temporary memory that the plan predicts.
        saving: what the policy, or the plan, saves, where that was measured.
        plan: what of the program is computed again for a budget.
    """
    comparison = compare_modules(executable.hlo_with_lines(), executable.hlo_optimized())
    barriers = executable.program.module.barriers
    flat, looped = _products_to_recompute(records)
    if plan is not None:
        flat, looped = flat + plan.work.products, looped + plan.work.looped
    verdict, message, way_out = judge(comparison, 0 if comparison.barriers else flat, looped)
    if plan is not None:
        again = plan.work.products + plan.work.looped
        message = f"{message}; the plan runs {again} {_products(again)} again"
        way_out = _PLAN_WAY_OUT if verdict == UNDONE else way_out
    temp = executable.memory().temp_bytes
    return Check(verdict, message, way_out, comparison, barriers, temp, predicted_bytes, saving)


def judge(comparison: Comparison, wanted: int = 0, looped: int = 0) -> tuple[str, str, str]:
    """Verdict, sentence and way out.

    Args:
        comparison: what was planned and found.
        wanted: products that a plan was to recompute outside loops, in a program with nothing that keeps them apart.
        looped: products that a plan was to recompute in loops, where XLA merges nothing.
    """
    if comparison.unread:
        way_out = "compare `--emit stablehlo` with `--emit hlo-optimized` by eye, and report this text of XLA's"
        return UNKNOWN, f"could not read what XLA made of the program: {comparison.unread}", way_out
    if wanted:
        message = f"{wanted} recomputed {_products(wanted)} merged with the forward pass: nothing keeps them apart"
        return UNDONE, message, "take the pass barriers with its default strategy: leave out --barrier and --passes"
    if comparison.merged:
        message = (
            f"XLA merged {comparison.merged} of {comparison.recomputed} recomputed {_products(comparison.recomputed)}"
        )
        return UNDONE, message, _WAY_OUT
    notes = _notes(comparison)
    if looped and not comparison.recomputed:  # in loops whose state was not understood
        counts = f"{comparison.planned} products planned, {comparison.found} executed"
        return KEPT, f"kept: recomputation in loops, where XLA merges nothing; {counts}{notes}", ""
    if not comparison.recomputed:
        return NOTHING, f"no product is recomputed; {comparison.found} executed{notes}", ""
    count = comparison.recomputed
    if comparison.unseen == count:
        reason = "XLA computes such products, most of them with vectors, in other forms"
        return UNKNOWN, f"cannot tell whether {count} recomputed {_products(count)} were kept: {reason}", ""
    where = ""
    if comparison.looped:
        where = " in loops" if comparison.looped == count else f", {comparison.looped} of them in loops"
    if comparison.unseen:
        others = f"; whether {comparison.unseen} of them were cannot be told: XLA computes these in other forms"
        notes = f"{others}{notes}"
    return KEPT, f"kept: {count} recomputed {_products(count)}{where}, {comparison.found} executed in all{notes}", ""


_WAY_OUT = (
    "XLA undoes here what the strategy of the pass barriers counts on: try another one "
    "(--passes 'barriers{strategy=call},simplify,cse,dce') or another jaxlib, and report it"
)

_PLAN_WAY_OUT = "XLA undoes here what the barriers of the plan count on: try another jaxlib, and report it"


def _products(count: int) -> str:
    return "product" if count == 1 else "products"


def _notes(comparison: Comparison) -> str:
    notes = ""
    if comparison.rewritten:
        notes += f"; XLA computes {comparison.rewritten} planned {_products(comparison.rewritten)} in another form"
    if comparison.duplicated:
        notes += f"; XLA computes {comparison.duplicated} more than planned"
    if comparison.unknown_loops:
        notes += f"; {comparison.unknown_loops} loops of unknown length counted once"
    return notes


def _products_to_recompute(records: Sequence[object]) -> tuple[int, int]:
    """Products that derivatives repeat outside loops, where only a barrier keeps XLA from merging them, and inside."""
    flat = looped = 0
    if any(isinstance(record, SlicesReport) for record in records):
        return 0, 0  # what of them the loop of slices computes once is not known
    for record in records:
        if isinstance(record, Differentiation):
            backward = DeadCode().run(CommonSubexpressions().run(record.vjp.backward))
            is_ct = [index >= len(record.vjp.residuals) for index in range(len(backward.params))]
            for counted in split_backward(backward, is_ct).recomputed:
                if isinstance(counted, Iterated):
                    looped += counted.times if counted.op.is_product else 0
                else:
                    flat += counted.op.is_product
    return flat, looped
