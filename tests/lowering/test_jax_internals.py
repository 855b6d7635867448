"""What we use of JAX beyond its documented API still is what we take it for. A failure here names what moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rematc.ir.errors import CompileError, InternalError
from rematc.ir.ops.structural import ToMemory
from rematc.ir.types import DTYPES, F32, TensorType
from rematc.lowering.jax_internals.calls import apply_program
from rematc.lowering.jax_internals.checkpoints import offloadable
from rematc.lowering.jax_internals.keys import is_key, key_layout, key_words
from rematc.lowering.jax_internals.locations import equation_location, is_library_function, scopes_of
from rematc.lowering.jax_internals.references import (
    has_only_local_references,
    is_part_of_reference,
    is_reference,
    makes_references,
    without_own_references,
)
from rematc.lowering.jax_internals.settings import (
    is_jaxlib_before,
    is_trace_open,
    is_tracing_with_x64,
    is_x64_enabled,
    restore_x64,
    swap_x64,
    tracing_with_x64,
    without_remat3,
)
from rematc.lowering.jax_internals.types import is_float0
from rematc.lowering.program import Program
from tests.support.programs import program, read_module

VECTOR = TensorType(F32, (3,))
X = np.arange(3, dtype=np.float32)


def negation() -> Program:
    return program([VECTOR], lambda b, x: [b.negate(x)], name="negation")


def test_x64_is_swapped_for_this_thread() -> None:
    previous = swap_x64(True)
    try:
        assert jnp.asarray(np.array([1.0])).dtype == np.float64
    finally:
        restore_x64(previous)
    assert jnp.asarray(np.array([1.0])).dtype == np.float32


def test_an_open_trace_is_noticed() -> None:
    seen = []

    def note(x: Any) -> Any:
        seen.append(is_trace_open())
        return x

    assert not is_trace_open()
    for transform in (jax.jit, jax.vmap):
        transform(note)(X)
    assert seen == [True, True]
    assert not is_trace_open()


def test_versions_of_jaxlib_compare() -> None:
    assert is_jaxlib_before(99)
    assert not is_jaxlib_before(0, 10)


def test_a_call_is_one_equation_of_the_jaxpr() -> None:
    once = negation()
    jaxpr = jax.make_jaxpr(lambda x: apply_program(once, [x]))(X)
    (eqn,) = jaxpr.eqns
    assert eqn.primitive.name == "rematc_call"
    assert eqn.params == {"program": once}
    assert "program=Program('negation', 1 leaves, 0 constants)" in str(jaxpr)


def test_a_program_called_twice_stands_once_in_the_module() -> None:
    once = negation()
    text = jax.jit(lambda x: apply_program(once, apply_program(once, [x]))).lower(X).as_text()
    assert text.count("stablehlo.negate") == 1


def test_programs_of_one_name_get_functions_of_their_own() -> None:
    minus, twice = negation(), program([VECTOR], lambda b, x: [b.add(x, x)], name="negation")
    (result,) = jax.jit(lambda x: apply_program(twice, apply_program(minus, [x])))(X)
    np.testing.assert_array_equal(result, -2 * X)


def test_a_name_that_is_no_identifier() -> None:
    strange = program([VECTOR], lambda b, x: [b.negate(x)], name='<lambda> "ö"')
    (result,) = jax.jit(lambda x: apply_program(strange, [x]))(X)
    np.testing.assert_array_equal(result, -X)


def test_the_users_lines_reach_the_hlo() -> None:
    text = negation().text.replace("loc(unknown)", 'loc("model.py":12:8)')
    located = Program(read_module(text), (VECTOR,), (VECTOR,), "negation")
    hlo = jax.jit(lambda x: apply_program(located, [x])).lower(X).as_text(debug_info=True)
    assert '"model.py":12:8' in hlo


def test_operands_of_other_types_are_refused() -> None:
    with pytest.raises(CompileError, match=r"'negation' takes \(f32\[3\]\), got \(i32\[3\]\)"):
        apply_program(negation(), [np.arange(3, dtype=np.int32)])


def test_offloading_is_refused_on_cpu_and_annotated_elsewhere() -> None:
    host = TensorType(F32, (3,), on_host=True)
    offload = program([VECTOR], lambda b, x: [b.emit1(ToMemory(True), x)], name="offload")
    assert offload.result_types == (host,)
    traced = jax.jit(lambda x: apply_program(offload, [x])).trace(X)
    with pytest.raises(CompileError, match="'offload' offloads values"):
        traced.lower()
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("annotate_device_placement(%arg0) {has_side_effect = true, mhlo.frontend_attributes") == 1


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.bits >= 8])
def test_every_element_type_goes_in_and_out(name: str) -> None:
    type = TensorType(DTYPES[name], (2,))
    through = program([type], lambda b, x: [x])
    x = np.zeros(2, type.dtype.numpy)
    previous = swap_x64(True)
    try:
        (result,) = jax.eval_shape(lambda x: apply_program(through, [x]), x)
        jax.jit(lambda x: apply_program(through, [x])).lower(x)
    finally:
        restore_x64(previous)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)


def test_constants_must_fit_the_last_parameters() -> None:
    with pytest.raises(InternalError, match="constants do not fit"):
        Program(negation().module, (VECTOR,), (VECTOR,), "f", (np.zeros(3),))


def test_an_equation_has_the_users_line_and_scopes() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("layer"):
            return jnp.sin(x)

    (eqn,) = jax.make_jaxpr(model)(X).eqns
    loc = equation_location(eqn)
    assert loc is not None
    assert (loc.file, loc.line) == (__file__, model.__code__.co_firstlineno + 2)
    assert loc.function == "model"
    assert scopes_of(eqn) == ("layer",)


def test_functions_of_jax_are_told_from_the_users() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jax.jit(lambda y: y + 1)(jax.nn.silu(x)))(X)
    assert [is_library_function(eqn.params["jaxpr"].jaxpr) for eqn in jaxpr.eqns] == [True, False]


def test_typed_keys_have_words() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    assert is_key(keys.dtype)
    assert not is_key(X.dtype)
    dtype, shape = key_layout(keys.dtype)
    assert (np.dtype(dtype), shape) == (np.dtype(np.uint32), (2,))
    np.testing.assert_array_equal(key_words(keys), jax.random.key_data(keys))


def test_tangents_of_integers_are_known() -> None:
    assert is_float0(jax.dtypes.float0)
    assert not is_float0(np.dtype(np.bool_))


def test_the_users_flag_is_read_past_the_one_that_we_set_to_trace() -> None:
    assert not is_x64_enabled()
    with jax.enable_x64(True):
        assert is_x64_enabled()
        with tracing_with_x64(None):
            assert is_tracing_with_x64()
            assert not is_x64_enabled()
        with tracing_with_x64(True):
            assert is_x64_enabled()
    assert not is_tracing_with_x64()


def test_there_is_a_context_with_the_usual_checkpoint_and_an_answer_that_offloads() -> None:
    with without_remat3():
        (eqn,) = jax.make_jaxpr(jax.checkpoint(jax.numpy.sin))(1.0).jaxpr.eqns
    assert "policy" in eqn.params
    answer = offloadable("device", "pinned_host")
    assert (answer.src, answer.dst) == ("device", "pinned_host")


def test_parts_of_references_are_told_from_arrays() -> None:
    found: list[bool] = []

    def function() -> None:
        whole = jax.new_ref(jax.numpy.zeros(4))
        found.extend([is_part_of_reference(one) for one in (whole.at[1:3], whole, 1.0)])

    jax.make_jaxpr(function)()
    assert found == [True, False, False]


def test_references_of_a_functions_own_become_values_and_others_stay() -> None:
    def function(x: Any, given: Any) -> Any:
        own = jax.new_ref(x)
        own[0] = 2.0
        given[...] = own[...]
        return own[...]

    closed = jax.make_jaxpr(function)(X, jax.new_ref(X))
    assert is_reference(closed.jaxpr.invars[1].aval)
    assert makes_references(closed.jaxpr)
    assert not has_only_local_references(closed)
    found, captured = without_own_references(closed)
    assert captured == []
    assert not makes_references(found.jaxpr)
    assert "new_ref" not in str(found)
    assert [is_reference(variable.aval) for variable in found.jaxpr.invars] == [False, True]


def test_what_keeps_a_reference_to_itself_is_left_as_it_is() -> None:
    @jax.custom_jvp
    def square(x: Any) -> Any:
        inner = jax.new_ref(x)
        inner[...] *= x
        return inner[...]

    square.defjvp(lambda primals, tangents: (square(*primals), tangents[0]))

    def function(x: Any) -> Any:
        own = jax.new_ref(x)
        own[...] = square(own[...])
        return own[...]

    closed = jax.make_jaxpr(function)(X)
    assert has_only_local_references(closed)
    found, _ = without_own_references(closed)
    assert "custom_jvp_call" in [eqn.primitive.name for eqn in found.jaxpr.eqns]
    assert not makes_references(found.jaxpr)


def test_what_is_private_to_jax_is_imported_nowhere_else() -> None:
    root = Path(__file__).parents[2]
    files = [
        file for folder in ("cli", "compiler", "ir", "lowering", "passes") for file in (root / folder).rglob("*.py")
    ]
    private = {file.parent for file in files if "jax._src" in file.read_text(encoding="utf-8")}
    assert private == {root / "lowering" / "jax_internals"}
