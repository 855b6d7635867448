"""`--emit`: the text of each stage, alone on standard output."""

from __future__ import annotations

from pathlib import Path

import pytest

from rematc.cli.options import EMITTED
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.lowering.validation import validate
from rematc.passes.linearize import VJP
from tests.support.command import Command, WriteModel

SIN_CHAIN = Path(__file__).parents[2] / "examples" / "sin_chain.py"


def ops(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def emitted(command: Command, stage: str, *args: str) -> str:
    result = command(SIN_CHAIN, "--argnums", "0,1,2,3", "--emit", stage, *args)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.mark.parametrize("stage", ["ir", "linear", "forward", "backward"])
@pytest.mark.parametrize("policy", ["none", "dots", "nothing"])
def test_ir_parses_back(command: Command, stage: str, policy: str) -> None:
    text = emitted(command, stage, "--policy", policy)
    assert parse(text).name == "loss"


def test_ir_is_the_loss_as_traced(command: Command) -> None:
    assert ops(parse(emitted(command, "ir"))) == [*["dot_general", "sine"] * 3, "reduce_sum"]


def test_forward_ends_in_the_residuals_and_backward_begins_with_them(command: Command) -> None:
    forward, backward = (parse(emitted(command, stage, "--policy", "dots")) for stage in ("forward", "backward"))
    assert [str(type) for type in forward.result_types[1:]] == [str(type) for type in backward.param_types[:-1]]
    dots = [value for eqn in forward.equations if eqn.op.name == "dot_general" for value in eqn.results]
    assert set(dots) <= set(forward.results)


def test_linear_takes_residuals_and_tangents(command: Command) -> None:
    linear = parse(emitted(command, "linear"))
    assert [str(type) for type in linear.param_types[-4:]] == ["f32[5,4]", "f32[6,5]", "f32[7,6]", "f32[4]"]
    assert [str(type) for type in linear.result_types] == ["f32[]"]


def test_stablehlo_is_valid_and_names_the_users_lines(command: Command) -> None:
    text = emitted(command, "stablehlo", "--policy", "nothing")
    validate(text)
    assert "stablehlo.optimization_barrier" in text
    assert 'loc("g"("' in text and 'sin_chain.py":8:' in text
    assert "click" not in text


@pytest.mark.parametrize("target", ["gpu", "tpu"])
def test_stablehlo_needs_no_such_device(command: Command, target: str) -> None:
    validate(emitted(command, "stablehlo", "--target", target))


def test_stablehlo_is_of_the_target(command: Command) -> None:
    """Two products on each layer's gradient: a TPU's kernels would compute it in both."""
    here, there = (emitted(command, "stablehlo", *target) for target in ([], ["--target", "tpu"]))
    assert here.count("optimization_barrier") == 0
    assert there.count("stablehlo.optimization_barrier") == 2


@pytest.mark.parametrize("stage", ["hlo", "hlo-optimized"])
def test_hlo_is_xlas_text(command: Command, stage: str) -> None:
    assert emitted(command, stage, "-q").startswith("HloModule ")


def test_policy_changes_the_program(command: Command) -> None:
    texts = {emitted(command, "stablehlo", "--policy", policy) for policy in ("none", "dots", "nothing")}
    assert len(texts) == 3


def test_policy_from_a_file(command: Command, write_model: WriteModel) -> None:
    write_model("def only_sines(op, operands, name=None): return op.name == 'sine'", "mine.py")
    forward = parse(emitted(command, "forward", "--policy", "mine.py:only_sines"))
    made = {value: eqn.op.name for eqn in forward.equations for value in eqn.results}
    assert [made[value] for value in forward.results[1:] if value in made] == ["sine", "sine"]


def test_what_the_model_prints_goes_to_standard_error(command: Command, write_model: WriteModel) -> None:
    source = """
    print("while it is loaded")

    def loss(x):
        print("while it is traced")
        return np.sum(x)

    def example_args():
        print("while it makes arguments")
        return (np.ones(3, np.float32),)
    """
    result = command(write_model(source), "--emit", "stablehlo")
    validate(result.stdout)
    assert result.stderr.splitlines() == ["while it is loaded", "while it makes arguments", "while it is traced"]


def test_entry_chooses_the_function(command: Command) -> None:
    result = command(SIN_CHAIN, "--entry", "g", "--arg", "f32[2,3]", "--arg", "f32[3]", "--emit", "ir")
    assert ops(parse(result.stdout)) == ["dot_general", "sine"]


def test_passes_replace_the_default_ones(command: Command) -> None:
    args = ("stablehlo", "--policy", "nothing", "--passes")
    assert "optimization_barrier" in emitted(command, *args, "barriers,cse,dce")
    assert "optimization_barrier" not in emitted(command, *args, "barriers{strategy=none},cse,dce")


def test_barrier_says_how_recomputation_is_kept(command: Command) -> None:
    def lines(strategy: str) -> str:
        return emitted(command, "stablehlo", "--policy", "nothing", "--barrier", strategy)

    assert "optimization_barrier" in lines("auto") == lines("optimization_barrier")
    assert 'inlineable = "false"' in lines("call") and "optimization_barrier" not in lines("call")
    assert "stablehlo.case" in lines("conditional") and "optimization_barrier" not in lines("conditional")
    assert "optimization_barrier" not in lines("none") and "stablehlo.case" not in lines("none")


def test_print_between_passes_prints_graphs_that_parse(command: Command) -> None:
    args = ("--passes", "barriers,cse,dce", "--print-between-passes", "--policy", "nothing")
    result = command(SIN_CHAIN, "--emit", "stablehlo", *args)
    validate(result.stdout)
    dumps = result.stderr.strip().split("\n\n")
    shown = f"{VJP},barriers,cse,dce".replace("partial_eval", "partial_eval,partial_eval").split(",")
    assert [dump.splitlines()[0] for dump in dumps] == [f"// policy nothing, after the pass {name}" for name in shown]
    for dump in dumps:
        assert parse(dump).name == "loss"


def test_buffers_are_xlas_assignment(command: Command) -> None:
    lines = command(SIN_CHAIN, "--argnums", "0,1,2,3", "--policy", "dots", "--emit", "buffers").stdout.splitlines()
    assert lines[0].startswith("XLA's buffer assignment of 'loss', over ")
    assert [line.split()[0] for line in lines[2:5]] == ["temporary", "argument", "result"]
    (gradient,) = [line for line in lines if "f32[7,6]" in line and "backward" in line]
    assert gradient.split()[0] == "168" and "sin_chain.py:8 (g)" in gradient


def test_every_stage_is_tested_here_or_with_budgets() -> None:
    plans = ("plan", "plan-json")
    assert ("ir", "linear", "forward", "backward", *plans, "stablehlo", "hlo", "hlo-optimized", "buffers") == EMITTED
