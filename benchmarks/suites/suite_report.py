"""What others' tests gave, against what is known of them; and docs/conformance.md, which says it."""

from __future__ import annotations

import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REPORT = ROOT / "docs" / "conformance.md"


@dataclass(frozen=True, slots=True)
class Section:
    """A suite's part of the report.

    Attributes:
        title: the suite's name.
        script: the script that runs it.
        expected: the list of tests that do not apply, and of those known to fail.
        required_share: how many of the applicable tests must pass.
    """

    title: str
    script: str
    expected: Path
    required_share: float

    @property
    def markers(self) -> tuple[str, str]:
        """The lines around the section in the report."""
        return (
            f"<!-- {self.title}: written by benchmarks/suites/{self.script} --write -->",
            f"<!-- end of {self.title} -->",
        )


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of single tests, each with its reason."""

    not_applicable: Mapping[str, str]
    failing: Mapping[str, str]

    @staticmethod
    def read(path: Path) -> Expected:
        """The table: under each heading, reasons and the names of tests."""
        table = tomllib.loads(path.read_text())

        def by_test(heading: str) -> dict[str, str]:
            return {name: entry["reason"] for entry in table.get(heading, []) for name in entry["tests"]}

        return Expected(by_test("not_applicable"), by_test("failing"))


def outcomes_of(log: Path) -> dict[str, str]:
    """The outcome of each test in a JUnit log: passed, failed or skipped."""
    return {_name(case): outcome_of(case) for case in ET.parse(log).getroot().iter("testcase")}


def _name(case: ET.Element) -> str:
    return f"{(case.get('classname') or '').split('.')[-1]}::{case.get('name')}"


def outcome_of(case: ET.Element) -> str:
    """The outcome of a case of a JUnit log: passed, failed or skipped."""
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def check(outcomes: Mapping[str, str], expected: Expected) -> list[str]:
    """What differs from the expectations, in words."""
    problems = []
    for name, outcome in sorted(outcomes.items()):
        if outcome == "failed" and name not in expected.failing and name not in expected.not_applicable:
            problems.append(f"{name} fails, which is not expected")
        if outcome == "passed" and name in expected.failing:
            problems.append(f"{name} passes: take it off the list of failures")
    for name in [*expected.failing, *expected.not_applicable]:
        if name not in outcomes:
            problems.append(f"{name} is listed, but there is no such test")
    return problems


def report(outcomes: Mapping[str, str], expected: Expected) -> tuple[str, float]:
    """The table of counts and the lists of names, as Markdown; and the share of applicable tests that pass."""
    applicable = {
        name: outcome
        for name, outcome in outcomes.items()
        if name not in expected.not_applicable and outcome != "skipped"
    }
    counts = Counter((name.split("::")[0], outcome) for name, outcome in applicable.items())
    files = sorted({name.split("::")[0] for name in outcomes})
    passed = sum(outcome == "passed" for outcome in applicable.values())
    share = passed / max(len(applicable), 1)
    lines = [
        f"{passed} of {len(applicable)} applicable tests pass ({100 * share:.1f} %); {len(outcomes)} tests in all.",
        "",
        "| file | pass | fail |",
        "|---|---|---|",
        *[f"| {file} | {counts[file, 'passed']} | {counts[file, 'failed']} |" for file in files],
        "",
        *_listed("Failing", expected.failing),
        *_listed("Not applicable", expected.not_applicable),
    ]
    return "\n".join(lines), share


def _listed(heading: str, reasons: Mapping[str, str]) -> list[str]:
    lines = [f"{heading}:", ""]
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(f"`{name}`" for name, given in reasons.items() if given == reason)
        lines.append(f"- {reason}: {names}")
    return [*lines, ""]


def write_section(text: str, section: Section) -> None:
    """Replace one suite's section of docs/conformance.md."""
    begin, end = section.markers
    before, rest = REPORT.read_text().split(begin)
    _, after = rest.split(end)
    REPORT.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")


def is_written(text: str, section: Section) -> bool:
    """Whether the report has this text for the suite."""
    begin, end = section.markers
    return f"{begin}\n\n{text}\n{end}" in REPORT.read_text()


def verify(outcomes: Mapping[str, str], section: Section, more: str = "") -> int:
    """Print only what is not as expected, the report's section included; 0 where nothing is. For CI.

    `more` stands at the end of the section.
    """
    expected = Expected.read(section.expected)
    text, share = report(outcomes, expected)
    text += more
    problems = check(outcomes, expected)
    if share < section.required_share:
        problems.append(f"{100 * share:.1f} % of the applicable tests pass; {100 * section.required_share:.0f} % must")
    if not is_written(text, section):
        problems.append(f"{REPORT.relative_to(ROOT)} is out of date: run {section.script} with --write")
    print("\n".join(problems) or f"{section.title}: as expected, {100 * share:.1f} % of the applicable tests pass")
    return 1 if problems else 0


def compare(outcomes: Mapping[str, str], section: Section, more: str = "", *, write: bool) -> int:
    """Print the report, `more`, and what is not as expected; 0 where everything is."""
    expected = Expected.read(section.expected)
    text, share = report(outcomes, expected)
    text += more
    print(text)
    if write:
        write_section(text, section)
    problems = check(outcomes, expected)
    print("\n".join(problems))
    return 1 if problems or share < section.required_share else 0
