"""Language models of their real sizes: GPT-2 and one like Llama, bfloat16 with float32 parameters, real heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

from benchmarks.architectures.library import Function, Library, Model, Wrap
from benchmarks.architectures.transformer import split_heads

BATCH, LENGTH = 8, 1024
CrossEntropy = Callable[[Library, Any, Any], Any]
_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped


@dataclass(frozen=True, slots=True)
class Language:
    """A model's sizes, and the model.

    Attributes:
        layers: how many.
        is_scanned: whether they are the steps of a scan over stacked parameters.
        key_heads: as `heads`, where queries are not grouped.
        is_llama: RMS norms, rotated positions, SwiGLU and a head of its own, instead of layer norms, learned positions,
            gelu and the embedding as the head.
        loss: (library, bfloat16 logits [batch, length, vocabulary], tokens [batch, length]) to the mean cross-entropy.
    """

    layers: int
    is_scanned: bool
    width: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    is_llama: bool
    loss: CrossEntropy

    def shapes(self) -> tuple[Any, ...]:
        """Of the parameters, and of the tokens."""
        size = self.width // self.heads
        layer = {
            "queries": (self.width, self.width),
            "keys": (self.width, self.key_heads * size),
            "values": (self.width, self.key_heads * size),
            "out": (self.width, self.width),
            "up": (self.width, self.inner),
            "down": (self.inner, self.width),
            "first": self._norm_shapes(),
            "second": self._norm_shapes(),
        }
        whole = {"tokens": (self.vocabulary, self.width), "last": self._norm_shapes()}
        if self.is_llama:
            layer["gate"] = (self.width, self.inner)
            whole["head"] = (self.width, self.vocabulary)
        else:
            whole["positions"] = (LENGTH, self.width)
        layers = shaped(layer, self.layers) if self.is_scanned else [shaped(layer)] * self.layers
        return {"layers": layers, **shaped(whole)}, _struct((BATCH, LENGTH + 1), np.int32)

    def _norm_shapes(self) -> dict[str, Any]:
        return {"scale": (self.width,)} if self.is_llama else {"scale": (self.width,), "shift": (self.width,)}

    def arguments(self) -> tuple[Any, ...]:
        """Parameters and tokens, seeded."""
        params, tokens = self.shapes()
        random = np.random.default_rng(0)
        drawn = jax.tree_util.tree_map(
            lambda leaf: random.standard_normal(leaf.shape, dtype=np.float32) * np.float32(0.02), params
        )
        return drawn, random.integers(self.vocabulary, size=tokens.shape, dtype=np.int32)

    def norm(self, lib: Library, weights: Any, x: Any) -> Any:
        """RMS or layer norm, in float32, scaled by 1 + scale. x: [batch, length, width]."""
        wide = x.astype(np.float32)
        if not self.is_llama:
            wide = wide - lib.xp.mean(wide, axis=-1, keepdims=True)
        wide = (
            wide * (1 / lib.xp.sqrt(lib.xp.mean(wide * wide, axis=-1, keepdims=True) + 1e-5)) * (1 + weights["scale"])
        )
        return (wide if self.is_llama else wide + weights["shift"]).astype(ml_dtypes.bfloat16)

    def attention(self, lib: Library, layer: Any, x: Any) -> Any:
        """Causal, keys and values each for a group of queries. x: [batch, length, width]."""
        queries = split_heads(x @ layer["queries"].astype(x.dtype), self.heads)
        keys, values = (split_heads(x @ layer[name].astype(x.dtype), self.key_heads) for name in ("keys", "values"))
        if self.is_llama:
            queries, keys = rotated(lib, queries), rotated(lib, keys)
            keys, values = (lib.xp.repeat(one, self.heads // self.key_heads, axis=1) for one in (keys, values))
        scores = lib.xp.einsum("bhtd,bhsd->bhts", queries, keys) / queries.shape[-1] ** 0.5
        mask = lib.xp.tril(lib.xp.ones((x.shape[1], x.shape[1]), bool))
        weights = lib.softmax(lib.xp.where(mask, scores.astype(np.float32), np.float32(-1e9))).astype(x.dtype)
        mixed = lib.xp.einsum("bhts,bhsd->bhtd", weights, values)
        return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ layer["out"].astype(x.dtype)

    def block(self, lib: Library, layer: Any, x: Any) -> Any:
        """Attention, then a perceptron."""
        x = x + self.attention(lib, layer, self.norm(lib, layer["first"], x))
        seen = self.norm(lib, layer["second"], x)
        up = seen @ layer["up"].astype(x.dtype)
        up = lib.silu(seen @ layer["gate"].astype(x.dtype)) * up if self.is_llama else lib.gelu(up)
        return x + up @ layer["down"].astype(x.dtype)

    def build(self, lib: Library, block: Wrap, group: Wrap) -> Function:
        """Cross-entropy of the next token."""

        def layer(weights: Any, x: Any) -> Any:
            return self.block(lib, weights, x)

        wrapped = block(layer)

        def loss(params: Any, tokens: Any) -> Any:
            x = params["tokens"][tokens[:, :-1]]
            x = (x if self.is_llama else x + params["positions"]).astype(ml_dtypes.bfloat16)
            if self.is_scanned:
                x = lib.scan(lambda x, weights: (wrapped(weights, x), None), x, params["layers"])[0]
            else:
                for weights in params["layers"]:
                    x = wrapped(weights, x)
            head = params["head"] if self.is_llama else params["tokens"].T
            logits = self.norm(lib, params["last"], x) @ head.astype(x.dtype)
            return self.loss(lib, logits, tokens[:, 1:])

        return loss


def shaped(shapes: Any, count: int | None = None) -> Any:
    """Float32 of these shapes; a stack of `count` of each."""
    stack = () if count is None else (count,)
    return jax.tree_util.tree_map(
        lambda shape: _struct((*stack, *shape), np.float32),
        shapes,
        is_leaf=lambda leaf: isinstance(leaf, tuple),
    )


def rotated(lib: Library, x: Any) -> Any:
    """Rotary positions. x: [batch, heads, length, size]."""
    size = x.shape[-1] // 2
    angles = lib.xp.arange(x.shape[2])[:, None] * 1e4 ** (-lib.xp.arange(size) / size)
    sine, cosine = (of(angles).astype(x.dtype) for of in (lib.xp.sin, lib.xp.cos))
    first, second = x[..., :size], x[..., size:]
    return lib.xp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


# -- the same cross-entropy as different users write it, which XLA gives different memory ---------------------------


def converted_twice(lib: Library, logits: Any, tokens: Any) -> Any:
    """What takes all and what takes the right one convert for themselves."""
    right = lib.xp.take_along_axis(logits.astype(np.float32), tokens[..., None], -1)[..., 0]
    return lib.xp.mean(lib.logsumexp(logits.astype(np.float32)) - right)


def in_float32(lib: Library, logits: Any, tokens: Any) -> Any:
    """The logits become float32 first."""
    wide = logits.astype(np.float32)
    return lib.xp.mean(lib.logsumexp(wide) - lib.xp.take_along_axis(wide, tokens[..., None], -1)[..., 0])


def indexed(lib: Library, logits: Any, tokens: Any) -> Any:
    """The right ones by indexing rows."""
    wide = logits.astype(np.float32)
    rows = wide.reshape(-1, wide.shape[-1])
    right = rows[lib.xp.arange(rows.shape[0]), tokens.reshape(-1)].reshape(tokens.shape)
    return lib.xp.mean(lib.logsumexp(wide) - right)


def one_hot(lib: Library, logits: Any, tokens: Any) -> Any:
    """The right ones by a product with rows that have a single one."""
    wide = logits.astype(np.float32)
    rows = (tokens[..., None] == lib.xp.arange(logits.shape[-1])).astype(np.float32)
    return lib.xp.mean(lib.logsumexp(wide) - lib.xp.sum(wide * rows, axis=-1))


def log_softmax(lib: Library, logits: Any, tokens: Any) -> Any:
    """Logarithms of all probabilities, then the right ones."""
    wide = logits.astype(np.float32)
    logs = wide - lib.logsumexp(wide)[..., None]
    return -lib.xp.mean(lib.xp.take_along_axis(logs, tokens[..., None], -1))


def gpt2(layers: int, is_scanned: bool, loss: CrossEntropy = indexed) -> Language:
    """GPT-2: width 768, 12 heads, the embedding of 50,304 tokens tied to the head."""
    return Language(layers, is_scanned, 768, 12, 12, 3072, 50304, False, loss)


def llama(layers: int, is_scanned: bool) -> Language:
    """Like Llama: queries in groups of three, a vocabulary of 32,000."""
    return Language(layers, is_scanned, 768, 12, 4, 2048, 32000, True, in_float32)


LANGUAGE = {
    "gpt2": gpt2(4, is_scanned=False),
    "gpt2-scan": gpt2(12, is_scanned=True),
    "gpt2-scan-4": gpt2(4, is_scanned=True),
    "gpt2-in-float32": gpt2(4, False, in_float32),
    "gpt2-converted-twice": gpt2(4, False, converted_twice),
    "gpt2-one-hot": gpt2(4, False, one_hot),
    "gpt2-log-softmax": gpt2(4, False, log_softmax),
    "llama": llama(4, is_scanned=False),
    "llama-scan": llama(12, is_scanned=True),
}


def _model(name: str, language: Language) -> Model:
    kind, place = "Llama-like" if language.is_llama else "GPT-2", " in a scan" if language.is_scanned else ""
    about = f"{kind}, {language.layers} layers{place}, vocabulary {language.vocabulary}, bfloat16"
    return Model(name, about, language.build, language.arguments)


LANGUAGE_MODELS = tuple([_model(name, language) for name, language in LANGUAGE.items()])
