"""What takes less memory than a policy that saves none, or little: measured, where the command knows what to try."""

from __future__ import annotations

import dataclasses

from rematc.cli.step import TrainingStep
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.saving import SAVES, Saving
from rematc.ir.units import format_bytes, format_ratio

#: The barriers that hold whatever order XLA on the CPU takes.
_STRATEGY = "call"
_COMPARE = "measure other policies with --compare none,auto,dots,nothing"


def with_alternatives(step: TrainingStep, report: Report) -> Report:
    """The report, its way out of a policy that saves nothing or little in the command's terms.

    The step is compiled once more, with the other barriers, unless the command line chooses them, or `-q` asks for
    speed.
    """
    check = report.check
    if step.options.is_planned or check is None or check.saving is None or check.saving.verdict == SAVES:
        return report
    saving = dataclasses.replace(check.saving, way_out=_way_out(step, report.target, check.saving))
    return dataclasses.replace(report, check=dataclasses.replace(check, saving=saving))


def _way_out(step: TrainingStep, target: str, saving: Saving) -> str:
    ways = ["leave out --policy"] if saving.is_in_vain else []
    if target == "cpu" and step.options.passes is None and step.options.barrier == "auto" and not step.options.quiet:
        compiled = step.compile(step.lower_with_barriers(_STRATEGY), f" with --barrier {_STRATEGY}")
        amount = compiled.memory().temp_bytes
        is_least = amount < min(saving.temp_bytes, saving.without_bytes)
        is_least = is_least and format_bytes(amount) != format_bytes(saving.temp_bytes)  # by more than padding
        measured = f"{format_bytes(amount)} ({format_ratio(amount, saving.without_bytes)})"
        ways = [f"--barrier {_STRATEGY} takes {measured}{'' if is_least else ', no less'}", *([] if is_least else ways)]
    return "; ".join([*ways, _COMPARE])
