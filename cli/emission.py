"""The program as text, at each stage of the compiler: what `--emit` prints."""

from __future__ import annotations

from rematc.cli.module import written_module
from rematc.cli.step import TrainingStep
from rematc.compiler.driver.inspection import clean, linear_graph
from rematc.compiler.driver.lowered import Lowered
from rematc.ir.errors import InternalError
from rematc.ir.printer import print_graph
from rematc.passes.planning.plan import Plan


def emitted_text(step: TrainingStep, stage: str) -> str:
    """The text of one of `rematc.cli.options.EMITTED`. Only HLO, and plans for a budget, ask XLA."""
    match stage:
        case "ir":
            return print_graph(step.trace())
        case "linear":
            return print_graph(clean(linear_graph(step.differentiate())))
        case "forward":
            return print_graph(clean(step.differentiate().vjp.forward))
        case "backward":
            return print_graph(clean(step.differentiate().vjp.backward))
        case "stablehlo":
            return stablehlo_text(step, step.program())
        case "plan":
            return str(planned(step.program()))
        case "plan-json":
            return planned(step.program()).to_json()
        case "hlo":
            return step.executable().hlo()
        case "hlo-optimized":
            return step.executable().hlo_optimized()
        case "buffers":
            return str(step.executable().buffers())
    raise InternalError(f"nothing emits '{stage}'")


def stablehlo_text(step: TrainingStep, lowered: Lowered) -> str:
    """The program as StableHLO; that of a module with what the module says of its arguments."""
    text = lowered.stablehlo()
    is_main = step.options.is_module and step.entry.name == "main"
    return written_module(text, step.options.model.absolute()) if is_main else text


def planned(lowered: Lowered) -> Plan:
    """The plan of a step that has one."""
    plan = lowered.plan
    assert plan is not None, "the command line was checked"
    return plan
