"""What XLA makes of the gradient in two_layers.py, as docs/how-xla-undoes-remat.md shows it.

    python docs/undoing/show.py given     the products and barriers that XLA is given
    python docs/undoing/show.py passes    how many are left after each pass that changes their number
    python docs/undoing/show.py running   the products that run, in order, with what reads the forward pass's

Shapes stand without layouts, instructions without attributes, and what has no product in it is left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LAYOUT = re.compile(r"\{[\d,]+\}")
_PASS = re.compile(r"\.(\d{4})\.(.+)\.after_(.+?)(?:\.before_.*)?\.txt$")
_LINE = re.compile(r"^\s*(?:ROOT )?(%?[\w.\-]+ = .*)$")


def instructions(text: str) -> Iterator[str]:
    """The instructions of the module's entry, up to the end of their operands."""
    entry = text[re.search(r"^ENTRY", text, re.MULTILINE).start() :]  # type: ignore[union-attr]  # there is one
    for line in entry.splitlines()[1:]:
        if found := _LINE.match(line):
            yield _LAYOUT.sub("", found[1]).partition("), ")[0].rstrip(")") + ")"


def fusions_with_products(text: str) -> set[str]:
    """The computations that have a product in them."""
    found: set[str] = set()
    name = ""
    for line in text.splitlines():
        if header := re.match(r"^%?([\w.\-]+) .*\{$", line):
            name = header[1]
        elif " dot(" in line:
            found.add(name)
    return found


def given(text: str) -> None:
    """Print products and barriers."""
    for line in instructions(text):
        if " dot(" in line or " opt-barrier(" in line:
            print(line)


def running(text: str) -> None:
    """Print what has a product, in the order of the schedule."""
    computations = fusions_with_products(text)
    entry = text[re.search(r"^ENTRY", text, re.MULTILINE).start() :].splitlines()[1:]  # type: ignore[union-attr]
    for line, whole in zip(instructions(text), [one for one in entry if _LINE.match(one)], strict=True):
        called = re.search(r"calls=%?([\w.\-]+)", whole)
        if " dot(" in line or (called is not None and called[1] in computations):
            print(line)


def passes(folder: Path) -> None:
    """Print after which passes the module has other numbers of barriers and products."""
    before = (-1, -1)
    print(f"{'barriers':>8}  {'products':>8}  after")
    for file in sorted(folder.glob("*jit_loss.[0-9]*.after_*.txt")):
        text = file.read_text()
        counts = (text.count(" opt-barrier("), text.count(" dot("))
        found = _PASS.search(file.name)
        if counts != before and found is not None:
            where = "(as XLA is given it)" if found[3] == "pipeline-start" and before[0] < 0 else found[3]
            print(f"{counts[0]:>8}  {counts[1]:>8}  {where}")
        before = counts


def main() -> None:
    """Compile with dumps, and print what was asked for."""
    what = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*"
        sys.path.insert(0, str(Path(__file__).parent))
        from two_layers import step, weights, x  # noqa: PLC0415  # JAX reads the flags when it is imported

        lowered = step.lower(weights, x)
        compiled = lowered.compile()
        match what:
            case "given":
                given(lowered.as_text(dialect="hlo"))
            case "running":
                running(compiled.as_text())
            case "passes":
                passes(Path(folder))


if __name__ == "__main__":
    main()
