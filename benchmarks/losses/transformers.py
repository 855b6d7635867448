"""Losses of the models for flax in transformers (before version 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from transformers import BertConfig, FlaxBertForMaskedLM, FlaxGPT2LMHeadModel, GPT2Config

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def gpt2() -> Built:
    model = FlaxGPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=4), seed=0)
    tokens = jax.random.randint(KEY, (4, 33), 0, 128)

    def loss(params: Any, tokens: Any, key: Any) -> Any:
        logits = model(tokens[:, :-1], params=params, dropout_rng=key, train=True).logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss, (model.params, tokens, jax.random.PRNGKey(1))


def bert() -> Built:
    config = BertConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
    )
    model = FlaxBertForMaskedLM(config, seed=0)
    tokens = jax.random.randint(KEY, (4, 32), 0, 128)
    mask = (jnp.arange(32) < jnp.array([[32], [20], [28], [9]])).astype(jnp.int32)

    def loss(params: Any, tokens: Any, mask: Any) -> Any:
        logits = model(tokens, attention_mask=mask, params=params).logits
        errors = optax.softmax_cross_entropy_with_integer_labels(logits, tokens)
        return jnp.sum(errors * mask) / jnp.sum(mask)

    return loss, (model.params, tokens, mask)


LOSSES = (
    # The models compute in their own element type, float32, whatever that of their parameters is.
    Loss("transformers-gpt2", "GPT-2 with dropout", gpt2, is_single=True),
    Loss("transformers-bert", "BERT with padding", bert, is_single=True),
)
