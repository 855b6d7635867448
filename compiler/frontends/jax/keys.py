"""Import of typed random keys: arrays of words, with the words of a key along the last dimension.

What makes keys and random bits is JAX's own code for the keys' implementation, traced by JAX, so that the bits are
JAX's; what moves keys is applied to each of their words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from rematc.compiler.frontends.jax.block import OVER_WORDS, Block, imports
from rematc.compiler.frontends.jax.fallback import lowered
from rematc.compiler.frontends.jax.retracing import trace
from rematc.ir.builder import Builder
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import apply_equation, own_name
from rematc.lowering.jax_internals.keys import is_key, key_function, words_aval


@imports("random_wrap", "random_unwrap", "random_clone", keys=True)
def same_words(block: Block, eqn: Any) -> Sequence[Value]:
    """No equation: the words are the key."""
    return block.operands(eqn)


@imports("random_seed", "random_split", "random_fold_in", "random_bits", keys=True)
def random(block: Block, eqn: Any) -> Sequence[Value]:
    """The equations of the keys' implementation."""
    return block.inline(_remade(block, eqn, key_function(eqn)), block.operands(eqn), block.location(eqn))


@imports(OVER_WORDS)
def over_words(block: Block, eqn: Any) -> Sequence[Value]:
    """A primitive that moves elements, applied to each word of the keys; keys are equal if all their words are."""
    are_keys = [is_key(atom.aval.dtype) for atom in eqn.invars]
    compared = {"eq": jax.numpy.all, "ne": jax.numpy.any}.get(own_name(eqn.primitive))
    if compared is None and not all(is_key(variable.aval.dtype) for variable in eqn.outvars):
        block.fail(eqn, "cannot take typed keys; take them apart with jax.random.key_data")

    def function(*operands: Any) -> list[Any]:
        axes = [-1 if is_set else None for is_set in are_keys]

        def of_word(*words: Any) -> list[Any]:
            return apply_equation(eqn, words)

        found: list[Any] = jax.vmap(of_word, in_axes=axes, out_axes=-1)(*operands)
        return found if compared is None else [compared(one, axis=-1) for one in found]

    return block.inline(_remade(block, eqn, function), block.operands(eqn), block.location(eqn))


def _remade(block: Block, eqn: Any, function: Any) -> Any:
    """The closed jaxpr of a function of the words of an equation's inputs; the same one for equations alike."""
    avals = [words_aval(atom.aval) for atom in eqn.invars]
    key = (eqn.primitive, str(eqn.params), str(eqn.ctx), *[(atom.aval.dtype, atom.aval.shape) for atom in eqn.invars])
    found = block.shared.jaxprs.get(key)
    if found is None:
        found = block.shared.jaxprs[key] = trace(function, avals)
    return found


@imports("threefry2x32")
def threefry2x32(block: Block, eqn: Any) -> Sequence[Value]:
    """`threefry2x32` of the two words of a key, and of two arrays of counters."""
    b, shape = block.b, block.result_type(eqn).shape
    first, second, high, low = block.operands(eqn)
    # The dimensions in which there are several keys; a key for the elements along the others is the op's own meaning.
    rank = max(_last_of_many(first), _last_of_many(second))
    halves = [
        b.reshape(_spread(b, b.reshape(word, word.type.shape[:rank]), shape[:rank]), (*shape[:rank], 1))
        for word in (first, second)
    ]
    counters = [_spread(b, value, shape) for value in (high, low)]
    return b.emit(Threefry2x32(), b.concatenate(halves, rank), *counters)


def _last_of_many(x: Value) -> int:
    """How many dimensions there are up to the last whose size is not 1."""
    return max([index + 1 for index, size in enumerate(x.type.shape) if size != 1], default=0)


def _spread(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """The array repeated along dimensions of size 1; a scalar along all."""
    return b.broadcast_in_dim(x, shape, range(x.type.rank)) if x.type.shape != tuple(shape) else x


@imports("rng_bit_generator")
def rng_bit_generator(block: Block, eqn: Any) -> Sequence[Value]:
    """What JAX lowers it to: `rng_bit_generator`, between conversions of the state."""
    return block.b.inline(lowered(block, eqn), block.operands(eqn))
