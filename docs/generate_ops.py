"""Write docs/ops.md: every op by rule, from the registry, with what it is in StableHLO.

    python docs/generate_ops.py [--check]

`--check` writes nothing and exits with 1 if the page is not up to date.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.elementwise import StepBinary, StepUnary
from rematc.ir.registry import OPS
from rematc.lowering.module import stablehlo_text
from rematc.lowering.writer import RULES as WRITTEN
from rematc.passes.legalize.rules import RULES as EXPANDED

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.document_tables import family_of  # noqa: E402  # it is not installed
from tests.support.samples import families, graph_of  # noqa: E402  # as above

PAGE = ROOT / "docs/ops.md"
HEAD = """\
# The ops

Written by `python docs/generate_ops.py` from the registry; a test compares.

Every op has the rules `infer` (types), `reference` (its meaning in NumPy) and a lowering to StableHLO; an op without
one of them does not register or fails the tests. The other rules each have a column: **yes**, **0** where the
derivative is zero wherever it exists, or a dash, with the reason below the table. `flops` without a rule counts no
floating-point operations. An op with a rule for `transpose` is linear in one operand at a time. Kernels of libraries
are those for CPUs; decompositions have others elsewhere. Of ops that the pass `legalize` expands, the ops of their
expansion are named.
"""
#: Ops whose lowering no sample shows.
_ELSEWHERE = {
    "call": "`func.call` of a private function",
    "checkpoint": "dissolved by the pass `barriers`, into `stablehlo.optimization_barrier` and the body",
    "to_memory": "`stablehlo.custom_call @annotate_device_placement`",
    "scan": "`stablehlo.while` with the body inside",
    "while": "`stablehlo.while`",
    "case": "`stablehlo.case`",
    **dict.fromkeys(("axis_sum", "axis_max", "axis_min", "axis_gather"), "none: `vmap` over the axis replaces it"),
    "axis_index": "`stablehlo.partition_id` where devices compute by themselves; `vmap` over the axis replaces it",
    "device_exchange": "`stablehlo.all_to_all`",
    "device_extremum": "`stablehlo.all_reduce`",
    "device_gather": "`stablehlo.all_gather`",
    "device_permute": "`stablehlo.collective_permute`",
    "device_scatter": "`stablehlo.reduce_scatter`",
    "device_sum": "`stablehlo.all_reduce`",
    "device_vary": "no op",
    "device_map": "`func.call` of a function with `sdy.manual_computation`",
    **dict.fromkeys(
        ("full_to_shard", "shard_to_full"), "operands and results of the `sdy.manual_computation` that is made of them"
    ),
    "manual_computation": "`sdy.manual_computation`",
}
_EMITTED = re.compile(r"stablehlo\.custom_call @[\w$.]+|(?:stablehlo|chlo)\.[a-z_0-9]+(?=[\s\"(]|$)")
_PLUMBING = frozenset({"stablehlo.constant", "stablehlo.return", "stablehlo.convert", "stablehlo.reshape"})
_SHOWN = 5
RULE_NAMES = ("jvp", "transpose", "vmap")


def ops_by_family() -> dict[str, list[type[Op]]]:
    """The package's ops, by the file that they stand in."""
    families()  # enters all of them
    found: dict[str, list[type[Op]]] = {}
    for cls in OPS.values():
        if cls.__module__.startswith("rematc."):
            found.setdefault(family_of(cls), []).append(cls)
    return dict(sorted(found.items()))


def reason_against(cls: type[Op], rule: str) -> str:
    """Why an op has no rule; "" where it has one, which a more derived class may have brought."""
    reason: str = getattr(cls, f"no_{rule}")
    brings_rule, brings_reason = ([name in vars(base) for base in cls.__mro__] for name in (rule, f"no_{rule}"))
    return reason if brings_reason.index(True) <= brings_rule.index(True) else ""


