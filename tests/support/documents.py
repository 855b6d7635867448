"""The Markdown files as programs: their examples, what these print, and the tables that follow from the code.

    python -m tests.support.documents                check README.md, CONTRIBUTING.md and docs/, in place of the tests
    python -m tests.support.documents --write        bring printed text and generated tables up to date

- All ```python blocks of a file are one program, run from top to bottom. A ```text block right after one holds what
  it prints; a block without one prints nothing.
- In a ```console block `$ remat-compile ...` and `$ python ...` are run in the repository, and print what follows.
- `...` stands for anything in a line, alone on a line for any lines. Times are never compared.
- Comments right before a block: `<!-- not run: why -->`; `<!-- file: path -->`, the block stands in that file;
  `<!-- measured: jaxlib 0.10 -->`, what follows has figures of XLA: they are compared within a tenth where that
  jaxlib is installed, and not at all elsewhere; `<!-- printed by: jaxlib 0.10 -->`, another jaxlib says something else;
  `<!-- needs: flax, optax -->`, the block is run only where these packages are installed.
- Between `<!-- begin ops -->` and `<!-- end ops -->` stands what `TABLES["ops"]` gives.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

from tests.support.document_tables import TABLES

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
#: Tested with the command (tests/cli/test_documentation.py).
ELSEWHERE = {ROOT / "docs" / "command.md"}

_BLOCK = re.compile(r"^((?:<!-- [^\n]*? -->\n)*)```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"<!-- (\w+(?: \w+)?): (.*?) -->")
_TABLE = re.compile(r"(<!-- begin (\w+) -->\n)(.*?)(<!-- end \2 -->)", re.DOTALL)
_TIME = re.compile(r"\d[\d.]* (?:us|ms|s)\b|median of \d+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: after the fence.
        text: between the fences.
        line: of the first line of the text, from 1.
        start: offset of the text in the file.
        directives: the comments before it.
        follows: whether nothing but blank lines stands between it and the block before.
    """

    language: str
    text: str
    line: int
    start: int
    directives: dict[str, str]
    follows: bool


@dataclass(frozen=True, slots=True)
class Example:
    """Something that is run.

    Attributes:
        file: where it stands.
        source: the code or the command.
        line: of the source in the file, from 1.
        expected: what it should print; None where no block shows it.
        quoted: path of the file that the source is a part of, if any.
        missing: packages that it needs and that are not installed.
    """

    file: Path
    source: str
    line: int
    expected: Block | None
    quoted: str | None = None
    missing: tuple[str, ...] = ()


def blocks(file: Path) -> list[Block]:
    """All fenced blocks of a file."""
    text = file.read_text(encoding="utf-8")
    found, end = [], 0
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(3)) + 1
        follows = not text[end : match.start()].strip()
        directives = dict(_DIRECTIVE.findall(match[1]))
        found.append(Block(match[2], match[3], line, match.start(3), directives, follows))
        end = match.end()
    return found


def python_examples(file: Path) -> list[Example]:
    """The ```python blocks of a file that are run, each with the ```text block after it."""
    found = []
    every = blocks(file)
    for block, after in zip_longest(every, every[1:]):
        if block.language == "python" and "not run" not in block.directives:
            is_output = after is not None and after.language == "text" and after.follows
            output = after if is_output else None
            found.append(
                Example(file, block.text, block.line, output, block.directives.get("file"), missing(block.directives))
            )
    return found


