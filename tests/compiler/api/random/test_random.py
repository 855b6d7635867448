"""rematc.random: the numbers of jax.random, traced or not, in batches and loops, and again under a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import rematc
from rematc import random
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.values import Array
from rematc.passes.accounting import flat_equations
from tests.support.samples import in_double

KEY = random.key(42)
JAX_KEY = jax.random.key(42)
SHAPE = (40, 5)
LOGITS = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
P = np.array([0.1, 0.2, 0.3, 0.4], np.float32)

#: Calls with the same arguments here and in jax.random, whose results have the same bits.
EXACT = {
    "bits-u8": ("bits", (SHAPE, "uint8")),
    "bits-u16": ("bits", (SHAPE, "uint16")),
    "bits-u32": ("bits", (SHAPE, "uint32")),
    "uniform": ("uniform", (SHAPE,)),
    "uniform-scalar": ("uniform", ()),
    "uniform-empty": ("uniform", ((0, 3),)),
    "uniform-f16": ("uniform", (SHAPE, "float16")),
    "uniform-bf16": ("uniform", (SHAPE, "bfloat16")),
    "bernoulli": ("bernoulli", (0.3, SHAPE)),
    "bernoulli-of-each": ("bernoulli", (P,)),
    "randint": ("randint", (SHAPE, -5, 17)),
    "randint-i8": ("randint", (SHAPE, -128, 128, "int8")),
    "randint-u8": ("randint", (SHAPE, 0, 256, "uint8")),
    "randint-u32": ("randint", (SHAPE, 0, 1000, "uint32")),
    "randint-empty": ("randint", (SHAPE, 3, 3)),
    "randint-of-each": ("randint", (SHAPE, np.arange(5), 7 * np.arange(5) + 1)),
    "categorical": ("categorical", (LOGITS,)),
    "categorical-axis": ("categorical", (LOGITS, 0)),
    "categorical-shape": ("categorical", (LOGITS, -1, (6, 4))),
    "permutation": ("permutation", (1000,)),
    "permutation-of-none": ("permutation", (0,)),
    "permutation-of-array": ("permutation", (LOGITS, 1)),
    "permutation-independent": ("permutation", (LOGITS, 1, True)),
    "choice": ("choice", (10, SHAPE)),
    "choice-once": ("choice", (LOGITS, (2,), False)),
    "choice-weighted": ("choice", (LOGITS, (20, 3), True, P)),
    "choice-weighted-once": ("choice", (4, (3,), False, P)),
    "choice-axis": ("choice", (LOGITS, (2, 2), True, None, 1)),
}
#: Whether XLA rounds between a product and a sum, and how it approximates logarithms, depends on what it computes
#: beside them, and on its version.
ROUNDED = {
    "uniform-bounds": ("uniform", (SHAPE, "float32", -2.0, np.arange(5, dtype=np.float32))),
    "normal": ("normal", (SHAPE,)),
    "normal-bf16": ("normal", (SHAPE, "bfloat16")),
    "truncated_normal": ("truncated_normal", (-2.0, 1.5, SHAPE)),
    "truncated_normal-of-each": ("truncated_normal", (P, P + 1)),
    "exponential": ("exponential", (SHAPE,)),
    "gumbel": ("gumbel", (SHAPE,)),
    "laplace": ("laplace", (SHAPE,)),
    "laplace-f16": ("laplace", (SHAPE, "float16")),
    "normal-c64": ("normal", (SHAPE, "complex64")),
}
DOUBLE = {
    "bits-u64": ("bits", (SHAPE, "uint64")),
    "uniform-f64": ("uniform", (SHAPE, "float64")),
    "randint-i64": ("randint", (SHAPE, -(2**63), 2**63 - 1, "int64")),
}


def of_jax(name: str, args: tuple[Any, ...]) -> Array:
    return np.asarray(getattr(jax.random, name)(JAX_KEY, *args))


def of_rematc(name: str, args: tuple[Any, ...]) -> Array:
    return np.asarray(getattr(random, name)(KEY, *args))


def assert_same(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("name", "args"), EXACT.values(), ids=EXACT)
def test_numbers_are_those_of_jax(name: str, args: tuple[Any, ...]) -> None:
    assert_same(of_rematc(name, args), of_jax(name, args))


@pytest.mark.parametrize(("name", "args"), ROUNDED.values(), ids=ROUNDED)
def test_numbers_are_those_of_jax_but_for_rounding(name: str, args: tuple[Any, ...]) -> None:
    found, expected = of_rematc(name, args), of_jax(name, args)
    assert found.dtype == expected.dtype
    unit = 4 * float(ml_dtypes.finfo(found.real.dtype).eps)  # type: ignore[no-untyped-call]  # ml_dtypes
    np.testing.assert_allclose(in_double(found), in_double(expected), rtol=unit, atol=unit)


@pytest.mark.parametrize(("name", "args"), DOUBLE.values(), ids=DOUBLE)
def test_numbers_of_64_bits_are_those_of_jax(name: str, args: tuple[Any, ...]) -> None:
    with jax.enable_x64(True):
        expected = of_jax(name, args)
    assert_same(of_rematc(name, args), expected)


@pytest.mark.parametrize("seed", [0, 42, 2**31, 2**32 - 1])
def test_keys_are_those_of_jax(seed: int) -> None:
    expected = np.asarray(jax.random.key_data(jax.random.key(seed)))
    assert_same(random.key(seed), expected)
    assert_same(np.asarray(random.key(np.asarray(seed))), expected)
    assert_same(np.asarray(rematc.jit(random.key)(np.int64(seed))), expected)


@pytest.mark.parametrize("seed", [-1, 2**40 + 3, -(2**63), np.int64(-7)])
def test_seeds_of_64_bits_give_both_words(seed: int) -> None:
    with jax.enable_x64(True):
        assert_same(random.key(seed), np.asarray(jax.random.key_data(jax.random.key(seed))))


def test_split_and_fold_in_are_those_of_jax() -> None:
    for shape in (2, 5, (2, 3), 0):
        expected = jax.random.key_data(jax.random.split(JAX_KEY, shape))
        assert_same(np.asarray(random.split(KEY, shape)), np.asarray(expected))
    for data in (0, 7, 2**32 - 1):
        expected = jax.random.key_data(jax.random.fold_in(JAX_KEY, data))
        assert_same(np.asarray(random.fold_in(KEY, data)), np.asarray(expected))


def test_typed_key_of_jax_is_taken() -> None:
    assert_same(np.asarray(random.normal(JAX_KEY, (3,))), of_rematc("normal", ((3,),)))
    with pytest.raises(rematc.CompileError, match=r"threefry2x32, got a key of 'rbg'"):
        random.normal(jax.random.key(0, impl="rbg"))


TRACED = ("bits-u32", "uniform", "permutation-independent", "bernoulli", "categorical", "choice-weighted")
CALLS = {name: EXACT[name] for name in TRACED}


@pytest.mark.parametrize(("name", "args"), CALLS.values(), ids=CALLS)
def test_traced_numbers_have_the_bits_of_eager_ones(name: str, args: tuple[Any, ...]) -> None:
    traced = rematc.jit(lambda key: getattr(random, name)(key, *args))(KEY)
    assert_same(np.asarray(traced), of_rematc(name, args))


def test_each_key_of_a_batch_has_its_numbers() -> None:
    keys = np.asarray(random.split(KEY, 4))
    found = rematc.vmap(lambda key: random.randint(key, (3,), 0, 1000))(keys)
    assert_same(np.asarray(found), np.stack([np.asarray(random.randint(key, (3,), 0, 1000)) for key in keys]))


def test_keys_are_carried_and_folded_in_loops() -> None:
    def step(key: Any, index: Any) -> tuple[Any, Any]:
        following, own = random.split(key)
        return following, (random.bits(own, (2,)), random.bits(random.fold_in(KEY, index), (2,)))

    outcome: Any = rematc.scan(step, KEY, np.arange(3))
    split, folded = outcome[1]
    key = KEY
    for index in range(3):
        key, own = np.asarray(random.split(key))
        assert_same(np.asarray(split[index]), np.asarray(random.bits(own, (2,))))
        assert_same(np.asarray(folded[index]), np.asarray(random.bits(random.fold_in(KEY, index), (2,))))


# -- derivatives -------------------------------------------------------------------------------------------------------


def test_uniform_is_differentiated_with_respect_to_its_bounds() -> None:
    def total(low: Any, high: Any) -> Any:
        return np.sum(random.uniform(KEY, (20,), np.float64, low, high))

    slopes: Any = rematc.grad(total, argnums=(0, 1))(0.5, 2.0)
    by_low, by_high = slopes
    u = np.asarray(random.uniform(KEY, (20,), np.float64))
    np.testing.assert_allclose(by_low, np.sum(1 - u), rtol=1e-12)
    np.testing.assert_allclose(by_high, np.sum(u), rtol=1e-12)


def test_truncated_normal_is_differentiated_with_respect_to_its_bounds() -> None:
    def total(low: Any, high: Any) -> Any:
        return np.sum(random.truncated_normal(KEY, low, high, (20,), np.float64))

    def of_jax(low: Any, high: Any) -> Any:
        return jax.numpy.sum(jax.random.truncated_normal(JAX_KEY, low, high, (20,), np.float64))

    with jax.enable_x64(True):
        expected = jax.grad(of_jax, argnums=(0, 1))(-0.5, 1.5)
    found: Any = rematc.grad(total, argnums=(0, 1))(-0.5, 1.5)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


# -- dropout and checkpoints -------------------------------------------------------------------------------------------


def dropped(x: Any, key: Any) -> Any:
    for layer in range(3):
        x = np.sin(random.dropout(random.fold_in(key, layer), np.sin(x), 0.4))
    return np.sum(x)


X = np.linspace(0, 1, 60, dtype=np.float32).reshape(6, 10)


def test_dropout_scales_what_it_keeps() -> None:
    found = np.asarray(random.dropout(KEY, np.ones((100, 100), np.float32), 0.3))
    assert set(np.unique(found)) == {0.0, np.float32(1 / 0.7)}
    # Four standard deviations of a count of 10,000.
    assert abs((found > 0).mean() - 0.7) < 4 * np.sqrt(0.3 * 0.7 / 10_000)


@pytest.mark.parametrize("rate", [0, 0.0, 1, 1.0])
def test_dropout_of_all_or_nothing(rate: float) -> None:
    result: Any = rematc.value_and_grad(lambda x: np.sum(random.dropout(KEY, x, rate)))(X)
    value, slope = result
    np.testing.assert_array_equal(slope, np.full_like(X, 1 - rate))
    np.testing.assert_allclose(value, X.sum() * (1 - rate), rtol=1e-6)


def test_checkpoint_recomputes_masks_bit_for_bit() -> None:
    plain = np.asarray(rematc.grad(dropped)(X, KEY))
    for policy in (None, "nothing", "dots", "everything"):
        again = rematc.grad(rematc.checkpoint(dropped, policy=policy))(X, KEY)
        assert_same(np.asarray(again), plain)


def test_checkpoint_saves_no_mask() -> None:
    saved = rematc.saved_residuals(rematc.checkpoint(dropped), X, KEY)
    assert sorted(str(one.type) for one in saved) == ["f32[6,10]", "u32[2]"]
    masks = [one for one in rematc.saved_residuals(dropped, X, KEY) if str(one.type) == "bool[6,10]"]
    assert len(masks) == 3


def test_a_draw_is_one_equation_of_bits() -> None:
    graph = rematc.trace(dropped, X, KEY)
    # Of each layer one for the key and one for the mask.
    assert sum(isinstance(eqn.op, Threefry2x32) for eqn in flat_equations(graph)) == 6


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="functions are kept apart on the CPU alone")
def test_a_key_is_hashed_once_and_not_for_each_element_that_is_drawn_with_it() -> None:
    def drawn(x: Any, key: Any) -> Any:
        first, _ = random.split(key)
        return np.sum(x * random.uniform(first, x.shape))

    compiled = rematc.compile(rematc.value_and_grad(drawn), np.ones((64, 64), np.float32), KEY)
    text = compiled.hlo_optimized()
    calls = [line for line in text.splitlines() if " call(" in line and 'recomputes="false"' in line]
    assert [bool(re.search(r"u32\[2\]", line)) for line in calls] == [True], calls
    # Of the draw the rounds stand in a fusion: of many words no function is kept apart.
    assert re.search(r"u32\[(64,)?\d+\]\S* shift-left", text)
    assert compiled.check().comparison.barriers == 0


# -- errors ------------------------------------------------------------------------------------------------------------

KEYS = np.zeros((5, 2), np.uint32)
ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "float key": (lambda: random.normal(0.5), r"normal takes a key, u32\[2\], got f64\[\]; make one with rematc.r"),
    "seed as key": (lambda: random.normal(42), r"normal takes a key, u32\[2\], got i64\[\]"),
    "no array": (lambda: random.normal("key"), r"normal takes an array as the key, got a str"),
    "many keys": (lambda: random.bits(KEYS), r"bits takes one key, .* got an array of keys, u32\[5,2\]; .*vmap"),
    "key of floats": (lambda: random.split(np.zeros(2)), r"split takes a key, u32\[2\], got f64\[2\]"),
    "short key": (lambda: random.split(np.zeros(3, np.uint32)), r"split takes a key, u32\[2\], got u32\[3\]"),
    "negative size": (lambda: random.uniform(KEY, (2, -1)), r"shape of uniform has a negative size: \(2, -1\)"),
    "negative number": (lambda: random.split(KEY, -2), r"shape of split has a negative size"),
    "float size": (lambda: random.uniform(KEY, (2.0,)), r"shape of uniform is a tuple of integers, got \(2\.0,\)"),
    "integer uniform": (lambda: random.uniform(KEY, (), int), r"uniform takes float16, .* as dtype, got int64"),
    "float randint": (lambda: random.randint(KEY, (), 0, 9, float), r"randint takes an integer type .*, got float64"),
    "float bound": (lambda: random.randint(KEY, (), 0.0, 9), r"randint takes integers as minval, got f64\[\]"),
    "unknown dtype": (lambda: random.bits(KEY, (), "x32"), r"bits takes .* as dtype, got 'x32'"),
    "bounds": (
        lambda: random.uniform(KEY, (2,), minval=np.zeros(3)),
        r"takes a minval that broadcasts to it, got f64\[",
    ),
    "integer p": (lambda: random.bernoulli(KEY, 1), r"bernoulli takes a probability, a float, as p, got i64\[\]"),
    "rate": (lambda: random.dropout(KEY, X, 1.5), r"dropout takes a number from 0 to 1 as rate, got 1.5"),
    "dropout of integers": (lambda: random.dropout(KEY, KEY, 0.5), r"dropout takes an array of floats, got u32\[2\]"),
    "too many draws": (lambda: random.choice(KEY, 3, (4,), False), r"cannot draw 4 of 3 elements without replacement"),
    "no elements": (lambda: random.choice(KEY, 0, (4,)), r"choice has nothing to draw from"),
    "weights": (lambda: random.choice(KEY, 3, (4,), p=P), r"choice takes a float for each of the 3 elements as p"),
    "logits": (
        lambda: random.categorical(KEY, KEYS),
        r"categorical takes an array of floats as logits, got u32\[5,2\]",
    ),
    "classes": (lambda: random.categorical(KEY, LOGITS, 2), r"categorical along axis 2 of logits f32\[4,9\]"),
    "categories": (
        lambda: random.categorical(KEY, LOGITS, shape=(9,)),
        r"gives a shape that ends in \(4,\), not \(9,\)",
    ),
    "permuted axis": (lambda: random.permutation(KEY, LOGITS, 2), r"permutation along axis 2 of f32\[4,9\]"),
    "seed": (lambda: random.key(0.5), r"rematc.random.key takes an integer as seed, got f64\[\]"),
    "long seed": (lambda: random.key(2**64), r"a seed has 64 bits, got 18446744073709551616"),
    "folded array": (lambda: random.fold_in(KEY, np.arange(3)), r"fold_in takes an integer scalar, got i64\[3\]"),
    "folded float": (lambda: random.fold_in(KEY, 0.5), r"fold_in takes an integer scalar, got f64\[\]"),
}


@pytest.mark.parametrize(("call", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_name_the_users_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(rematc.CompileError) as caught:
        call()
    assert re.search(message, caught.value.message)
    assert caught.value.loc is not None
    assert caught.value.loc.line == call.__code__.co_firstlineno
    assert caught.value.loc.file == __file__


def test_sizes_must_be_known_while_tracing() -> None:
    with pytest.raises(rematc.CompileError, match=r"shape of normal must be known while tracing, got a traced i64\[\]"):
        rematc.jit(lambda n: random.normal(KEY, n))(3)
    with pytest.raises(rematc.CompileError, match=r"length of permutation must be known while tracing"):
        rematc.jit(lambda n: random.permutation(KEY, n))(3)
