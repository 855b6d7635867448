"""A decoder-only transformer that predicts the next token: pre-layer-norm, causal attention, gelu, cross-entropy."""

import numpy as np

LAYERS = 6
WIDTH = 256
HEADS = 8
HIDDEN = 1024
LENGTH = 256
BATCH = 8
VOCABULARY = 1024


def embed(params, tokens):
    """Token and position embeddings. tokens: [batch, length], integers; the result: [batch, length, width]."""
    return params["tokens"][tokens] + params["positions"][: tokens.shape[1]]


def layer_norm(norm, x):
    """x with mean 0 and variance 1 over its last dimension, then scaled and shifted. x: [..., width]."""
    centered = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(np.square(centered), axis=-1, keepdims=True)
    return centered / np.sqrt(variance + 1e-5) * norm["scale"] + norm["shift"]


def softmax(x):
    """exp(x) over its sum along the last dimension."""
    weights = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return weights / np.sum(weights, axis=-1, keepdims=True)


def split_heads(x):
    """[batch, length, width] to [batch, heads, length, width of a head]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, HEADS, width // HEADS).transpose(0, 2, 1, 3)


def merge_heads(x):
    """[batch, heads, length, width of a head] to [batch, length, width]."""
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def attention(weights, x):
    """Causal self-attention: each position reads itself and those before it. x: [batch, length, width]."""
    query = split_heads(x @ weights["query"])
    key = split_heads(x @ weights["key"])
    value = split_heads(x @ weights["value"])
    scores = query @ key.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5
    position = np.arange(x.shape[1])
    causal = np.where(position[:, None] >= position, scores, -1e9)
    return merge_heads(softmax(causal) @ value) @ weights["output"]


def gelu(x):
    """Gaussian error linear unit, in its approximation by tanh."""
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def mlp(weights, x):
    """Two linear maps with gelu between them. x: [batch, length, width]."""
    return gelu(x @ weights["up"] + weights["up_bias"]) @ weights["down"] + weights["down_bias"]


def transformer(params, tokens):
    """Scores of the next token. tokens: [batch, length], integers; the result: [batch, length, vocabulary]."""
    x = embed(params["embedding"], tokens)
    for layer in params["layers"]:
        x = x + attention(layer["attention"], layer_norm(layer["attention_norm"], x))
        x = x + mlp(layer["mlp"], layer_norm(layer["mlp_norm"], x))
    return layer_norm(params["final_norm"], x) @ params["unembedding"]


def cross_entropy(scores, targets):
    """Mean negative log-probability of the targets. scores: [count, vocabulary]; targets: [count], integers."""
    shifted = scores - np.max(scores, axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return -np.mean(log_probabilities[np.arange(targets.shape[0]), targets])


def loss(params, tokens, targets):
    """Cross-entropy of the predicted next tokens. tokens, targets: [batch, length], integers."""
    scores = transformer(params, tokens)
    return cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1))


def example_args():
    """Untrained parameters, and a random text with each position's next token; float32 and int32."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    def norm():
        return {"scale": np.ones(WIDTH, np.float32), "shift": np.zeros(WIDTH, np.float32)}

    def layer():
        return {
            "attention_norm": norm(),
            "attention": {name: normal(WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
            "mlp_norm": norm(),
            "mlp": {
                "up": normal(WIDTH, HIDDEN),
                "up_bias": np.zeros(HIDDEN, np.float32),
                "down": normal(HIDDEN, WIDTH),
                "down_bias": np.zeros(WIDTH, np.float32),
            },
        }

    params = {
        "embedding": {"tokens": normal(VOCABULARY, WIDTH), "positions": normal(LENGTH, WIDTH)},
        "layers": [layer() for _ in range(LAYERS)],
        "final_norm": norm(),
        "unembedding": normal(WIDTH, VOCABULARY),
    }
    text = rng.integers(VOCABULARY, size=(BATCH, LENGTH + 1), dtype=np.int32)
    return params, text[:, :-1], text[:, 1:]


if __name__ == "__main__":
    print(f"loss {loss(*example_args()):.6f}")