def cell(cls: type[Op], rule: str) -> str:
    """What a table says of a rule of an op."""
    if reason_against(cls, rule):
        return "–"
    if rule == "jvp" and issubclass(cls, (StepUnary, StepBinary)):
        return "0"
    has_rule = getattr(cls, rule) is not getattr(Op, rule)
    return "yes" if has_rule else "**missing**"


def lowered_names() -> dict[str, list[str]]:
    """For each op the StableHLO ops that its samples become, most telling first."""
    found: dict[str, dict[str, None]] = {}
    for samples in families().values():
        for sample in samples:
            names = found.setdefault(sample.op.name, {})
            if len(names) < 12:
                names.update(dict.fromkeys(_emitted(graph_of(sample.op, sample.types))))
    return {name: _telling(name, list(names)) for name, names in found.items()}


def _emitted(graph: Graph) -> Iterator[str]:
    try:
        text = stablehlo_text(graph)
    except CompileError:
        return
    yield from _EMITTED.findall(text)


def _telling(name: str, names: list[str]) -> list[str]:
    exact = [found for found in names if found.split(".", 1)[1] == name]
    if exact:
        return exact[:1]
    return [found for found in names if found not in _PLUMBING] or names


def stablehlo_cell(cls: type[Op], names: dict[str, list[str]]) -> str:
    """What an op is in StableHLO."""
    if cls.name in _ELSEWHERE:
        return _ELSEWHERE[cls.name]
    if cls not in WRITTEN and cls not in EXPANDED:
        return "**missing**"
    found = names.get(cls.name, [])
    if not found:
        return "no op"
    shown = ", ".join([f"`{name}`" for name in found[:_SHOWN]])
    return f"{shown} and {len(found) - _SHOWN} more" if len(found) > _SHOWN else shown


def family_section(family: str, ops: Sequence[type[Op]], names: dict[str, list[str]]) -> str:
    """Heading, table and reasons of a family."""
    module = importlib.import_module(ops[0].__module__)
    summary = (inspect.getdoc(module) or "").split("\n\n")[0].replace("\n", " ")
    rows = [
        f"| `{cls.name}` | {_fields(cls)} | {stablehlo_cell(cls, names)} | "
        + " | ".join([cell(cls, rule) for rule in RULE_NAMES])
        + f" | {'yes' if cls.flops is not Op.flops else '–'} |"
        for cls in ops
    ]
    table = "\n".join(
        ["| op | fields | StableHLO | jvp | transpose | vmap | flops |", "|---|---|---|---|---|---|---|", *rows]
    )
    reasons = "\n".join(_reasons(ops))
    heading = f"## {family.replace('_', ' ').capitalize()}"
    path = f"{ops[0].__module__.removeprefix('rematc.').replace('.', '/')}.py"
    file = f"([{path}](../{path}))"
    return f"\n{heading}\n\n{summary}\n{file}\n\n{table}\n" + (f"\n{reasons}\n" if reasons else "")


def _fields(cls: type[Op]) -> str:
    fields = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]  # every op is a dataclass
    return ", ".join([f"`{name}`" for name in fields])


def _reasons(ops: Sequence[type[Op]]) -> Iterator[str]:
    """Why ops have no rule, those of one reason together."""
    found: dict[tuple[str, str], list[str]] = {}
    for cls in ops:
        for rule in RULE_NAMES:
            reason = reason_against(cls, rule)
            if reason:
                found.setdefault((rule, reason), []).append(f"`{cls.name}`")
    for (rule, reason), names in found.items():
        yield f"- {rule} of {', '.join(names)} {reason}."


def page() -> str:
    """The whole page."""
    families_found, names = ops_by_family(), lowered_names()
    count = sum(map(len, families_found.values()))
    sections = [family_section(family, ops, names) for family, ops in families_found.items()]
    return f"{HEAD}\n{count} ops in {len(families_found)} families.\n{''.join(sections)}"


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not up to date")
    options = parser.parse_args()
    text = page()
    if options.check:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("docs/ops.md is up to date" if is_current else "docs/ops.md is stale: run python docs/generate_ops.py")
        return 0 if is_current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