def missing(directives: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that a block needs and that are not installed."""
    needed = filter(None, directives.get("needs", "").split(", "))
    return tuple([name for name in needed if importlib.util.find_spec(name) is None])


def console_examples(file: Path) -> list[Example]:
    """The commands in ```console blocks that are run, each with its output as a block of its own."""
    found = []
    for block in blocks(file):
        if block.language != "console" or "not run" in block.directives:
            continue
        for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            line = block.line + block.text.count("\n", 0, match.start(2))
            output = Block("text", match[2], line, block.start + match.start(2), block.directives, True)
            found.append(Example(file, match[1], line - 1, output))
    return found


# -- running -----------------------------------------------------------------------------------------------------------


def line_in(file: Path, part: str) -> int:
    """The line of a file where a part of it begins. Raises AssertionError where the file has no such part."""
    before, found, _ = file.read_text(encoding="utf-8").partition(part)
    assert found, f"{file.relative_to(ROOT)} does not contain\n{part}"
    return before.count("\n") + 1


# A process of its own for each file: some register ops. `__main__` is where dataclasses look up their annotations.
_RUNNER = """
import contextlib, io, json, sys
printed = []
for name, line, source in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\\n" * (line - 1) + source, name, "exec"), globals())
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def environment() -> dict[str, str]:
    """The environment of a process that imports rematc from this checkout. XLA optimizes in it as it does for users."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    plain = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "NO_COLOR": "1", "XLA_FLAGS": ""}
    return {**os.environ, **plain}


def run_python(file: Path) -> list[str]:
    """What each python example of a file prints, "" where its packages are missing. Raises AssertionError if one fails.

    They run in a folder that has nothing but the repository's own folders, so that they may write files.
    """
    name, line, sources = f"{file.stem.lower()}.py", 1, []
    for example in python_examples(file):
        if example.missing:
            sources.append((name, line, ""))
        elif example.quoted is None:
            sources.append((name, line, example.source))
            line += example.source.count("\n")
        else:
            sources.append((Path(example.quoted).name, line_in(ROOT / example.quoted, example.source), example.source))
    with tempfile.TemporaryDirectory() as folder:
        for shown in ("docs", "examples"):
            (Path(folder) / shown).symlink_to(ROOT / shown)
        result = subprocess.run(
            [sys.executable, "-c", _RUNNER],
            check=False,
            input=json.dumps(sources),
            capture_output=True,
            text=True,
            env=environment(),
            cwd=folder,
        )
    assert result.returncode == 0, result.stderr
    printed: list[str] = json.loads(result.stdout)
    return printed


def run_console(example: Example) -> str:
    """What a command prints. Raises AssertionError if it fails."""
    command, *filters = example.source.split(" | ")
    program, *arguments = shlex.split(command)
    programs = {"remat-compile": ["-m", "rematc"], "python": []}
    assert program in programs, f"{program} is not run here; give the block a comment <!-- not run: why -->"
    result = subprocess.run(
        [sys.executable, *programs[program], *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    if not filters:
        return result.stdout
    piped = " | ".join(filters)
    return subprocess.run(piped, shell=True, input=result.stdout, capture_output=True, text=True, check=True).stdout


# -- comparing ---------------------------------------------------------------------------------------------------------


def mismatch(example: Example, printed: str) -> str:
    """How an example's output differs from what the file shows; "" if it does not, or was not run."""
    if example.missing:
        return ""
    expected = example.expected
    if expected is None:
        return f"prints what no ```text block shows:\n{printed}" if printed else ""
    alone = expected.directives.get("printed by")
    if alone is not None and not _is_installed(alone):
        return ""
    measured = expected.directives.get("measured", alone)
    pattern = re.compile(_pattern(expected.text, is_measured=measured is not None))
    match = pattern.fullmatch(_normal(printed))
    if match is None:
        return f"prints\n{printed}\nexpected\n{expected.text}"
    if measured is None or not _is_installed(measured):
        return ""
    shown = [number for line in _normal(expected.text).splitlines() for number in _numbers(line)]
    apart = [
        f"{found} instead of {number}"
        for number, found in zip(shown, match.groups(), strict=True)
        if abs(float(found) - float(number)) > _TOLERANCE * float(number)
    ]
    return f"prints {', '.join(apart)}:\n{printed}" if apart else ""


def _is_installed(release: str) -> bool:
    package, number = release.split()
    return version(package).startswith(f"{number}.")


def _normal(text: str) -> str:
    """The text without trailing blanks, runs of blanks inside a line as one; leading blanks stay."""
    lines = [re.sub(r"(?<=\S) +", " ", line.rstrip()) for line in text.rstrip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _numbers(line: str) -> list[str]:
    return [] if line.strip() == "..." else _NUMBER.findall(_TIME.sub("", line))


def _pattern(text: str, *, is_measured: bool) -> str:
    """The text as a regular expression, with a group for each figure where it is measured."""
    parts = []
    for line in _normal(text).splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        pieces = re.split(rf"({_TIME.pattern}|\.\.\.|{_NUMBER.pattern})", line)
        parts.append("".join(_piece(piece, is_measured) for piece in pieces) + "\n")
    return "".join(parts)


def _piece(piece: str, is_measured: bool) -> str:
    if piece == "...":
        return ".*"
    if _TIME.fullmatch(piece):
        return f"(?:{_TIME.pattern})"
    if is_measured and _NUMBER.fullmatch(piece):
        return f"({_NUMBER.pattern})"
    return re.escape(piece)


# -- the command -------------------------------------------------------------------------------------------------------


def stale_tables(file: Path) -> Iterator[tuple[str, str, str]]:
    """(name, what stands there, what should) of each generated table that is out of date."""
    for match in _TABLE.finditer(file.read_text(encoding="utf-8")):
        table = TABLES[match[2]]()
        if match[3].strip() != table.strip():
            yield match[2], match[3], table


def write_tables(file: Path) -> None:
    """Bring the generated tables of a file up to date."""
    text = file.read_text(encoding="utf-8")
    new = _TABLE.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[4]}", text)
    if new != text:
        file.write_text(new, encoding="utf-8")


def check(file: Path, *, write: bool) -> int:
    """Print what differs from what a file shows, and on request replace it; the number of differences."""
    if write:
        write_tables(file)
    stale = [name for name, _, _ in stale_tables(file)]
    for name in stale:
        print(f"{file.relative_to(ROOT)}: the table '{name}' is out of date")
    examples = python_examples(file)
    count = _compare(examples, run_python(file) if examples else [], write=write)
    # Read anew: the commands stand elsewhere if what comes before them has changed.
    commands = console_examples(file)
    return len(stale) + count + _compare(commands, [run_console(one) for one in commands], write=write)


def _compare(examples: Sequence[Example], outputs: Sequence[str], *, write: bool) -> int:
    """Print what differs, and on request replace it where nothing is left out."""
    pairs = zip(examples, outputs, strict=True)
    differing = [(one, printed, problem) for one, printed in pairs if (problem := mismatch(one, printed))]
    # From the end, so that the offsets before it stay true.
    for example, printed, problem in reversed(differing):
        block = example.expected
        print(f"{example.file.relative_to(ROOT)}:{example.line}: {problem}\n")
        if write and block is not None and "..." not in block.text:
            text = example.file.read_text(encoding="utf-8")
            plain = "".join(f"{line.rstrip()}\n" for line in printed.rstrip("\n").splitlines())
            new = text[: block.start] + plain + text[block.start + len(block.text) :]
            example.file.write_text(new, encoding="utf-8")
    return len(differing)


def main(arguments: Sequence[str]) -> int:
    """Check the files named, or all of them."""
    named = [Path(argument).resolve() for argument in arguments if argument != "--write"]
    files = named or [file for file in FILES if file not in ELSEWHERE]
    count = sum(check(file, write="--write" in arguments) for file in files)
    print(f"{count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
