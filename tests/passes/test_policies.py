"""What each policy answers, and the text form of policies."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import checkpoint_policies

import rematc
from rematc.ir.core import Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.arithmetic import Multiply
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import Constant
from rematc.ir.ops.transcendental import Sine
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload
from rematc.ir.types import F32, TensorType
from rematc.passes import policies
from rematc.passes.accounting import flat_equations
from rematc.passes.policies import as_policy, auto, describe_policies, parse_policy
from rematc.passes.policy_functions import PrimitivePolicy, UserPolicy, of_ops, of_primitives

VECTOR, MATRIX, BATCHED = TensorType(F32, (4,)), TensorType(F32, (4, 4)), TensorType(F32, (2, 4, 4))
SINE = (Sine(), (VECTOR,))
DOT = (DotGeneral(((1,), (0,)), ((), ())), (MATRIX, MATRIX))
BATCH_DOT = (DotGeneral(((2,), (1,)), ((0,), (0,))), (BATCHED, BATCHED))
HOST = Offload("device", "pinned_host")


def ask(text: str, applied: tuple[Op, tuple[TensorType, ...]], *names: str) -> Decision:
    (answer,) = parse_policy(text).decide(*applied, names)
    return answer


@pytest.mark.parametrize(
    ("text", "sine", "dot", "batch_dot", "named_a", "named_b"),
    [
        ("everything", SAVE, SAVE, SAVE, SAVE, SAVE),
        ("nothing", RECOMPUTE, RECOMPUTE, RECOMPUTE, RECOMPUTE, RECOMPUTE),
        ("dots", RECOMPUTE, SAVE, SAVE, RECOMPUTE, RECOMPUTE),
        ("dots-no-batch", RECOMPUTE, SAVE, RECOMPUTE, RECOMPUTE, RECOMPUTE),
        ("offload-dots-no-batch", RECOMPUTE, HOST, RECOMPUTE, RECOMPUTE, RECOMPUTE),
        ("names=a", RECOMPUTE, RECOMPUTE, RECOMPUTE, SAVE, RECOMPUTE),
        ("names=a,b", RECOMPUTE, RECOMPUTE, RECOMPUTE, SAVE, SAVE),
        ("any-names", RECOMPUTE, RECOMPUTE, RECOMPUTE, SAVE, SAVE),
        ("any-names-but=a", RECOMPUTE, RECOMPUTE, RECOMPUTE, RECOMPUTE, SAVE),
        ("except=a", SAVE, SAVE, SAVE, RECOMPUTE, SAVE),
        ("offload=a", RECOMPUTE, RECOMPUTE, RECOMPUTE, HOST, RECOMPUTE),
        ("names=b+offload=a", RECOMPUTE, RECOMPUTE, RECOMPUTE, HOST, SAVE),
        ("offload=a,b+names=b", RECOMPUTE, RECOMPUTE, RECOMPUTE, HOST, SAVE),
        ("dots+names=a", RECOMPUTE, SAVE, SAVE, SAVE, RECOMPUTE),
    ],
)
def test_answers_of_the_built_in_policies(
    text: str, sine: Decision, dot: Decision, batch_dot: Decision, named_a: Decision, named_b: Decision
) -> None:
    found = ask(text, SINE), ask(text, DOT), ask(text, BATCH_DOT), ask(text, SINE, "a"), ask(text, SINE, "b")
    assert found == (sine, dot, batch_dot, named_a, named_b)


def test_a_value_with_several_names() -> None:
    assert ask("names=a", SINE, "b", "a") == SAVE
    assert ask("any-names-but=a", SINE, "b", "a") == RECOMPUTE
    assert ask("except=a", SINE, "b", "a") == RECOMPUTE
    assert ask("offload=a", SINE, "b", "a") == HOST


def test_jax_names_mean_the_same() -> None:
    assert parse_policy("dots_saveable") == parse_policy("checkpoint_dots") == policies.dots_saveable
    assert parse_policy("dots_with_no_batch_dims_saveable") == policies.checkpoint_dots_with_no_batch_dims
    assert parse_policy("nothing_saveable") == policies.nothing_saveable
    assert parse_policy("everything_saveable") == policies.everything_saveable
    assert parse_policy("save_only_these_names=a,b") == policies.save_only_these_names("a", "b")
    assert parse_policy("save_any_names_but_these=a") == policies.save_any_names_but_these("a")
    assert parse_policy("save_anything_except_these_names=a") == policies.save_anything_except_these_names("a")


def test_no_names_at_all() -> None:
    assert policies.save_only_these_names() == policies.nothing_saveable
    assert policies.save_anything_except_these_names() == policies.everything_saveable
    assert policies.save_any_names_but_these() == parse_policy("any-names")


def test_only_everything_is_everything() -> None:
    is_everything = {text for text in TERMS if parse_policy(text).is_everything}
    assert is_everything == {"everything"}
    assert parse_policy("dots+everything").is_everything
    assert not as_policy(lambda *_: True).is_everything, "what a function answers is not known beforehand"


# -- text ------------------------------------------------------------------------------------------------------------

TERMS = (
    *("everything", "nothing", "dots", "dots-no-batch", "offload-dots-no-batch", "any-names"),
    *("names=a", "names=a,b", "any-names-but=a", "except=a,b", "offload=a,b"),
)


@given(st.lists(st.sampled_from(TERMS), min_size=1, max_size=4))
def test_the_text_parses_back(terms: list[str]) -> None:
    policy = parse_policy("+".join(terms))
    assert policy.spec == "+".join(terms)
    assert parse_policy(policy.spec) == policy


def test_combinations_nest_alike_however_they_came_about() -> None:
    one, two, three = (parse_policy(text) for text in ("dots", "names=a", "names=b"))
    left = policies.save_from_both_policies(policies.save_from_both_policies(one, two), three)
    right = policies.save_from_both_policies(one, policies.save_from_both_policies(two, three))
    assert left == right == parse_policy("dots+names=a+names=b")


def test_names_saved_and_offloaded() -> None:
    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["s"],
        names_which_can_be_offloaded=["o"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    assert policy == parse_policy("names=s+offload=o")
    with pytest.raises(CompileError, match="names cannot be both saved and offloaded: x; keep each in one list"):
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["x", "s"],
            names_which_can_be_offloaded=["o", "x"],
            offload_src="device",
            offload_dst="pinned_host",
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dotz", "unknown policy 'dotz'; did you mean 'dots'?"),
        ("dots+nothin", "unknown policy 'nothin'; did you mean 'nothing'?"),
        ("", "unknown policy ''"),
        ("names", "the policy 'names' takes names: names=a,b"),
        ("names=", "the policy 'names' takes names"),
        ("dots=a", "unknown policy 'dots=a'"),
        ("missing.py:f", "names a file that is not there: missing.py"),
    ],
)
def test_what_is_no_policy_is_an_error(text: str, message: str) -> None:
    with pytest.raises(CompileError) as failure:
        parse_policy(text)
    assert message in str(failure.value)


def test_what_cannot_be_a_policy_is_an_error() -> None:
    with pytest.raises(CompileError, match=r"a policy is a name, a policy of rematc\.policies or a function, not 3"):
        as_policy(3)


def test_every_described_policy_parses() -> None:
    rows = describe_policies()
    assert {spec for spec, _, _ in rows} >= {"everything", "nothing", "dots", "dots-no-batch", "names=a,b"}
    for spec, jax_name, summary in rows:
        assert parse_policy(spec).spec == spec
        assert hasattr(policies, jax_name)
        assert summary.endswith(".")


# -- functions -------------------------------------------------------------------------------------------------------


def test_a_function_is_told_the_op_the_types_and_the_name() -> None:
    seen = []

    def policy(op: Op, operands: tuple[TensorType, ...], name: str | None) -> bool:
        seen.append((op, operands, name))
        return name == "b"

    decided = as_policy(policy)
    assert decided.decide(Sine(), [VECTOR], ()) == (RECOMPUTE,)
    assert decided.decide(Sine(), [VECTOR], ("a", "b")) == (SAVE,), "the strongest answer over all names"
    assert seen == [(Sine(), (VECTOR,), None), (Sine(), (VECTOR,), "a"), (Sine(), (VECTOR,), "b")]


@pytest.mark.parametrize("answer", [True, SAVE, (SAVE,), (True,)])
def test_forms_of_an_answer(answer: object) -> None:
    assert as_policy(lambda *_: answer).decide(*SINE, ()) == (SAVE,)


@pytest.mark.parametrize("answer", ["yes", None, 1, np.float64(1.0), (True, "no")])
def test_other_answers_are_errors(answer: object) -> None:
    with pytest.raises(CompileError, match="a policy returns True, False, SAVE, RECOMPUTE or Offload"):
        as_policy(lambda *_: answer).decide(*SINE, ())


def test_a_function_of_other_arguments_is_an_error() -> None:
    with pytest.raises(CompileError, match=r"is called with \(op, operand_types, name\), but takes \(op\)"):
        as_policy(lambda op: True)


def test_a_function_is_one_of_ops_or_of_primitives_by_what_it_takes() -> None:
    of_ops = (lambda op, types, name: True, lambda *_: True, lambda op, types, name, **_: True, lambda op, *_: True)
    of_primitives = (
        lambda prim, *_, **__: True,
        lambda *_, **__: True,
        lambda prim, *avals, limit=3, **params: True,
        functools.partial(lambda limit, prim, *_, **__: True, 3),
        checkpoint_policies.dots_saveable,
        checkpoint_policies.save_only_these_names("a"),
    )
    assert [type(as_policy(one)) for one in of_ops] == [UserPolicy] * len(of_ops)
    assert [type(as_policy(one)) for one in of_primitives] == [PrimitivePolicy] * len(of_primitives)


def test_a_function_that_may_be_either_is_an_error_and_can_be_marked() -> None:
    either: Any = lambda op, *_, **__: True  # noqa: E731
    with pytest.raises(CompileError, match=r"mark it: rematc\.policies\.of_ops\(function\) is called with"):
        as_policy(either)
    assert as_policy(of_ops(either)).decide(*SINE, ()) == (SAVE,)
    assert isinstance(as_policy(of_primitives(either)), PrimitivePolicy)


def test_one_decision_stands_for_all_results_in_a_combination() -> None:
    per_result = as_policy(lambda *_: (True, False))
    combined = policies.save_from_both_policies(per_result, lambda *_: HOST)
    assert combined.decide(*SINE, ()) == (SAVE, HOST)
    wrong = policies.save_from_both_policies(per_result, lambda *_: (True, True, True))
    with pytest.raises(CompileError, match="gave 2 and 3 decisions"):
        wrong.decide(*SINE, ())


def test_a_policy_is_a_function_of_one_value() -> None:
    assert policies.dots_saveable(*DOT) == SAVE
    assert policies.OnlyNames(("a",))(*SINE, "a") == SAVE


def test_a_function_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def cheap(op, operands, name):\n    return op.name == 'sine'\n")
    policy = parse_policy(f"{file}:cheap")
    assert policy.spec == f"{file}:cheap"
    assert policy.decide(*SINE, ()) == (SAVE,)
    assert policy.decide(Multiply(), (VECTOR, VECTOR), ()) == (RECOMPUTE,)
    assert policy.decide(Constant.of(np.zeros(3)), (), ()) == (RECOMPUTE,)
    with pytest.raises(CompileError, match=r"names no function of .*mine.py \(functions there: cheap\)"):
        parse_policy(f"{file}:dear")
    file.write_text("def cheap(:\n")
    with pytest.raises(CompileError, match="cannot be loaded: SyntaxError"):
        parse_policy(f"{file}:cheap")


def test_what_moves_data_is_moved_again_under_auto() -> None:
    """What edges of a graph pick of its nodes is larger than the nodes, and not kept for the backward pass."""
    sends, gets = np.arange(96) % 7, np.arange(96) % 5

    def messages(weights: Any, x: Any) -> Any:
        for weight in weights:
            edges = np.tanh(x[sends] * x[gets]) @ weight
            x = x + np.sum(np.reshape(edges, (8, 12, 16)), axis=1)
        return np.sum(x * x)

    arguments = [np.full((16, 16), 0.1, np.float32)] * 3, np.ones((8, 16), np.float32)
    gathers = {}
    for policy in (None, "auto", "everything"):
        lowered = rematc.lower(rematc.value_and_grad(messages, policy=policy), *arguments)
        gathers[policy] = sum(eqn.op.name == "gather" for eqn in flat_equations(lowered.graph))
    assert gathers["auto"] > gathers[None] == gathers["everything"]


def test_auto_has_of_a_loop_computed_again_what_its_steps_give_by_light_work() -> None:
    """The state follows without the product that reads it, and the second state from the product."""

    def step(carry: Any, row: Any) -> Any:
        state, other = carry
        read = state @ np.ones((3, 3))
        return (0.5 * state + row, other + read), (state, read)

    def loop(x: Any, rows: Any) -> Any:
        return rematc.scan(step, (x, x), rows)

    (eqn,) = [eqn for eqn in rematc.trace(loop, np.ones(3), np.ones((5, 3))).equations if isinstance(eqn.op, Scan)]
    assert auto.decide(eqn.op, eqn.operand_types, ()) == (RECOMPUTE, SAVE, RECOMPUTE, SAVE)


@pytest.mark.parametrize(("is_dear", "expected"), [(False, RECOMPUTE), (True, SAVE)])
def test_auto_has_branches_taken_again_where_none_does_more_than_light_work(is_dear: bool, expected: Decision) -> None:
    def branches(x: Any) -> Any:
        return rematc.cond(x[0] > 0, np.sin, lambda x: x * np.sum(x) if is_dear else x, x)

    (eqn,) = [eqn for eqn in rematc.trace(branches, np.ones(3)).equations if isinstance(eqn.op, Case)]
    assert set(auto.decide(eqn.op, eqn.operand_types, ())) == {expected}
