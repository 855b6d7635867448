"""The plotting library that the page has in it: Vega-Lite, out of the package that the extra `rematc[html]` brings."""

from __future__ import annotations

import functools
import importlib.util

from rematc.ir.errors import CompileError

_PACKAGE = "vl_convert"


def has_library() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec(_PACKAGE) is not None


def require_library() -> None:
    """Raise CompileError, with the command that installs it, where it is missing."""
    if not has_library():
        raise CompileError(
            "the HTML report needs the package vl-convert-python, which brings the plotting library that is put into "
            "the page; install it with pip install 'rematc[html]'"
        )


@functools.cache
def library() -> str:
    """Vega-Lite as a script that defines `window.vegaEmbed`. Takes some seconds. Raises CompileError as above."""
    require_library()
    import vl_convert  # noqa: PLC0415  # an optional extra

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")
