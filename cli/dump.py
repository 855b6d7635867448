"""What `--dump` writes: the program at every stage, and a page that describes the files."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rematc.cli.emission import stablehlo_text
from rematc.cli.folders import INDEX, MARK, whole_folder, write_text
from rematc.cli.measurement import Run
from rematc.cli.printing import facts, json_text, subject
from rematc.cli.report import report_as_dict, report_tables
from rematc.cli.step import TrainingStep
from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.reports.html.vega import has_library
from rematc.compiler.reports.profile import Profile
from rematc.compiler.reports.report import Report
from rematc.ir.core import Graph
from rematc.ir.printer import print_graph
from rematc.ir.tables import plain_text
from rematc.ir.traversal import all_equations
from rematc.ir.units import counted, format_bytes

#: Of each stage of `rematc.compiler.reports.inspection.Inspection`, its file, and what it is.
_STAGES = {
    "primal": ("primal.ir", "the function as traced, under its policy"),
    "linear": ("linear.ir", "its linear graph: residuals and tangents to the tangent of the result"),
    "forward": ("forward.ir", "the forward graph: the result, then the residuals"),
    "backward": ("backward.ir", "the backward graph: residuals and the cotangent of the result to the gradients"),
    "ir": ("graph.ir", "the training step after all passes: its values are those that XLA's instructions name"),
    "plan": ("plan.txt", "what the plan takes, and what it computes again where"),
    "stablehlo": ("stablehlo.mlir", "the training step in StableHLO: what XLA is given"),
    "hlo": ("hlo.txt", "what XLA makes of it before its passes"),
    "hlo-optimized": ("hlo-optimized.txt", "what XLA runs; op_name says the phase, the function and the equation"),
    "buffers": ("buffers.txt", "where in memory XLA puts each value, and from when to when"),
}


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the folder: its name, what it is, its size in bytes."""

    name: str
    what: str
    size: int


@dataclass(frozen=True, slots=True)
class Dump:
    """What was written: how many files, and their bytes."""

    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a step: the program, the report, and what running it gave."""

    compiled: Compiled
    report: Report
    run: Run | None
    profile: Profile | None


def write_dump(step: TrainingStep, folder: Path, measured: Measured, policy: str) -> Dump:
    """Write the folder, whole or not at all. Raises CompileError where it cannot be written."""
    with whole_folder(folder) as made:
        sections = {
            "The report": list(_report_files(step, made, measured, policy)),
            "The program at each stage": list(_stage_files(step, made, measured)),
            "The graph after each pass": _pass_files(step, made),
        }
        page = _page(subject(step), policy, sections)
        files = [file for section in sections.values() for file in section]
        size = sum(file.size for file in files) + write_text(made, INDEX, page)
    return Dump(len(files) + 1, size)


def _report_files(step: TrainingStep, folder: Path, measured: Measured, policy: str) -> Iterator[_File]:
    report, run, profile = measured.report, measured.run, measured.profile
    text = plain_text(report_tables(subject(step), policy, report, run, profile))
    yield _File("report.txt", "as the command prints it into a pipe", write_text(folder, "report.txt", text))
    document = report_as_dict(report, run, facts(step) | {"policy": step.options.policy}, profile)
    yield _File("report.json", "as --json prints it", write_text(folder, "report.json", json_text(document) + "\n"))
    if has_library():
        page = report.to_html(subject(step), policy)
        yield _File("report.html", "as a page with pictures", write_text(folder, "report.html", page))


def _stage_files(step: TrainingStep, folder: Path, measured: Measured) -> Iterator[_File]:
    compiled, report = measured.compiled, measured.report
    assert report.inspection is not None, "a program compiled here can be looked into"
    texts = report.inspection.stages() | {"stablehlo": stablehlo_text(step, compiled.lowered)}
    for stage, (name, what) in _STAGES.items():
        if stage in texts:
            yield _File(name, what, write_text(folder, name, texts[stage]))
    if compiled.plan is not None:
        text = compiled.plan.to_json()
        yield _File("plan.json", "the plan as --plan reads it", write_text(folder, "plan.json", text))


def _pass_files(step: TrainingStep, folder: Path) -> list[_File]:
    files: list[_File] = []

    def write(text: str, graph: Graph) -> None:
        name = f"passes/{len(files):02}-{re.sub(r'[^A-Za-z0-9_]+', '-', text).strip('-')[:60]}.ir"
        count = counted(sum(1 for _ in all_equations(graph)), "equation")
        files.append(_File(name, f"after {text}: {count}", write_text(folder, name, print_graph(graph))))

    step.lower_watched(write)
    return files


# -- the page ----------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --soft: light-dark(#5b6470, #a0a9b4); --rule: light-dark(#d9dde3, #363d46); }
body { margin: 0 auto; max-width: 960px; padding: 20px 24px 60px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 28px 0 6px; }
p, .size { color: var(--soft); } table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--rule); padding: 4px 16px 4px 0; vertical-align: top; }
td:first-child { font-family: ui-monospace, monospace; font-size: 13px; overflow-wrap: anywhere; }
.size { text-align: right; white-space: nowrap; padding-right: 0; }
"""


def _page(title: str, policy: str, sections: dict[str, list[_File]]) -> str:
    body = "\n".join(_section(heading, files) for heading, files in sections.items() if files)
    return (
        f'{MARK}\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f"<h1>{html.escape(title)}</h1>\n<p>policy {html.escape(policy)}</p>\n{body}\n</html>\n"
    )


def _section(heading: str, files: list[_File]) -> str:
    rows = "\n".join(
        f'<tr><td><a href="{html.escape(file.name)}">{html.escape(file.name)}</a></td>'
        f'<td>{html.escape(file.what)}</td><td class="size">{format_bytes(file.size)}</td></tr>'
        for file in files
    )
    return f"<h2>{html.escape(heading)}</h2>\n<table>\n{rows}\n</table>"
