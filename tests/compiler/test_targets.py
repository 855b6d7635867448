"""What differs from platform to platform is what the target's platform has, and is refused on others."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax as rjax
from rematc.ir.errors import CompileError
from rematc.lowering.jax_export.exporting import opaque_function
from rematc.lowering.module import stablehlo_text
from rematc.lowering.target import Target
from rematc.lowering.targeting import targeting

X = np.ones(4, np.float32)
MATRIX = np.eye(4, dtype=np.float32) + 1


def branching(x: Any) -> Any:
    """Another function on each platform."""
    return jax.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.tanh)


def loss(x: Any) -> Any:
    return jnp.sum(branching(x) ** 2)


@pytest.mark.parametrize(
    ("platform", "op"), [("cpu", "sine"), ("cuda", "cosine"), ("tpu", "tanh"), ("rocm", "tanh"), (None, "sine")]
)
def test_a_function_is_imported_as_it_is_on_its_platform(platform: str | None, op: str) -> None:
    text = rematc.lower(rematc.from_jax(branching), X, target=platform).stablehlo()
    assert [other for other in ("sine", "cosine", "tanh") if f"stablehlo.{other}" in text] == [op]


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_primitive_is_lowered_as_on_its_platform(platform: str) -> None:
    def function(a: Any) -> Any:
        return jax.lax.linalg.tridiagonal_solve(a, a + 2, a, jnp.ones((4, 1), jnp.float32))

    try:
        theirs = jax.jit(function).trace(X).lower(lowering_platforms=(platform,)).as_text()
    except NotImplementedError:
        pytest.skip("JAX has no such kernel there")
    ours = rematc.lower(rematc.from_jax(function), X, target=platform)
    targets = [line.split("@")[1].split("(")[0] for line in theirs.splitlines() if "custom_call @" in line]
    assert list(ours.program.module.calls) == list(dict.fromkeys(targets))
    if targets:
        assert ours.program.platform == platform


def test_what_was_imported_for_one_platform_is_refused_on_another() -> None:
    lowered = rematc.lower(rematc.from_jax(branching), X)
    assert lowered.program.platform == "cpu" and lowered.program_for("cpu") is lowered.program
    refused = r"was traced for platform 'cpu', on which '\w+' is not what it is on 'cuda'; trace it for 'cuda'"
    with pytest.raises(CompileError, match=refused) as caught:
        lowered.stablehlo("cuda")
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    step = jax.jit(rematc.jit(rematc.from_jax(branching)))
    np.testing.assert_allclose(step(X), np.sin(X), rtol=1e-6)
    with pytest.raises(CompileError, match=refused):
        step.trace(X).lower(lowering_platforms=("cuda",))


@pytest.mark.parametrize(
    "step",
    [
        rjax.value_and_grad(loss),
        rjax.value_and_grad(loss, policy="nothing"),
        jax.vmap(rjax.grad(branching)),
        jax.grad(rjax.checkpoint(loss, policy="nothing")),
        lambda x: jax.jvp(rjax.grad(loss), (x,), (x,)),
        lambda x: rjax.vjp(loss, x)[0],
    ],
)
def test_so_it_is_in_programs_of_jaxs(step: Any) -> None:
    jax.block_until_ready(jax.jit(step)(X))  # type: ignore[no-untyped-call]  # JAX leaves it without annotations
    with pytest.raises(CompileError, match="was traced for platform 'cpu'"):
        jax.jit(step).trace(X).lower(lowering_platforms=("cuda",))
    with pytest.raises(CompileError, match="was traced for platform 'cpu'"):
        jax.export.export(jax.jit(step), platforms=("cpu", "tpu"))(X)
    jax.export.export(jax.jit(step), platforms=("cpu",))(X)


def test_a_program_of_jaxs_is_imported_for_the_target_that_is_given() -> None:
    with targeting(Target.of("cuda")):
        text = jax.jit(rjax.grad(loss)).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.cosine" in text
    np.testing.assert_allclose(rjax.grad(loss)(X), jax.grad(loss)(X), rtol=1e-6)
    # One that came out of rematc comes in again, and is still for one platform alone.
    again = rematc.lower(rematc.from_jax(rjax.grad(loss)), X)
    assert again.program.choice is not None and again.program.choice.what == "platform_index"


def test_an_export_for_several_platforms_has_the_text_of_each() -> None:
    graph = rematc.trace(np.linalg.inv, MATRIX)
    function: Any = jax.jit(opaque_function(graph))
    exported = jax.export.export(function, platforms=("cpu", "cuda"), disabled_checks=CHECKS)(MATRIX)
    text = exported.mlir_module()
    assert "@lapack_sgetrf_ffi" in text and "@cusolver_getrf_ffi" in text
    (found,) = exported.call(MATRIX)  # type: ignore[no-untyped-call]  # JAX leaves it without annotations
    np.testing.assert_allclose(found @ MATRIX, np.eye(4), atol=1e-5)
    with pytest.raises(CompileError, match="'lu' has no kernel on platform 'tpu'"):
        jax.export.export(function, platforms=("cpu", "tpu"), disabled_checks=CHECKS)(MATRIX)
    # What is the same everywhere is written once.
    plain: Any = jax.jit(opaque_function(rematc.trace(np.sin, X)))
    assert "stablehlo.case" not in jax.export.export(plain, platforms=("cpu", "cuda"))(X).mlir_module()
    assert stablehlo_text(graph) != stablehlo_text(graph, Target.of("cuda"))


CHECKS = [
    jax.export.DisabledSafetyCheck.custom_call(name)
    for name in ("lapack_sgetrf_ffi", "cusolver_getrf_ffi", "cu_lu_pivots_to_permutation", "lapack_strsm_ffi")
]
