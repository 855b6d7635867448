"""A few hundred random programs against every law and judge; benchmarks/fuzz.py judges thousands.

So do a few random functions, through our entries to second derivatives, beside JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.values import Array
from tests.support.fuzzing import finds as finding
from tests.support.fuzzing import judges
from tests.support.fuzzing.finds import ALL, finds, header
from tests.support.fuzzing.functions import eager, judging
from tests.support.fuzzing.functions.drawing import draw
from tests.support.fuzzing.functions.entries import ENTRIES, Point, expected
from tests.support.fuzzing.functions.source import Written
from tests.support.fuzzing.judges import UNFUSED, FaultOfXLAError, Joint, Options, verdicts
from tests.support.fuzzing.laws import BrokenLawError, Case
from tests.support.random_graphs import ROWS, seeded_program

PROGRAMS = 300
CHUNK = 50
FUNCTIONS = 12


@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
@pytest.mark.parametrize("law", ALL)
def test_programs_obey(law: str, start: int) -> None:
    ours = [find for find in finds(range(start, start + CHUNK), [law]) if not find.is_of_xla]
    found = [f"{header(find)}// {find.error}\n{find.text}" for find in ours]
    assert not found, "to be left in tests/regressions:\n\n" + "\n".join(found)


def test_a_find_is_not_made_smaller_by_what_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 3
    whole = len(seeded_program(seed).equations)

    def law(case: Case) -> None:
        while len(case.graph.equations) < whole:
            pass
        raise BrokenLawError("it is whole")

    monkeypatch.setattr(finding, "SECONDS", 0.005)
    monkeypatch.setitem(finding.LAWS, "whole", law)
    (found,) = finds([seed], ["whole"])
    assert len(parse(found.text).equations) == whole
    assert "it is whole" in found.error


@pytest.mark.parametrize("is_right_unfused", [False, True])
def test_what_xla_does_wrong_is_its_own_where_it_is_right_without_fusing(is_right_unfused: bool) -> None:
    def judge(joints: Sequence[Joint], options: Options) -> list[list[Array] | None]:
        off = 0 if is_right_unfused and options == UNFUSED else 1
        return [[np.asarray(array + off) for array in joint.arguments] for joint in joints]

    case = Case(parse("graph @main(%x: i32[3]) -> (i32[3]) {\n  return %x\n}\n"))
    (found,) = verdicts([case], judge)
    assert type(found) is (FaultOfXLAError if is_right_unfused else BrokenLawError)


def test_what_jax_computes_as_we_do_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(joints: Sequence[Joint], options: Options) -> list[list[Array] | None]:
        return [[np.asarray(array + 1) for array in joint.arguments] for joint in joints]

    case = Case(parse("graph @main(%x: i32[3]) -> (i32[3]) {\n  return %x\n}\n"))
    monkeypatch.setattr(judges, "by_jax", judge)
    monkeypatch.setattr(judges, "by_xla", judge)
    (found,) = verdicts([case], judge)
    assert isinstance(found, FaultOfXLAError)


def _names(graph: Graph) -> set[str]:
    return {eqn.op.name for eqn in graph.equations} | {
        name for eqn in graph.equations for region in eqn.op.regions() for name in _names(region)
    }


def test_the_programs_have_nearly_every_op() -> None:
    drawn = set().union(*[_names(seeded_program(seed)) for seed in range(PROGRAMS)])
    ops = {op.name for row in ROWS for op in row.ops}
    assert len(ops - drawn) <= len(ops) / 20, sorted(ops - drawn)
    assert {"scan", "while", "case", "checkpoint", "call"} <= drawn


# -- functions ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the policy")  # speaks of a name that no value has
def test_functions_have_the_second_derivatives_that_jax_gives_them() -> None:
    with jax.enable_x64(True):
        found = [find.written() for find in judging.finds(range(FUNCTIONS))]
    assert not found, "to be left in tests/regressions:\n\n" + "\n".join(found)


def test_the_functions_have_every_word() -> None:
    texts = "".join(draw(seed).text() for seed in range(1000))
    words = (
        *("stop", "scan", "fori", "until", "repeat", "cond", "switch", "map", "vmap", "jit", "checkpoint", "slope"),
        *("with_jvp", "with_vjp", "linear_solve", "cho_solve", "root", "dropout", "noise", "weak", "add_at", "set_at"),
        *("np.linalg.inv", "np.linalg.cholesky", "np.linalg.solve", "name", "np.argsort"),
    )
    assert [word for word in words if f"L.{word}(" not in texts] == []
    assert all(text in texts for text in ("bfloat16", "float16", "1j", "'zeros'", "'nondiff'", "reverse=True"))


@pytest.mark.parametrize("text", ["L.np.sin(x) * L.stop(x)", "x"])
def test_a_function_is_judged(text: str) -> None:
    """What loses stopped gradients is found."""
    kind, entry = "jvp of jvp", next(one for one in ENTRIES if one.name == "numpy")
    wrong = Written(f"def f(x, w, i):\n    return L.np.sum({text.replace('L.stop(x)', 'x')} * x)\n")
    right = Written(f"def f(x, w, i):\n    return L.np.sum({text} * x)\n")
    with jax.enable_x64(True):
        wanted = expected(right, kind, Point.of(0))
        error = judging.broken(wrong, entry, kind, 0, wanted)
    assert isinstance(error, judging.WrongDerivativeError) is ("stop" in text)


@pytest.mark.parametrize("text", ["L.np.sin(1e10 * x)", "L.np.sin(x)"])
def test_a_derivative_that_makes_much_of_rounding_is_judged_by_it(text: str) -> None:
    kind, entry = "jvp of jvp", next(one for one in ENTRIES if one.name == "numpy")
    function = Written(f"def f(x, w, i):\n    return L.np.sum({text})\n")
    with jax.enable_x64(True):
        wanted = [array * (1 + 1e-6) + 1e-6 for array in expected(function, kind, Point.of(0))]
        error = judging.broken(function, entry, kind, 0, wanted)
    assert isinstance(error, judging.WrongDerivativeError) is ("1e10" not in text)


def test_what_jax_refuses_of_its_own_is_no_find() -> None:
    """`jax.hessian` of a `custom_vjp` in a branch that a batch turns into a selection."""
    text = """def f(x, w, i):
    def body(a, b):
        return (b,)
    def branch(a):
        return (L.with_vjp(body, body, 'zeros')(a, x),)
    def other(a):
        return (x,)
    y, = L.switch(L.np.argmax(x), [branch, other, other], x)
    return L.np.sum(L.np.sin(y))
