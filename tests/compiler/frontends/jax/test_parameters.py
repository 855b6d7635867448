"""What an equation says beside its operands is read, changes nothing, or is an error at its line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import effects
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, mlir

import rematc
import rematc.jax
from rematc.compiler.frontends.jax.importing import graph_of_jaxpr
from rematc.ir.errors import CompileError
from rematc.lowering.jax_internals import check_internals
from rematc.lowering.jax_internals.jaxprs import own_name

from_jax: Any = rematc.from_jax
X: Any = np.asarray([[0.5, 0.25], [-1.5, 2.0]], np.float32)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elementwise": jnp.tanh,
    "product": lambda x: x @ x,
    "reduction": jnp.sum,
    "sort": lax.sort,
    "gather": lambda x: x[np.array([1, 0])],
    "scatter": lambda x: x.at[np.array([1, 0])].add(1),
    "loop": lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=2)[0],
    "while": lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + 1, x),
    "branch": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "call": jax.jit(lambda x: x + 1),
    "checkpoint": jax.checkpoint(jnp.sin),
    "shape": lambda x: jnp.broadcast_to(x.reshape(4)[None], (2, 4)).T,
    "decomposition": lambda x: jnp.linalg.eigh(x)[0],
    "random": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "complex": lambda x: jnp.fft.fft(x).real,
    "window": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME"),
    "running": lambda x: jnp.cumsum(x, 0),
    "composite": lax.composite(lambda x: x + 1, "of.somebody"),
    "no elements": lambda x: x[np.zeros(0, np.int32)],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_parameter_that_no_rule_knows_is_an_error(name: str) -> None:
    """As a later JAX may have one: each of the equations is imported as it is, and refused with one more."""
    closed = jax.make_jaxpr(FUNCTIONS[name])(X)
    graph_of_jaxpr(closed)
    for index, eqn in enumerate(closed.jaxpr.eqns):
        eqns = list(closed.jaxpr.eqns)
        eqns[index] = eqn.replace(params={**eqn.params, "novelty": 7})
        with pytest.raises(CompileError, match=f"JAX's '{eqn.primitive.name}' has novelty = 7, which has no op"):
            graph_of_jaxpr(ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts))


def test_an_accuracy_that_jax_asks_for_in_derivatives_is_kept() -> None:
    """As that of `erfc`, which an exact gelu is made of, in jax 0.12."""
    asked = from_jax(lambda x: lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST))
    compiled: Any = rematc.compile(asked, X)
    assert "result_accuracy_mode<HIGHEST>" in compiled.stablehlo()
    assert np.array_equal(compiled(X), np.asarray(asked(X)))
    assert "result_accuracy" not in rematc.compile(from_jax(lax.exp), X).stablehlo()
    gelu = jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum())
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    expected = jax.jit(gelu)(x)
    imported = rematc.from_stablehlo(jax.jit(gelu).lower(x).as_text())
    for function in (from_jax(gelu), imported):  # to what XLA:CPU rounds in one fusion and not in the other
        compiled = rematc.compile(function, x)
        np.testing.assert_allclose(compiled(x), expected, rtol=2e-6, atol=1e-7)


def test_values_that_no_op_has_are_errors() -> None:
    with pytest.raises(CompileError, match=r"test_parameters.py:\d+:\d+: error: JAX's 'sin' has accuracy = .*HIGHEST"):
        from_jax(lambda x: lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST))(X)
    with pytest.raises(CompileError, match=r"test_parameters.py:\d+:\d+: error: JAX's 'exp' has accuracy = .*Tol"):
        from_jax(lambda x: lax.exp(x, accuracy=lax.Tolerance(ulps=1)))(X)
    jacobi = lax.linalg.EighImplementation.JACOBI
    with pytest.raises(CompileError, match=r"JAX's 'eigh' has algorithm = .*JACOBI"):
        from_jax(lambda x: lax.linalg.eigh(x, implementation=jacobi)[1])(X)


def test_what_a_block_tells_xla_is_an_error_and_left_to_jax_under_a_checkpoint() -> None:
    def told(x: Any) -> Any:
        with set_xla_metadata(group="1"):  # type: ignore[no-untyped-call]  # left unannotated
            return jnp.sum(jnp.sin(x))

    for derive in (from_jax, rematc.jax.grad):
        with pytest.raises(CompileError, match=r"JAX's 'sin' has metadata for XLA \({'group': '1'}\)"):
            derive(told)(X)
    np.testing.assert_allclose(jax.grad(rematc.jax.checkpoint(told))(X), np.cos(X), rtol=1e-6)


def test_a_primitive_of_somebody_elses_is_not_one_of_jaxs_of_the_same_name() -> None:
    """JAX's `empty` gives zeros."""
    empty: Any = Primitive("empty")
    empty.def_impl(lambda x: x + 1)
    empty.def_abstract_eval(lambda x: x)
    mlir.register_lowering(empty, mlir.lower_fun(lambda x: x + 1, multiple_results=False))
    rules: Any = ad
    rules.defjvp(empty, lambda tangent, x: 3 * tangent)
    assert own_name(empty) == ""
    assert own_name(jax.lax.sin_p) == "sin"
    np.testing.assert_allclose(from_jax(empty.bind)(X), X + 1)

    def loss(x: Any) -> Any:
        return jnp.sum(empty.bind(x))

    slopes: list[Any] = [rematc.grad(from_jax(loss)), rematc.jax.grad(loss), jax.grad(rematc.jax.checkpoint(loss))]
    for slope in slopes:
        np.testing.assert_allclose(slope(X), np.full_like(X, 3))


class _Logged(effects.Effect):
    """What a primitive of somebody's does besides computing."""

    def __str__(self) -> str:
        return "Logged"


def test_effects_that_a_lowering_does_not_have_are_an_error() -> None:
    logged: Any = Primitive("logged")
    logged.def_impl(lambda x: x + 1)
    logged.def_effectful_abstract_eval(lambda x: (x, {_Logged()}))
    mlir.register_lowering(logged, mlir.lower_fun(lambda x: x + 1, multiple_results=False))
    for allowed in (effects.lowerable_effects, effects.control_flow_allowed_effects):
        allowed.add_type(_Logged)
    for function in (from_jax(logged.bind), rematc.jax.grad(lambda x: jnp.sum(logged.bind(x)))):
        with pytest.raises(CompileError, match=r"JAX's 'logged' has effects \(Logged\), which are not in what it is"):
            function(X)


def test_an_attribute_that_a_later_jax_lacks_is_an_error_at_import() -> None:
    with pytest.raises(ImportError, match=r"jax .* has no ShapedArray.mat_of_old, which rematc reads; it works with"):
        check_internals({jax.core.ShapedArray: ("mat", "mat_of_old")})


def test_importing_rematc_leaves_jaxs_lowerings_alone() -> None:
    """The first recomputation that goes back into JAX needs one of its own, before jaxlib 0.12."""
    program = """
from jax._src.ad_checkpoint import remat_p
from jax._src.interpreters import mlir
before = {platform: dict(rules) for platform, rules in mlir._platform_specific_lowerings.items()}, dict(mlir._lowerings)
import rematc.jax
for platform, rules in before[0].items():
    now = mlir._platform_specific_lowerings[platform]
    changed = [one.name for one, rule in now.items() if one in rules and rules[one] is not rule or one is remat_p]
    assert not changed, (platform, changed)
changed = [one.name for one, rule in before[1].items() if mlir._lowerings[one] is not rule]
assert not changed, changed
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
