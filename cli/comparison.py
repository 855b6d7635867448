"""`--compare`: the same training step under several policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.cli.measurement import median_times, runner
from rematc.cli.progress import interruptible
from rematc.cli.step import TrainingStep
from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.reports.check import Check
from rematc.compiler.reports.figures import Figures
from rematc.ir.errors import CompileError
from rematc.ir.tables import Table
from rematc.ir.units import format_bytes, format_flops, format_ratio, format_seconds
from rematc.passes.policies import parse_policy


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """One row of the comparison.

    Attributes:
        policy: the policy's text.
        saved_bytes: residuals between the forward and the backward graph.
        figures: what XLA says, and the memory that was predicted.
        check: whether XLA kept what was planned.
        median_seconds: run time of one step; None where nothing runs.
        error: why this policy cannot be compiled; then the others are None.
    """

    policy: str
    saved_bytes: int | None = None
    figures: Figures | None = None
    check: Check | None = None
    median_seconds: float | None = None
    error: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The row as JSON-able data."""
        figures = self.figures
        return {
            "policy": self.policy,
            "saved_bytes": self.saved_bytes,
            "temp_bytes": figures.temp_bytes if figures else None,
            "predicted_bytes": figures.predicted_bytes if figures else None,
            "flops": figures.flops if figures else None,
            "compile_seconds": figures.compile_seconds if figures else None,
            "median_seconds": self.median_seconds,
            "check": self.check.as_dict() if self.check else None,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows, in the order asked for; for what they were compiled; how many runs each median is of, 0 for none."""

    rows: tuple[ComparedPolicy, ...]
    target: str
    count: int

    def as_dict(self, facts: dict[str, object]) -> dict[str, object]:
        """The comparison as JSON-able data, `facts` about the command first."""
        return {
            **facts,
            "target": self.target,
            "runs": self.count,
            "policies": [row.as_dict() for row in self.rows],
        }

    def table(self, heading: str) -> Table:
        """The comparison as a table."""
        columns = ("policy", "saved", "temporary memory", "predicted", "FLOPs", "run time", "check")
        note = f"memory and FLOPs as XLA on {self.target} reports them; "
        note += (
            f"run time: median of {self.count}, in turns" if self.count else "not run, as the device need not be here"
        )
        right = (False, True, True, True, True, True, False)
        in_vain = [policy for policy, check in self.checks() if check.is_in_vain and not check.is_broken]
        if in_vain:
            ways = "--barrier call may, or another policy" if self.target == "cpu" else "another policy may"
            note += f"\n{', '.join(in_vain)}: no memory is saved; {ways}"
        return Table(heading, columns, right, tuple(_cells(row) for row in self.rows), note)

    def checks(self) -> list[tuple[str, Check]]:
        """The check of each policy that has one."""
        return [(row.policy, row.check) for row in self.rows if row.check is not None]


def _cells(row: ComparedPolicy) -> tuple[str, ...]:
    if row.saved_bytes is None or row.figures is None:
        return (row.policy, "-", "-", "-", "-", "-", "-")
    return (
        row.policy,
        format_bytes(row.saved_bytes),
        format_bytes(row.figures.temp_bytes),
        _predicted(row.figures),
        format_flops(row.figures.flops),
        "-" if row.median_seconds is None else format_seconds(row.median_seconds),
        "-" if row.check is None else row.check.in_short,
    )


def _predicted(figures: Figures) -> str:
    if figures.predicted_bytes is None:
        return "-"
    ratio = format_ratio(figures.predicted_bytes, figures.temp_bytes)
    return f"{format_bytes(figures.predicted_bytes)} ({ratio})"


def split_policies(texts: Sequence[str]) -> tuple[str, ...]:
    """The policies of one or several `--compare`, each once.

    A comma separates policies, except inside a list of names: after `names=a` a comma and `b` continue the list,
    unless `b` is itself a policy. So `none,names=a,b,dots` is `none`, `names=a,b` and `dots`.
    """
    policies: list[str] = []
    for text in texts:
        start = len(policies)
        for piece in map(str.strip, text.split(",")):
            is_in_names = len(policies) > start and "=" in policies[-1].rpartition("+")[2]
            if is_in_names and not is_policy(piece):
                policies[-1] += f",{piece}"
            elif piece:
                policies.append(piece)
    return tuple(dict.fromkeys(policies))


def is_policy(text: str) -> bool:
    """Whether the text is a policy as it stands. A user's function is one by its form; it is not loaded."""
    if text == "none" or ".py:" in text:
        return True
    try:
        parse_policy(text)
    except CompileError:
        return False
    return True


def compare(step: TrainingStep, policies: Sequence[str]) -> Comparison:
    """Compile the step under each policy, then run all of them in turns.

    A policy that cannot be compiled gets a row that says why. Raises CompileError where none can be compiled.
    """
    compiled: dict[str, Compiled] = {}
    failures: dict[str, CompileError] = {}
    for policy in policies:
        try:
            compiled[policy] = step.compile(step.lower(policy), f" with policy {policy}")
        except CompileError as error:
            failures[policy] = error
    if not compiled:
        raise next(iter(failures.values()))
    times, count = _run_times(step, list(compiled.values())) if step.is_run else ([], 0)
    measured = dict(zip(compiled, times, strict=bool(count)))
    rows = [
        ComparedPolicy(policy, error=str(failures[policy]))
        if policy in failures
        else _compared(
            policy, compiled[policy], measured.get(policy), None if policy == "none" else compiled.get("none")
        )
        for policy in policies
    ]
    return Comparison(tuple(rows), next(iter(compiled.values())).executable.target.name, count)


def _compared(policy: str, compiled: Compiled, seconds: float | None, baseline: Compiled | None) -> ComparedPolicy:
    return ComparedPolicy(policy, saved_bytes(compiled), compiled.figures(), compiled.check(baseline), seconds)


def saved_bytes(compiled: Compiled) -> int:
    """Residuals of all differentiations together."""
    return sum(one.saved_bytes for one in compiled.lowered.derivatives)


def _run_times(step: TrainingStep, compiled: Sequence[Compiled]) -> tuple[list[float], int]:
    functions: list[Callable[[], object]] = [runner(one, step.args) for one in compiled]
    with step.progress.phase(f"running {len(functions)} policies in turns"):
        return interruptible(lambda: median_times(functions))
