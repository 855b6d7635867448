"""Whole training steps as users write them, in small: what is around the gradient differs, the layers are the same.

Each function gives a step, (state, *batch) -> (state, values), its first state, and a batch.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Built = tuple[Callable[..., Any], Any, tuple[Any, ...]]

WIDTH, HIDDEN, ROWS, DEPTH = 64, 256, 1024, 6

#: The steps by name.
STEPS: dict[str, Callable[[], Built]] = {}
#: Some steps are of its optimizers; without it there are none of these.
optax: Any = importlib.import_module("optax") if find_spec("optax") else None


def step(function: Callable[[], Built]) -> Callable[[], Built]:
    """Add a step."""
    STEPS[function.__name__] = function
    return function


def step_of_optax(function: Callable[[], Built]) -> Callable[[], Built]:
    """Add a step if there is optax."""
    return step(function) if optax else function


# -- parts ------------------------------------------------------------------------------------------------------------


def normal(seed: int, *shape: int) -> Any:
    return jax.random.normal(jax.random.key(seed), shape)


def batch(rows: int = ROWS) -> tuple[Any, Any]:
    """x and target: [rows, width]."""
    return normal(1001, rows, WIDTH), normal(1002, rows, WIDTH)


def weights(seed: int = 0, depth: int = DEPTH, width: int = WIDTH, hidden: int = HIDDEN) -> Any:
    """Those of layers."""
    return [
        {
            "up": normal(seed + 2 * index, width, hidden) / width**0.5,
            "down": normal(seed + 2 * index + 1, hidden, width) / hidden**0.5 / 2,
            "bias": jnp.zeros(hidden),
        }
        for index in range(depth)
    ]


def layer(own: Any, x: Any) -> Any:
    return x + jax.nn.gelu(x @ own["up"] + own["bias"]) @ own["down"]


def network(params: Any, x: Any) -> Any:
    for own in params:
        x = layer(own, x)
    return x


def error(params: Any, x: Any, target: Any) -> Any:
    return jnp.mean((network(params, x) - target) ** 2)


def zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def momentum(state: Any, gradients: Any) -> Any:
    """A step of (parameters, moments)."""
    params, moments = state
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda p, m: p - 0.05 * m, params, moments), moments


def adam(state: Any, gradients: Any) -> Any:
    """A step of (parameters, first moments, second moments, count); eps is large, so that rounding stays rounding."""
    params, first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    by, of = 1 - 0.9**count, 1 - 0.99**count
    params = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / by) / (jnp.sqrt(v / of) + 1e-3), params, first, second)
    return params, first, second, count


def adam_state(params: Any) -> Any:
    return params, zeros(params), zeros(params), jnp.float32(0)


def norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)))


def plain(loss: Callable[..., Any], params: Any, data: tuple[Any, ...]) -> Built:
    """The step of momentum along the gradient of a loss."""

    def train_step(state: Any, *data: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(state[0], *data)
        return momentum(state, gradients), value

    return train_step, (params, zeros(params)), data


# -- steps ------------------------------------------------------------------------------------------------------------


@step
def accumulation_in_a_scan() -> Built:
    def train_step(state: Any, x: Any, target: Any) -> Any:
        def part(total: Any, data: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(error)(state[0], *data)), None

        parts = tuple([each.reshape(4, -1, WIDTH) for each in (x, target)])
        (value, gradients), _ = lax.scan(part, (0.0, zeros(state[0])), parts)
        return momentum(state, jax.tree.map(lambda g: g / 4, gradients)), value / 4

    params = weights()
    return train_step, (params, zeros(params)), batch(2 * ROWS)


@step
def accumulation_in_python() -> Built:
    def train_step(state: Any, x: Any, target: Any) -> Any:
        total = (0.0, zeros(state[0]))
        for data in zip(jnp.split(x, 4), jnp.split(target, 4), strict=True):
            total = jax.tree.map(jnp.add, total, jax.value_and_grad(error)(state[0], *data))
        return momentum(state, jax.tree.map(lambda g: g / 4, total[1])), total[0] / 4

    params = weights()
    return train_step, (params, zeros(params)), batch(2 * ROWS)


@step
def mixed_precision() -> Built:
    """Work in bfloat16, weights in float32, and a scale of the loss that follows what is finite."""

    def train_step(state: Any, x: Any, target: Any) -> Any:
        params, moments, scale, good = state

        def loss(params: Any) -> Any:
            half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
            value = jnp.mean((network(half, x.astype(jnp.bfloat16)).astype(jnp.float32) - target) ** 2)
            return value * scale, value

        gradients, value = jax.grad(loss, has_aux=True)(params)
        gradients = jax.tree.map(lambda g: g / scale, gradients)
        finite = jnp.isfinite(norm(gradients))
        updated = momentum((params, moments), gradients)
        params, moments = jax.tree.map(lambda a, b: jnp.where(finite, a, b), updated, (params, moments))
        good = jnp.where(finite, good + 1, 0)
        scale = jnp.where(finite, jnp.where(good % 2 == 0, scale * 2, scale), scale / 2)
        return (params, moments, scale, good), value

    params = weights()
    return train_step, (params, zeros(params), jnp.float32(2**10), jnp.int32(0)), batch()


@step
def adversarial() -> Built:
    """A generator and a discriminator, each with an optimizer of its own."""

    def judged(params: Any, x: Any) -> Any:
        return jnp.mean(network(params, x), axis=-1)

    def train_step(state: Any, real: Any, noise: Any) -> Any:
        generator, critic = state

        def of_critic(params: Any) -> Any:
            made = lax.stop_gradient(network(generator[0], noise))
            return jnp.mean(jax.nn.softplus(-judged(params, real)) + jax.nn.softplus(judged(params, made)))

        first, gradients = jax.value_and_grad(of_critic)(critic[0])
        critic = adam(critic, gradients)

        def of_generator(params: Any) -> Any:
            return jnp.mean(jax.nn.softplus(-judged(critic[0], network(params, noise))))

        second, gradients = jax.value_and_grad(of_generator)(generator[0])
        return (adam(generator, gradients), critic), (first, second)

    return train_step, (adam_state(weights(0, 4)), adam_state(weights(50, 4))), batch()


@step
def maml() -> Built:
    """The gradient through two steps of descent, for eight tasks."""

    def task(params: Any, x: Any, target: Any) -> Any:
        for _ in range(2):
            gradients = jax.grad(error)(params, x[:16], target[:16])
            params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)
        return error(params, x[16:], target[16:])

    def loss(params: Any, x: Any, target: Any) -> Any:
        return jnp.mean(jax.vmap(task, (None, 0, 0))(params, x, target))

    return plain(loss, weights(0, 3, WIDTH, 128), (normal(1, 8, 32, WIDTH), normal(2, 8, 32, WIDTH)))


@step
def dropout() -> Built:
    def train_step(state: Any, x: Any, target: Any) -> Any:
        inner, key = state
        key, own = jax.random.split(key)

        def loss(params: Any) -> Any:
            y = x
            for index, one in enumerate(params):
                hidden = jax.nn.gelu(y @ one["up"] + one["bias"])
                kept = jax.random.bernoulli(jax.random.fold_in(own, index), 0.9, hidden.shape)
                y = y + jnp.where(kept, hidden / 0.9, 0) @ one["down"]
            return jnp.mean((y - target) ** 2)

        value, gradients = jax.value_and_grad(loss)(inner[0])
        return (momentum(inner, gradients), key), value

    params = weights()
    return train_step, ((params, zeros(params)), jax.random.key(7)), batch()


@step
def batch_statistics() -> Built:
    """Convolutions with normalization over the batch, whose running statistics are state."""
    channels = (3, 16, 32, 32)

    def convolved(own: Any, running: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(x, own["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean, variance = jnp.mean(y, (0, 1, 2)), jnp.var(y, (0, 1, 2))
        running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, (mean, variance))
        return jax.nn.relu((y - mean) * lax.rsqrt(variance + 1e-5) * own["scale"] + own["bias"]), running

    def loss(params: Any, statistics: Any, x: Any, labels: Any) -> Any:
        found = []
        for own, running in zip(params["layers"], statistics, strict=True):
            x, now = convolved(own, running, x)
            found.append(now)
        logits = jax.nn.log_softmax(jnp.mean(x, (1, 2)) @ params["head"])
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1)), found

    def train_step(state: Any, x: Any, labels: Any) -> Any:
        inner, statistics = state
        (value, statistics), gradients = jax.value_and_grad(loss, has_aux=True)(inner[0], statistics, x, labels)
        return (momentum(inner, gradients), statistics), value

    kernels = [
        normal(before, 3, 3, before, after) / (9 * before) ** 0.5 for before, after in itertools.pairwise(channels)
    ]
    layers = [{"w": w, "scale": jnp.ones(w.shape[-1]), "bias": jnp.zeros(w.shape[-1])} for w in kernels]
    params = {"layers": layers, "head": normal(9, channels[-1], 10) / 6}
    statistics = [(jnp.zeros(count), jnp.ones(count)) for count in channels[1:]]
    labels = jax.random.randint(jax.random.key(2), (16,), 0, 10)
    return train_step, ((params, zeros(params)), statistics), (normal(1, 16, 32, 32, 3), labels)


@step
def clipped_with_average() -> Built:
    """Gradients clipped by their norm, Adam, and an average of the weights."""

    def train_step(state: Any, x: Any, target: Any) -> Any:
        inner, average = state
        value, gradients = jax.value_and_grad(error)(inner[0], x, target)
        size = norm(gradients)
        inner = adam(inner, jax.tree.map(lambda g: g * jnp.minimum(1, 0.5 / (size + 1e-6)), gradients))
        average = jax.tree.map(lambda a, p: 0.99 * a + 0.01 * p, average, inner[0])
        return (inner, average), (value, size, error(average, x, target))

    params = weights()
    return train_step, (adam_state(params), jax.tree.map(jnp.array, params)), batch()


@step
def skipped_if_not_finite() -> Built:
    def train_step(state: Any, x: Any, target: Any) -> Any:
        value, gradients = jax.value_and_grad(error)(state[0], x, target)
        is_finite = jnp.isfinite(norm(gradients))
        return lax.cond(is_finite, lambda state: momentum(state, gradients), lambda state: state, state), value

    params = weights()
    return train_step, (params, zeros(params)), batch()


@step
def checkpoints() -> Built:
    """`jax.checkpoint` of each layer, every other one with a policy."""
    policies = (None, jax.checkpoint_policies.dots_saveable)

    def loss(params: Any, x: Any, target: Any) -> Any:
        for index, own in enumerate(params):
            x = jax.checkpoint(layer, policy=policies[index % 2])(own, x)
        return jnp.mean((x - target) ** 2)

    return plain(loss, weights(), batch())


@step
def rule_of_its_own() -> Built:
    """A loss with a `custom_vjp`, over 2000 classes."""

    @jax.custom_vjp
    def cross_entropy(logits: Any, labels: Any) -> Any:
        return forward(logits, labels)[0]

    def forward(logits: Any, labels: Any) -> Any:
        total = jax.nn.logsumexp(logits, -1)
        return jnp.mean(total - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]), (logits, total, labels)

    def backward(residuals: Any, ct: Any) -> Any:
        logits, total, labels = residuals
        expected = jax.nn.one_hot(labels, logits.shape[-1])
        return (jnp.exp(logits - total[:, None]) - expected) * ct / logits.shape[0], None

    cross_entropy.defvjp(forward, backward)
    labels = jax.random.randint(jax.random.key(2), (512,), 0, 2000)
    params = {"layers": weights(0, 4), "head": normal(77, WIDTH, 2000) / 8}

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return cross_entropy(network(params["layers"], x) @ params["head"], labels)

    return plain(loss, params, (normal(1, 512, WIDTH), labels))


@step
def contrastive() -> Built:
    """Two towers, and `logsumexp` over the rows and the columns of the matrix of all pairs."""

    def unit(x: Any) -> Any:
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def loss(params: Any, x: Any, y: Any) -> Any:
        first, second, temperature = params
        pairs = unit(network(first, x)) @ unit(network(second, y)).T * jnp.exp(temperature)
        sums = [jax.nn.logsumexp(pairs, axis) for axis in (0, 1)]
        return jnp.mean(sums[0] + sums[1] - 2 * jnp.diagonal(pairs))

    return plain(loss, (weights(0, 3), weights(50, 3), jnp.float32(1)), batch())


@step
def language_model() -> Built:
    """A head that shares the embedding's table; of the logits all tokens' but the last are compared with the next."""
    vocabulary, rows, length = 16000, 4, 128

    def loss(params: Any, tokens: Any) -> Any:
        hidden = network(params["layers"], params["table"][tokens])
        logits = (hidden @ params["table"].T)[:, :-1]
        labels = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - labels)

    params = {"layers": weights(), "table": normal(78, vocabulary, WIDTH) / 8}
    return plain(loss, params, (jax.random.randint(jax.random.key(79), (rows, length), 0, vocabulary),))


@step
def recurrent() -> Built:
    def loss(params: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ params["x"] + h @ params["h"])
            return h, h @ params["out"]

        _, ys = lax.scan(cell, jnp.zeros((xs.shape[1], 128)), xs[:-1])
        return jnp.mean((ys - xs[1:]) ** 2)

    params = {"x": normal(1, 32, 128) / 6, "h": normal(2, 128, 128) / 11, "out": normal(3, 128, 32) / 11}
    return plain(loss, params, (normal(5, 65, 64, 32),))


@step
def epochs() -> Built:
    """Two epochs of four minibatches with an update in each, as of PPO."""

    def train_step(state: Any, x: Any, target: Any, key: Any) -> Any:
        def epoch(state: Any, key: Any) -> Any:
            order = jax.random.permutation(key, x.shape[0]).reshape(4, -1)

            def update(state: Any, rows: Any) -> Any:
                value, gradients = jax.value_and_grad(error)(state[0], x[rows], target[rows])
                return momentum(state, gradients), value

            return lax.scan(update, state, order)

        state, values = lax.scan(epoch, state, jax.random.split(key, 2))
        return state, jnp.mean(values)

    params = weights(0, 4)
    return train_step, (params, zeros(params)), (*batch(2 * ROWS), jax.random.key(3))


@step
def sharpness_aware() -> Built:
    """The gradient at a point that another gradient leads to."""

    def train_step(state: Any, x: Any, target: Any) -> Any:
        gradients = jax.grad(error)(state[0], x, target)
        size = norm(gradients) + 1e-6
        near = jax.tree.map(lambda p, g: p + 0.05 * g / size, state[0], gradients)
        value, gradients = jax.value_and_grad(error)(near, x, target)
        return momentum(state, gradients), value

    params = weights()
    return train_step, (params, zeros(params)), batch()


@step
def alternating() -> Built:
    """Two losses in turn, as of adversarial networks, each differentiated in its branch of `cond`."""

    def train_step(state: Any, x: Any, target: Any, count: Any) -> Any:
        def on(part: int) -> Callable[[Any], Any]:
            def descend(state: Any) -> Any:
                params = [state[0][0], state[1][0]]

                def loss(own: Any) -> Any:
                    return error(params[1 - part], network(own, x), target)

                value, gradients = jax.value_and_grad(loss)(params[part])
                own = momentum(state[part], gradients)
                return (own, state[1]) if part == 0 else (state[0], own), value

            return descend

        return lax.cond(count % 2 == 0, on(0), on(1), state)

    both = weights(0, 3), weights(100, 3)
    state = tuple([(params, zeros(params)) for params in both])
    return train_step, state, (*batch(), jnp.int32(0))


@step
def until_it_is_small() -> Built:
    """Steps along the gradient in a `while_loop`, until the loss is small, or there were four."""

    def train_step(state: Any, x: Any, target: Any) -> Any:
        def descend(carry: Any) -> Any:
            state, _, count = carry
            value, gradients = jax.value_and_grad(error)(state[0], x, target)
            return momentum(state, gradients), value, count + 1

        begin = state, jnp.float32(jnp.inf), jnp.int32(0)
        state, value, _ = lax.while_loop(lambda carry: (carry[1] > 0.5) & (carry[2] < 4), descend, begin)
        return state, value

    params = weights()
    return train_step, (params, zeros(params)), batch()


@step
def layers_left_out() -> Built:
    """Stochastic depth: a branch for each layer."""

    def loss(params: Any, x: Any, target: Any, key: Any) -> Any:
        for own, here in zip(params, jax.random.split(key, len(params)), strict=True):
            x = lax.cond(jax.random.uniform(here) < 0.8, layer, lambda own, x: x, own, x)
        return jnp.mean((x - target) ** 2)

    return plain(loss, weights(), (*batch(), jax.random.key(4)))


@step
def refined_in_loops() -> Built:
    """Each layer refines its result in a loop of its own."""

    def loss(params: Any, x: Any, target: Any) -> Any:
        for own in params:
            x = lax.fori_loop(0, 8, lambda _, z: x + 0.5 * jnp.tanh(layer(own, z)), x)  # noqa: B023
        return jnp.mean((x - target) ** 2)

    return plain(loss, weights(0, 4, hidden=64), batch(256))


@step
def pooled() -> Built:
    """Convolutions, and the maximum in windows that overlap."""

    def loss(params: Any, x: Any) -> Any:
        for kernel in params:
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            x = jax.nn.silu(x)
        return jnp.mean(x**2)

    shapes = ((3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 32))
    kernels = [normal(number, *shape) / (9 * shape[2]) ** 0.5 for number, shape in enumerate(shapes)]
    return plain(loss, kernels, (normal(9, 16, 48, 48, 3),))


def _with_optax(optimizer: Any, params: Any, of: Callable[[Any], Any]) -> Built:
    def train_step(state: Any, x: Any, target: Any) -> Any:
        params, inner = state
        value, gradients = jax.value_and_grad(error)(of(params), x, target)
        updates, inner = optimizer.update(gradients, inner, params)
        return (optax.apply_updates(params, updates), inner), value

    # Both copies of lookahead's weights are one array; donated, they must be two.
    return train_step, jax.tree.map(jnp.array, (params, optimizer.init(params))), batch()


@step_of_optax
def multi_steps() -> Built:
    inner = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.05, momentum=0.9))
    return _with_optax(optax.MultiSteps(inner, every_k_schedule=2), weights(), lambda params: params)


@step_of_optax
def lookahead() -> Built:
    optimizer = optax.lookahead(optax.sgd(0.05), sync_period=2, slow_step_size=0.5)
    return _with_optax(optimizer, optax.LookaheadParams.init_synced(weights()), lambda params: params.fast)


@step_of_optax
def muon() -> Built:
    """Newton's iteration on each matrix, in a loop that takes all steps at once."""
    return _with_optax(optax.contrib.muon(0.02), weights(), lambda params: params)


@step_of_optax
def adan() -> Built:
    """The state holds the last gradients, which are read beside the new ones."""
    return _with_optax(optax.adan(1e-3), weights(), lambda params: params)
