"""Models of sequences: an LSTM, a state-space model, a mixture of experts, an encoder and decoder, layers in a scan."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.architectures.library import Draw, Function, Library, Model, Wrap
from benchmarks.architectures.transformer import attention, attention_weights, layer_norm

# -- LSTM ------------------------------------------------------------------------------------------------------------


def _sigmoid(lib: Library, x: Any) -> Any:
    return 0.5 * (lib.xp.tanh(0.5 * x) + 1)


def build_lstm(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Two layers; the mean square of what the second one shows at every step."""

    def layer(weights: Any, sequence: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            shown, cell = state
            gates = x @ weights["input"] + shown @ weights["state"]
            write, forget, show, new = [gates[:, index * width : (index + 1) * width] for index in range(4)]
            cell = _sigmoid(lib, forget) * cell + _sigmoid(lib, write) * lib.xp.tanh(new)
            shown = _sigmoid(lib, show) * lib.xp.tanh(cell)
            return (shown, cell), shown

        width = weights["state"].shape[0]
        zeros = np.zeros((sequence.shape[1], width), np.float32)
        return lib.scan(block(step), (zeros, zeros), sequence)[1]

    def loss(layers: Any, sequence: Any) -> Any:
        for weights in layers:
            sequence = layer(weights, sequence)
        return lib.xp.mean(sequence * sequence)

    return loss


def lstm_arguments(steps: int = 128, batch: int = 64, width: int = 256) -> tuple[Any, ...]:
    """Weights, and a sequence [steps, batch, width]."""
    draw = Draw()
    layers = [{"input": draw.weight(width, 4 * width), "state": draw.weight(width, 4 * width)} for _ in range(2)]
    return layers, draw.normal(steps, batch, width)


# -- state space -----------------------------------------------------------------------------------------------------


def build_state_space(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Layers of diagonal recurrences, each followed by a gated linear map; the mean square of the last."""

    def layer(weights: Any, x: Any) -> Any:
        inputs = layer_norm(lib, x)
        decay = lib.xp.exp(-lib.xp.exp(weights["decay"]))

        def step(state: Any, row: Any) -> Any:
            state = decay * state + row[:, :, None] * weights["read"]
            return state, lib.xp.sum(state * weights["write"], axis=-1)

        states = np.zeros((x.shape[1], *weights["decay"].shape), np.float32)
        mixed = lib.gelu(lib.scan(step, states, inputs)[1])
        return x + (mixed @ weights["out"]) * _sigmoid(lib, mixed @ weights["gate"])

    wrapped = block(layer)

    def loss(layers: Any, x: Any) -> Any:
        for weights in layers:
            x = wrapped(weights, x)
        return lib.xp.mean(x * x)

    return loss


def state_space_arguments(steps: int = 128, batch: int = 8, width: int = 128, states: int = 16) -> tuple[Any, ...]:
    """Weights of four layers, and a sequence [steps, batch, width]."""
    draw = Draw()

    def layer() -> dict[str, Any]:
        return {
            "decay": draw.normal(width, states) - np.float32(1),
            "read": draw.normal(width, states, scale=0.25),
            "write": draw.normal(width, states, scale=0.25),
            "out": draw.weight(width, width),
            "gate": draw.weight(width, width),
        }

    return [layer() for _ in range(4)], draw.normal(steps, batch, width)


# -- mixture of experts ----------------------------------------------------------------------------------------------

EXPERTS, CAPACITY = 4, 768


def build_mixture(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Layers of attention and of experts, each token sent to one of them; the mean square of the last."""

    def experts(weights: Any, x: Any) -> Any:
        gates = lib.softmax(x @ weights["router"])
        chosen = lib.xp.argmax(gates, axis=-1)[:, None] == np.arange(EXPERTS)
        mask = chosen.astype(np.float32)
        place = lib.xp.cumsum(mask, axis=0) * mask - 1
        places = (place[:, :, None] == np.arange(CAPACITY)).astype(np.float32)
        sent = lib.xp.einsum("tec,td->ecd", places, x)
        done = lib.gelu(sent @ weights["up"]) @ weights["down"]
        return lib.xp.einsum("tec,ecd->td", places * gates[:, :, None], done)

    def layer(weights: Any, x: Any) -> Any:
        inside = layer_norm(lib, x)
        x = x + lib.checkpoint_name(attention(lib, weights["attention"], inside, inside, 4, True), "attention")
        flat = layer_norm(lib, x).reshape(-1, x.shape[-1])
        return x + lib.checkpoint_name(experts(weights, flat).reshape(x.shape), "experts")

    wrapped = block(layer)

    def loss(layers: Any, x: Any) -> Any:
        for weights in layers:
            x = wrapped(weights, x)
        return lib.xp.mean(x * x)

    return loss


def mixture_arguments(batch: int = 8, length: int = 256, width: int = 256) -> tuple[Any, ...]:
    """Weights of four layers, and the embedded input [batch, length, width]."""
    draw = Draw()

    def layer() -> dict[str, Any]:
        return {
            "attention": attention_weights(draw, width),
            "router": draw.weight(width, EXPERTS),
            "up": draw.weight(EXPERTS, width, 4 * width),
            "down": draw.weight(EXPERTS, 4 * width, width),
        }

    return [layer() for _ in range(4)], draw.normal(batch, length, width)


# -- encoder and decoder ---------------------------------------------------------------------------------------------


def build_translation(lib: Library, block: Wrap, group: Wrap) -> Function:
    """An encoder, and a decoder that reads all of its result; the mean square of the decoder's last layer."""

    def mlp(weights: Any, x: Any) -> Any:
        return lib.checkpoint_name(lib.gelu(layer_norm(lib, x) @ weights["up"]) @ weights["down"], "mlp")

    def encode(weights: Any, x: Any) -> Any:
        inside = layer_norm(lib, x)
        x = x + lib.checkpoint_name(attention(lib, weights["self"], inside, inside, 8, False), "attention")
        return x + mlp(weights, x)

    def decode(weights: Any, x: Any, memory: Any) -> Any:
        inside = layer_norm(lib, x)
        x = x + lib.checkpoint_name(attention(lib, weights["self"], inside, inside, 8, True), "attention")
        inside = layer_norm(lib, x)
        x = x + lib.checkpoint_name(attention(lib, weights["cross"], inside, memory, 8, False), "attention")
        return x + mlp(weights, x)

    wrapped_encode, wrapped_decode = block(encode), block(decode)

    def loss(params: Any, source: Any, target: Any) -> Any:
        for weights in params["encoder"]:
            source = wrapped_encode(weights, source)
        memory = layer_norm(lib, source)
        for weights in params["decoder"]:
            target = wrapped_decode(weights, target, memory)
        return lib.xp.mean(target * target)

    return loss


def translation_arguments(batch: int = 8, length: int = 192, width: int = 256) -> tuple[Any, ...]:
    """Weights of three layers each, and both embedded texts [batch, length, width]."""
    draw = Draw()

    def layer(*attentions: str) -> dict[str, Any]:
        maps = {"up": draw.weight(width, 4 * width), "down": draw.weight(4 * width, width)}
        return {**{name: attention_weights(draw, width) for name in attentions}, **maps}

    params = {
        "encoder": [layer("self") for _ in range(3)],
        "decoder": [layer("self", "cross") for _ in range(3)],
    }
    return params, draw.normal(batch, length, width), draw.normal(batch, length, width)


# -- layers in a scan ------------------------------------------------------------------------------------------------


def build_scanned(lib: Library, block: Wrap, group: Wrap) -> Function:
    """The transformer's layers as the steps of a scan over stacked weights."""

    def layer(x: Any, weights: Any) -> Any:
        inside = layer_norm(lib, x)
        x = x + lib.checkpoint_name(attention(lib, weights, inside, inside, 8, True), "attention")
        mlp = lib.gelu(layer_norm(lib, x) @ weights["up"]) @ weights["down"]
        return x + lib.checkpoint_name(mlp, "mlp"), None

    def loss(stacked: Any, x: Any) -> Any:
        x = lib.scan(block(layer), x, stacked)[0]
        return lib.xp.mean(x * x)

    return loss


def scanned_arguments(layers: int = 6, batch: int = 8, length: int = 256, width: int = 256) -> tuple[Any, ...]:
    """Stacked weights, and the embedded input [batch, length, width]."""
    draw = Draw()
    shapes = dict.fromkeys(("query", "key", "value", "output"), (width, width))
    shapes |= {"up": (width, 4 * width), "down": (4 * width, width)}
    return {name: draw.weight(layers, *shape) for name, shape in shapes.items()}, draw.normal(batch, length, width)


LSTM = Model("lstm", "2 layers of width 256, 128 steps, batch 64", build_lstm, lstm_arguments)
STATE_SPACE = Model(
    "state-space", "4 layers of width 128 with 16 states, 128 steps, batch 8", build_state_space, state_space_arguments
)
MIXTURE = Model(
    "mixture",
    "4 layers of 4 experts, width 256, 2,048 tokens",
    build_mixture,
    mixture_arguments,
    ("attention", "experts"),
)
TRANSLATION = Model(
    "translation",
    "3 encoder and 3 decoder layers with cross attention, width 256, 192 positions, batch 8",
    build_translation,
    translation_arguments,
    ("attention", "mlp"),
)
SCANNED = Model(
    "scanned", "6 transformer layers of width 256 in a scan", build_scanned, scanned_arguments, ("attention", "mlp")
)
