"""The program as text, at each stage of the compiler: what `--emit` prints."""

from __future__ import annotations

from rematc.cli.step import TrainingStep
from rematc.compiler.driver.lowered import Lowered
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph
from rematc.ir.errors import InternalError
from rematc.ir.printer import print_graph
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import linearize
from rematc.passes.planning.plan import Plan


def emitted_text(step: TrainingStep, stage: str) -> str:
    """The text of one of `rematc.cli.options.EMITTED`. Only HLO, and plans for a budget, ask XLA."""
    match stage:
        case "ir":
            return print_graph(step.trace())
        case "linear":
            return print_graph(_clean(linear_graph(step.differentiate())))
        case "forward":
            return print_graph(_clean(step.differentiate().vjp.forward))
        case "backward":
            return print_graph(_clean(step.differentiate().vjp.backward))
        case "stablehlo":
            return step.program().stablehlo()
        case "plan":
            return str(planned(step.program()))
        case "plan-json":
            return planned(step.program()).to_json()
        case "hlo":
            return step.executable().hlo()
        case "hlo-optimized":
            return step.executable().hlo_optimized()
    raise InternalError(f"nothing emits '{stage}'")


def planned(lowered: Lowered) -> Plan:
    """The plan of a step that has one."""
    plan = lowered.plan
    assert plan is not None, "the command line was checked"
    return plan


def linear_graph(record: Differentiation) -> Graph:
    """The linear graph of a differentiation: from residuals and tangents to the tangent of the function's value."""
    count = len(record.vjp.has_ct)
    wrt = [index < count for index in range(len(record.primal.params))]
    of = [index == 0 for index in range(len(record.primal.results))]
    return linearize(record.primal, wrt, of).linear


def _clean(graph: Graph) -> Graph:
    """As the report counts it: equal equations merged, unused ones gone."""
    return DeadCode().run(CommonSubexpressions().run(graph))
