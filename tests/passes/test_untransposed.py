"""Products of transposes read what is transposed, where XLA:CPU would take the transpose in 32 bits."""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from ml_dtypes import bfloat16

import rematc
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.arithmetic import Add, Multiply
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import Transpose
from rematc.ir.ops.transcendental import Tanh
from rematc.ir.types import BF16, F32, DType, TensorType
from rematc.ir.verifier import verify
from rematc.lowering.target import installed_jaxlib
from rematc.passes.legalize.untransposed import with_untransposed_factors

SHAPES = (2, 3, 4, 5), (2, 3, 5, 6)


def product(side: int, permutation: tuple[int, ...], dtype: DType = BF16) -> Graph:
    """A product of a batch of matrices, one of whose factors is a transpose."""
    b = Builder("f")
    operands = []
    for place, shape in enumerate(SHAPES):
        source = tuple([shape[permutation.index(d)] for d in range(4)]) if place == side else shape
        operands.append(b.parameter(TensorType(dtype, source), "xy"[place]))
    operands[side] = b.transpose(operands[side], permutation)
    return b.build(b.emit1(DotGeneral(((3,), (2,)), ((0, 1), (0, 1))), *operands))


@pytest.mark.parametrize("side", [0, 1])
def test_they_are_the_same_product_whatever_the_order(side: int) -> None:
    random = np.random.default_rng(0)
    for permutation in itertools.permutations(range(4)):
        graph = product(side, permutation)
        changed = with_untransposed_factors(graph)
        verify(changed)
        left = [eqn for eqn in changed.equations if isinstance(eqn.op, Transpose)]
        assert bool(left) is (side == 0 and permutation == (0, 1, 3, 2)), "which XLA takes in 32 bits either way"
        arguments = [random.integers(-2, 3, type.shape).astype(bfloat16) for type in graph.param_types]
        for old, new in zip(evaluate(graph, arguments), evaluate(changed, arguments), strict=True):
            np.testing.assert_array_equal(old, new)


def test_what_was_done_since_is_done_to_what_is_transposed() -> None:
    b = Builder("f")
    x, y, z = [b.parameter(TensorType(BF16, shape), "xyz") for shape in ((2, 3, 4, 5), (2, 5, 3, 6), (2, 5, 3, 6))]
    number = b.parameter(TensorType(BF16, ()), "number")
    moved, other = b.transpose(y, (0, 2, 1, 3)), b.transpose(z, (0, 2, 1, 3))
    sums = b.emit1(Add(), b.emit1(Multiply(), moved, b.broadcast_in_dim(number, moved.type.shape, ())), other)
    graph = b.build(b.emit1(DotGeneral(((3,), (2,)), ((0, 1), (0, 1))), x, b.emit1(Tanh(), sums)))
    changed = with_untransposed_factors(graph)
    verify(changed)
    assert not [eqn for eqn in changed.equations if isinstance(eqn.op, Transpose)]
    random = np.random.default_rng(0)
    arguments = [random.integers(-2, 3, type.shape).astype(bfloat16) for type in graph.param_types]
    for old, new in zip(evaluate(graph, arguments), evaluate(changed, arguments), strict=True):
        np.testing.assert_array_equal(old, new)


def test_rows_of_work_may_be_long() -> None:
    b = Builder("f")
    x, y = b.parameter(TensorType(BF16, SHAPES[0]), "x"), b.parameter(TensorType(BF16, (2, 5, 3, 6)), "y")
    moved = b.transpose(y, (0, 2, 1, 3))
    for _ in range(3000):
        moved = b.emit1(Add(), moved, moved)
    changed = with_untransposed_factors(b.build(b.emit1(DotGeneral(((3,), (2,)), ((0, 1), (0, 1))), x, moved)))
    verify(changed)
    assert not [eqn for eqn in changed.equations if isinstance(eqn.op, Transpose)]
    assert len(changed.equations) == 3001


def test_what_only_one_term_is_a_transpose_of_stays() -> None:
    b = Builder("f")
    x, y, z = [b.parameter(TensorType(BF16, shape), "xyz") for shape in ((2, 3, 4, 5), (2, 5, 3, 6), (2, 3, 5, 6))]
    sums = b.emit1(Add(), b.transpose(y, (0, 2, 1, 3)), z)
    graph = b.build(b.emit1(DotGeneral(((3,), (2,)), ((0, 1), (0, 1))), x, sums))
    assert with_untransposed_factors(graph) is graph


def test_what_xla_multiplies_as_it_is_stays() -> None:
    graph = product(1, (0, 2, 1, 3), F32)
    assert with_untransposed_factors(graph) is graph


def test_results_keep_the_order_of_their_dimensions() -> None:
    """Two dimensions of a factor are in the result, and the transpose has them in the other order."""
    b = Builder("f")
    x, y = b.parameter(TensorType(BF16, (2, 3, 4)), "x"), b.parameter(TensorType(BF16, (4, 6)), "y")
    graph = b.build(b.emit1(DotGeneral(((2,), (0,)), ((), ())), b.transpose(x, (1, 0, 2)), y))
    assert with_untransposed_factors(graph) is graph


def attention(weights: Any, x: Any) -> Any:
    x = x.astype(jnp.bfloat16)
    for _ in range(2):
        query, key, value = [(x @ weight).reshape(2, 256, 4, 64).transpose(0, 2, 1, 3) for weight in weights]
        scores = jnp.einsum("bhtd,bhsd->bhts", query, key).astype(jnp.float32)
        mixed = jnp.einsum("bhts,bhsd->bhtd", jnp.exp(jnp.minimum(scores, 0)).astype(x.dtype), value)
        x = x + mixed.transpose(0, 2, 1, 3).reshape(x.shape)
    return jnp.mean(x.astype(jnp.float32) ** 2)


@pytest.mark.skipif(installed_jaxlib() < (0, 12), reason="takes all matrices in 32 bits")
@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_xla_multiplies_heads_in_16_bits(policy: str | None) -> None:
    weights = [np.full((256, 256), 0.01, bfloat16)] * 3
    x = np.ones((2, 256, 256), np.float32)
    compiled = rematc.compile(rematc.value_and_grad(rematc.from_jax(attention), policy=policy), weights, x)
    products = [line for line in compiled.hlo_optimized().splitlines() if " dot(" in line]
    assert products
    assert not [line for line in products if "= f32[2,4," in line]


@pytest.mark.parametrize("scaled", [0, 1])
def test_products_of_what_follows_from_a_transpose_are_predicted_in_32_bits(scaled: int) -> None:
    """Of a sum XLA has the first term's order: of two, with one a transpose, only that where it comes first."""

    def loss(x: Any, y: Any, z: Any) -> Any:
        terms = [y.transpose(0, 2, 1, 3), z]
        factor = terms[scaled] + terms[1 - scaled]
        return jnp.einsum("bhts,bhsd->bhtd", jnp.tanh(x), factor) * 2

    shapes = (4, 4, 512, 512), (4, 512, 4, 64), (4, 4, 512, 64)
    arguments = [np.ones(shape, bfloat16) for shape in shapes]
    lowered = rematc.lower(rematc.from_jax(loss), *arguments)
    taken = lowered.compile().memory().temp_bytes
    assert 0.95 * taken <= lowered.predicted_peak() <= 1.05 * taken
