"""Calls of libraries: their text, what runs them, and what becomes of those that nothing here can run."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib import lapack

import rematc
from rematc.compiler.api.jit import run_graph
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, MissingRuleError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.locations import Location
from rematc.ir.ops.custom_call import CustomCall
from rematc.ir.printer import print_graph
from rematc.ir.types import F32, TensorType
from rematc.lowering.module import stablehlo_text
from rematc.passes.dce import DeadCode
from rematc.passes.jvp import jvp
from rematc.passes.partial_eval import partial_eval
from rematc.passes.policies import auto, dots_saveable, nothing_saveable
from rematc.passes.vmap import vmap
from tests.support.op_samples.custom_call import SAMPLES, hessenberg
from tests.support.samples import graph_of

PAIR = TensorType(F32, (2,))
SQUARE = TensorType(F32, (4, 4))
X = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)


def call_of(op: CustomCall, *types: TensorType, file: str = "model.py") -> Graph:
    b = Builder("calling")
    params = [b.parameter(type) for type in types]
    b.loc = Location(file, 12, 5, "layer")
    return b.build(*b.emit(op, *params))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_its_text_is_read_back_as_the_same_call(sample: Any) -> None:
    graph = graph_of(sample.op, sample.types)
    assert rematc.from_stablehlo(stablehlo_text(graph)).key() == graph.key()


@pytest.mark.parametrize(
    "op",
    [
        CustomCall("a b", (PAIR,), (("backend_config", '"\\22\\0A"'), ("my.note-1", "3 : i64"))),
        CustomCall("__cublas$gemm", (PAIR, PAIR), has_side_effect=True),
        CustomCall("many", (PAIR, PAIR), aliases=((1, 0),)),
        CustomCall("none", ()),
        CustomCall("ApproxTopK", (PAIR,), called=(graph_of(hessenberg(F32, "s"), [SQUARE]),)),
    ],
    ids=lambda op: op.target,
)
def test_all_that_stablehlo_says_of_a_call_is_kept(op: CustomCall) -> None:
    graph = DeadCode().run(call_of(op, PAIR))
    found = rematc.from_stablehlo(stablehlo_text(graph))
    assert found.key() == graph.key()
    assert rematc.parse(print_graph(graph)) == graph


def test_a_call_that_takes_batches_is_one_call_and_another_a_loop() -> None:
    arrays = np.stack([X, X.T, X + 1])
    for op, expected in ((SAMPLES[0].op, "custom_call"), (hessenberg(F32, "s"), "scan")):
        graph = graph_of(op, [SQUARE])
        batched = vmap(graph, [True], 3).graph
        assert [eqn.op.name for eqn in batched.equations] == [expected]
        alone: Any = [evaluate(graph, [array]) for array in arrays]
        for found, wanted in zip(evaluate(batched, [arrays]), zip(*alone, strict=True), strict=True):
            np.testing.assert_array_equal(found, np.stack(wanted))


@pytest.mark.parametrize("run", [evaluate, run_graph], ids=["reference", "XLA"])
@pytest.mark.parametrize(
    "attributes", [(), (("api_version", "4 : i32"), ("backend_config", "{}"))], ids=["untyped", "typed"]
)
def test_a_function_that_nobody_registered_is_an_error_at_its_line(run: Any, attributes: Any) -> None:
    with pytest.raises(CompileError, match=r"calls 'nowhere'.*register_ffi_target") as caught:
        run(call_of(CustomCall("nowhere", (PAIR,), attributes), PAIR), [np.ones(2, np.float32)])
    assert caught.value.loc == Location("model.py", 12, 5, "layer")


def test_a_call_of_functions_of_its_program_is_not_evaluated_alone() -> None:
    body = graph_of(hessenberg(F32, "s"), [SQUARE])
    with pytest.raises(CompileError, match="'ApproxTopK' calls functions of its program"):
        evaluate(call_of(CustomCall("ApproxTopK", (PAIR,), called=(body,)), PAIR), [np.ones(2, np.float32)])


def test_it_has_no_derivative_and_says_of_what() -> None:
    with pytest.raises(MissingRuleError, match="jvp of 'custom_call' of 'lapack_sgehrd_ffi' does not exist") as caught:
        jvp(call_of(hessenberg(F32, "s"), SQUARE), [True])
    assert caught.value.loc == Location("model.py", 12, 5, "layer")


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (CustomCall("", (PAIR,)), "no target"),
        (CustomCall("f", (PAIR,), operand_layouts=((0,), (0,)), result_layouts=((0,),)), "2 operand layouts for 1"),
        (CustomCall("f", (PAIR,), operand_layouts=((0,),), result_layouts=((1,),)), "expected an order of its 1"),
        (CustomCall("f", (PAIR,), aliases=((1, 0),)), "result 1 lies in operand 0"),
        (CustomCall("f", (SQUARE,), aliases=((0, 0),)), "expected equal types"),
    ],
)
def test_what_does_not_fit_the_operands_is_refused(op: CustomCall, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        call_of(op, PAIR)


def is_repeated(op: CustomCall, policy: Any) -> bool:
    """Whether the backward graph of a product with what a call gives has the call, too."""
    b = Builder("product")
    x, t = b.parameter(PAIR), b.parameter(PAIR)
    (y,) = b.emit(op, x)
    staged = partial_eval(b.build(b.multiply(b.sine(y), t)), [False, True], policy).staged
    return any(eqn.op == op for eqn in staged.equations)


def test_auto_does_not_call_twice() -> None:
    call, of_constants = CustomCall("f", (PAIR,)), CustomCall("f", (PAIR,), (("backend_config", '"constant"'),))
    assert [is_repeated(call, policy) for policy in (nothing_saveable, dots_saveable, auto)] == [True, True, False]
    b = Builder("constants")
    t = b.parameter(PAIR)
    (y,) = b.emit(of_constants, b.full(PAIR, 1))
    split = partial_eval(b.build(b.multiply(y, t)), [True], auto)
    assert [eqn.op.name for eqn in split.staged.equations] == ["multiply"]


def test_what_is_called_for_its_effect_is_called_once_whatever_the_policy() -> None:
    assert not is_repeated(CustomCall("f", (PAIR,), has_side_effect=True), nothing_saveable)
    b = Builder("unused")
    x = b.parameter(PAIR)
    b.emit(CustomCall("f", (PAIR,), has_side_effect=True), x)
    b.emit(CustomCall("f", (PAIR,)), x)
    assert [eqn.op.effect.name for eqn in DeadCode().run(b.build(x)).equations] == ["UNORDERED"]


def test_it_counts_no_operations() -> None:
    assert call_of(hessenberg(F32, "s"), SQUARE).equations[0].flops == 0


LOADING = """
import sys
import numpy as np
import rematc
for file in sys.argv[1:]:
    try:
        print(np.asarray(rematc.load(file)(np.eye(4, dtype=np.float32))[0]).tolist()[0])
    except rematc.CompileError as error:
        print(error)
