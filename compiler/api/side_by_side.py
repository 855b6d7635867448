"""`print_fwd_bwd`: the forward and the backward graph beside each other."""

from __future__ import annotations

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from rematc.compiler.functions.calls import trace_call
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.ir.core import Graph
from rematc.ir.printer import print_graph
from rematc.lowering.signature import Function
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import vjp


class IrHighlighter(RegexHighlighter):
    """Colours IR text: values, types, ops, the words of the grammar."""

    base_style = "ir."
    highlights = [  # noqa: RUF012  # rich's interface
        r"(?P<value>%[\w.]+)",
        r"(?P<type>\b(?:bool|[iu]\d+|b?f\d+\w*|c\d+)(?:<host>)?\[[\d,]*\])",
        r"= (?P<op>[a-z_0-9]+)",
        r"(?P<word>\b(?:graph|return)\b)",
        r"(?P<symbol>@[\w.<>]+)",
    ]


IR_THEME = Theme(
    {"ir.value": "cyan", "ir.type": "green", "ir.op": "bold magenta", "ir.word": "bold", "ir.symbol": "yellow"}
)


def highlighted(text: str) -> Text:
    """IR text with the styles of `IR_THEME`."""
    return IrHighlighter()(Text(text, no_wrap=True))


def print_fwd_bwd(fun: Function, *args: object, console: Console | None = None, **kwargs: object) -> None:
    """Print the forward and backward graphs of `fun` at these arguments, side by side.

    `fun` is differentiated with respect to all floating-point arguments. In colour on a terminal; `console` is a
    rich console to print to instead of standard output.
    """
    call = CallArguments.of(fun, args, kwargs)
    with differentiated():
        traced = trace_call(fun, call)
    pulled = vjp(traced.graph, traced.wrt)
    texts = [print_graph(_clean(graph), locations=False) for graph in (pulled.forward, pulled.backward)]
    widths = [max(len(line) for line in text.splitlines()) for text in texts]
    target = console or Console()
    if not target.is_terminal:
        target = Console(file=target.file, width=sum(widths) + 7, theme=IR_THEME)
    table = Table("forward", "backward")
    table.add_row(*(highlighted(text) for text in texts))
    with target.use_theme(IR_THEME):
        target.print(table)


def _clean(graph: Graph) -> Graph:
    return DeadCode().run(CommonSubexpressions().run(graph))
