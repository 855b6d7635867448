"""Make the pictures of the README from what the commands print.

    python docs/make_images.py                everything; takes about two minutes
    python docs/make_images.py report         only docs/images/report.svg
    python docs/make_images.py page           only docs/images/page.png; needs a Chromium, and the extra rematc[test]
    python docs/make_images.py curve          only docs/images/curve.svg; takes minutes, needs rematc[cuda,html]

`report` is `remat-compile examples/transformer.py --policy dots` as it looks on a terminal; `memory` is a chart of what
`benchmarks/chain.py` prints with the jax that is installed; `page` is the top of the same report as `--html` writes it;
`curve` is what `benchmarks/slices.py --curve --target h100` prints, and is made only where it is named.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import vl_convert
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import headless, opened  # noqa: E402  # of the checkout, wherever this runs

IMAGES = ROOT / "docs" / "images"
WIDTH = 104  # columns of the terminal

BAR, GAP, LEFT, SCALE = 16, 14, 170, 1.6  # of the chart; the last in pixels per MiB
COLOURS = {"rematc": "#2563eb", "jax": "#9ca3af"}


def on_terminal(arguments: Sequence[str]) -> str:
    """What a Python program prints when its standard output is a terminal of `WIDTH` columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 1000, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=theirs, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment
    )
    os.close(theirs)
    printed = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            printed += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return printed.decode().replace("\r\n", "\n")


def terminal_picture(command: str) -> str:
    """A command and what it prints as SVG."""
    printed = on_terminal(["-m", "rematc", *command.split()[1:]])
    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {command}", "bold"))
    console.print(Text.from_ansi(printed.rstrip("\n")))
    svg = console.export_svg(title="remat-compile", unique_id="rematc")
    # No fonts from elsewhere: any monospaced one does, the text's length is given.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")


def report() -> str:
    """The report on the transformer."""
    return terminal_picture("remat-compile examples/transformer.py --policy dots")


def memory() -> str:
    """The temporary memory of the benchmark's chain, by placement of the checkpoints, as bars."""
    result = subprocess.run(
        [sys.executable, "benchmarks/chain.py"], check=True, capture_output=True, text=True, cwd=ROOT
    )
    heading, _, _, *rows = result.stdout.splitlines()
    cells = [re.fullmatch(r"(.*?) {2,}(\d+) +(\d+) .*", row) for row in rows]
    placements = {cell[1]: {"rematc": int(cell[2]), "jax": int(cell[3])} for cell in cells if cell}
    return chart("Temporary memory of a training step", heading, placements)


def chart(title: str, subtitle: str, groups: dict[str, dict[str, int]]) -> str:
    """Horizontal bars in groups, each with its number of MiB."""
    longest = max(amount for group in groups.values() for amount in group.values())
    parts, y = [], 96
    for name, group in groups.items():
        parts.append(_text(LEFT - 12, y + BAR * len(group) / 2 + 4, name, anchor="end"))
        for who, amount in group.items():
            size = f'width="{amount * SCALE:.1f}" height="{BAR - 2}"'
            parts.append(f'<rect x="{LEFT}" y="{y}" {size} fill="{COLOURS[who]}"/>')
            parts.append(_text(LEFT + amount * SCALE + 6, y + BAR - 4, f"{amount} MiB"))
            y += BAR
        y += GAP
    legend = []
    for index, who in enumerate(COLOURS):
        x = LEFT + 90 * index
        legend.append(f'<rect x="{x}" y="66" width="12" height="12" fill="{COLOURS[who]}"/>')
        legend.append(_text(x + 18, 76, who))
    width = LEFT + longest * SCALE + 80
    head = [_text(16, 28, title, size=17, weight="bold"), _text(16, 48, subtitle, colour="#555")]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y + 4}" role="img">',
            f"<title>{title}</title>",
            f'<rect width="{width:.0f}" height="{y + 4}" rx="6" fill="#fff"/>',
            *head,
            *legend,
            *parts,
            "</svg>\n",
        ]
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 13,
    weight: str = "normal",
    colour: str = "#222",
) -> str:
    font = f'font-family="sans-serif" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {font} fill="{colour}" text-anchor="{anchor}">{text}</text>'


def curve() -> str:
    """Memory against time of a language model's training step on an H100, without slices and with them."""
    command = ["benchmarks/slices.py", "--curve", "--target", "h100"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, *command], check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return vl_convert.vegalite_to_svg(lines_of(result.stdout))


def lines_of(printed: str) -> dict[str, Any]:
    """The Vega-Lite chart of the tables of `benchmarks/slices.py --curve`: a line each, its points named."""
    names = {"slices=off": "plans and policies", "slices=auto": "and slices"}
    points, series = [], ""
    for row in printed.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if cells[0] in names:
            series = names[cells[0]]
        elif len(cells) == 4 and cells[2].endswith(" %"):
            label = cells[0] if "plan" not in cells[0] else ""
            numbers = {"memory": int(cells[1].replace(",", "")), "time": float(cells[2].removesuffix(" %"))}
            points.append({"series": series, "label": label, **numbers})
    x = {"field": "memory", "type": "quantitative", "title": "temporary memory, MiB", "scale": {"zero": True}}
    y = {"field": "time", "type": "quantitative", "title": "more time, % (predicted)"}
    colour = {"field": "series", "type": "nominal", "sort": list(names.values()), "title": None}
    line = {"mark": {"type": "line", "point": True}, "encoding": {"color": {**colour, "legend": {"orient": "top"}}}}
    text = {"mark": {"type": "text", "align": "left", "dx": 6, "dy": -8}, "encoding": {"text": {"field": "label"}}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "width": 640,
        "height": 240,
        "title": "A GPT-2 of 4 layers with 50,304 words on an H100: memory against time",
        "data": {"values": points},
        "encoding": {"x": x, "y": y},
        "layer": [line, text],
    }


def page() -> bytes:
    """The top of the report on the transformer as a page, with what a chart says where it is pointed at."""
    with tempfile.TemporaryDirectory() as folder, headless() as browser:
        file = Path(folder) / "report.html"
        command = [sys.executable, "-m", "rematc", "examples/transformer.py", "--policy", "dots", "--html", str(file)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        shown, faults = opened(browser, file, height=1130)
        box = shown.locator(".chart canvas").first.bounding_box()
        shown.mouse.move(box["x"] + box["width"] * 0.86, box["y"] + box["height"] * 0.45)
        shown.wait_for_timeout(500)
        if faults:
            raise SystemExit("\n".join(faults))
        picture: bytes = shown.screenshot()
    return picture


PICTURES: dict[str, Callable[[], str | bytes]] = {
    "report.svg": report,
    "memory.svg": memory,
    "page.png": page,
    "curve.svg": curve,
}
#: `curve` takes long.
PICTURES_BY_DEFAULT = ("report", "memory", "page")


def main(names: Sequence[str]) -> None:
    """Make the pictures named, or all of them."""
    IMAGES.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        asked = name.partition(".")[0]
        if asked not in (names or PICTURES_BY_DEFAULT):
            continue
        picture = make()
        (IMAGES / name).write_bytes(picture.encode() if isinstance(picture, str) else picture)
        print(IMAGES / name)


if __name__ == "__main__":
    main(sys.argv[1:])
