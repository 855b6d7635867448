"""The page put together: its text, its style and script, its data, and the plotting library."""

from __future__ import annotations

import base64
import json
import zlib
from html import escape
from pathlib import Path
from string import Template

from rematc.compiler.reports.html.contents import Contents
from rematc.compiler.reports.html.data import page_data
from rematc.compiler.reports.html.vega import library, require_library

_HERE = Path(__file__).parent


def to_page(contents: Contents) -> str:
    """The contents as one HTML page without references to others.

    Raises CompileError where the plotting library is not installed.
    """
    require_library()
    stages = {} if contents.inspection is None else contents.inspection.stages()
    data = page_data(contents) | {
        "stages": [{"name": name, "size": len(text), "text": _packed(text)} for name, text in stages.items()]
    }
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(contents.title),
        subtitle=escape(f"policy {contents.policy}, compiled for {contents.target}"),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        data=_packed(json.dumps(data, separators=(",", ":"))),
        library=library(),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
    )


def to_frame(page: str) -> str:
    """A page in a frame of its own, for notebooks."""
    return (
        f'<iframe srcdoc="{escape(page, quote=True)}" style="width:100%;height:900px;border:0" title="rematc"></iframe>'
    )


def _packed(text: str) -> str:
    """Compressed, in letters: what the page's script unpacks."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 6)).decode("ascii")