"""
    function, kind, seed = Written(text), "jvp of grad", 100814
    entry = next(one for one in ENTRIES if one.name == "hessian")
    with jax.enable_x64(True):
        with pytest.raises(TypeError, match="forward-mode"):
            entry.of(function, kind, Point.of(seed), Random(seed))
        wanted = expected(function, kind, Point.of(seed))
        assert judging.broken(function, entry, kind, seed, wanted) is None
        assert isinstance(judging.broken(function, replace(entry, in_jax=()), kind, seed, wanted), TypeError)


def test_the_evaluator_that_judges_takes_a_batch_of_products() -> None:
    """Whose derivative reshapes transposed arrays."""

    def f(x: Any) -> Any:
        return jnp.sum(jnp.sin(jax.vmap(lambda row: row + jnp.prod(jnp.cos(row)), out_axes=-1)(x)))

    x = np.linspace(0.5, 1.5, 9, dtype=np.float32).reshape(3, 3)
    second = jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))
    np.testing.assert_allclose(eager.run(second, x), jax.jit(second)(x), rtol=1e-4)


def test_a_function_that_jax_refuses_is_not_judged() -> None:
    """A carry that changes its type, which an unrolled loop would not say."""
    function = Written(
        "def f(x, w, i):\n"
        "    y = L.with_vjp(lambda a, b: (b,), lambda a, b: (a,))(x, x)\n"
        "    z, k, _ = L.scan(lambda a, k, row: (a, i[0], a), (y, L.np.argmax(x)), w)\n"
        "    return L.np.sum(z)\n"
    )
    with jax.enable_x64(True), pytest.raises(TypeError, match="carry"):
        expected(function, "grad of grad", Point.of(0))
