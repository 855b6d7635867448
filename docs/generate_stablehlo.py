"""Write the table of operations in docs/stablehlo.md, from the importer's registry.

    python docs/generate_stablehlo.py [--check]

`--check` writes nothing and exits with 1 if the page is not up to date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rematc.compiler.frontends.stablehlo import importing
from rematc.compiler.frontends.stablehlo.block import REASONS, RULES

PAGE = Path(__file__).parents[1] / "docs/stablehlo.md"
BEGIN, END = "<!-- operations: written by docs/generate_stablehlo.py -->", "<!-- end of operations -->"


def operations() -> dict[str, list[str]]:
    """The operations of each dialect that are known, sorted; a test compares them with the dialects in jaxlib."""
    assert importing.FAMILIES  # which have entered their rules
    known = sorted({*RULES, *REASONS})
    return {
        title: [name for name in known if name.startswith(prefix)]
        for title, prefix in (("StableHLO", "stablehlo."), ("CHLO", "chlo."))
    }


def table() -> str:
    """What is imported, and why the rest is not, as Markdown."""
    lines = []
    for title, names in operations().items():
        known = [name.partition(".")[2] for name in names if name in RULES]
        lines += [f"{title}, {len(known)} of {len(names)} operations: {', '.join(f'`{name}`' for name in known)}.", ""]
    lines += ["| not imported | why |", "| --- | --- |"]
    reasons: dict[str, list[str]] = {}
    for names in operations().values():
        for name in names:
            if name not in RULES:
                reasons.setdefault(REASONS[name], []).append(name)
    lines += [f"| {', '.join(f'`{name}`' for name in group)} | {reason} |" for reason, group in reasons.items()]
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its table up to date."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if the page is not up to date")
    given = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if given.check:
        return int(text != page(text))
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
