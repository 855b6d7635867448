"""Losses of penzai's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from penzai import pz
from penzai.models.transformer.variants import llamalike_common

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def llama() -> Built:
    config = llamalike_common.LlamalikeTransformerConfig(
        num_kv_heads=2,
        query_head_multiplier=2,
        embedding_dim=64,
        projection_dim=16,
        mlp_hidden_dim=128,
        num_decoder_blocks=2,
        vocab_size=96,
        mlp_variant="swiglu",
        tie_embedder_and_logits=False,
        parameter_dtype=jnp.float32,
    )
    model = llamalike_common.build_llamalike_transformer(config, init_base_rng=KEY)
    model, variables = pz.unbind_params(model, freeze=True)
    tokens = jax.random.randint(KEY, (4, 33), 0, 96)

    def loss(params: Any, tokens: Any) -> Any:
        bound = pz.bind_variables(model, params)
        given = pz.nx.wrap(tokens[:, :-1]).tag("batch", "seq")
        logits = bound(given, token_positions=pz.nx.arange("seq", given.named_shape["seq"]))
        logits = logits.untag("batch", "seq", "vocabulary").unwrap()
        chances = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(chances, tokens[:, 1:, None], axis=-1))

    return loss, (variables, tokens)


LOSSES = (Loss("penzai-llama", "transformer with grouped queries, named axes", llama),)