"""


def test_a_saved_program_runs_where_the_library_is_and_says_so_where_it_is_not(tmp_path: Path) -> None:
    """A function is registered in this process under a name that the next one does not know."""
    rows: Any = lapack.registrations()
    known = {name: found for name, found, *_ in rows["cpu"]}
    jax.ffi.register_ffi_target("my_gehrd", known["lapack_sgehrd_ffi"], "cpu")

    def reduced(x: Any, target: str) -> Any:
        shapes: Any = [(4, 4), (3,), ()]
        struct: Any = jax.ShapeDtypeStruct
        results = [struct(shape, kind) for shape, kind in zip(shapes, "ffi", strict=True)]
        layouts: Any = [(0, 1), None, None]
        call: Any = jax.ffi.ffi_call(
            target, results, input_layouts=[(0, 1)], output_layouts=layouts, input_output_aliases={0: 0}
        )
        return call(x, low=np.int32(1), high=np.int32(4))

    for target in ("lapack_sgehrd_ffi", "my_gehrd"):
        function: Any = rematc.from_jax(functools.partial(reduced, target=target))
        rematc.compile(function, X).save(tmp_path / target)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOADING, str(tmp_path / "lapack_sgehrd_ffi"), str(tmp_path / "my_gehrd")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
    assert shown[0] == "[1.0, 0.0, 0.0, 0.0]"
    assert "calls 'my_gehrd', a function that no library has registered" in shown[1]
