"""A functional keras model on JAX and its optimizer, trained by a whole step in half of the memory.

    python examples/jax/keras_step.py [--budget 50%] [--steps 10]

The step is keras's own way to train in JAX: `stateless_call` of the model and `stateless_apply` of the optimizer, with
all variables in and out. In the place of `jax.jit` stands `rematc.jax.jit` with a budget.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras

import rematc.jax

CLASSES = 10


def classifier():
    """A convolutional network with normalization over batches, and dropout: [batch, 32, 32, 3] to [batch, classes]."""
    image = keras.Input((32, 32, 3))
    x = image
    for channels in (16, 32):
        y = keras.layers.Conv2D(channels, 3, padding="same")(x)
        y = keras.layers.Activation("swish")(keras.layers.BatchNormalization()(y))
        y = keras.layers.Conv2D(channels, 3, padding="same")(y)
        y = keras.layers.Activation("swish")(keras.layers.BatchNormalization()(y))
        x = keras.layers.AveragePooling2D(2)(keras.layers.Concatenate()([x, y]))
        x = keras.layers.Dropout(0.1, seed=channels)(x)
    return keras.Model(image, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(x)))


def build():
    """A step (state, x, labels) -> (state, value), its first state, and a batch."""
    keras.utils.set_random_seed(0)
    model, optimizer = classifier(), keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss(trainable, others, x, labels):
        logits, others = model.stateless_call(trainable, others, x, training=True)
        return cross_entropy(labels, logits), others

    def train_step(state, x, labels):
        trainable, others, moments = state
        (value, others), gradients = jax.value_and_grad(loss, has_aux=True)(trainable, others, x, labels)
        trainable, moments = optimizer.stateless_apply(moments, gradients, trainable)
        return (trainable, others, moments), value

    variables = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state = tuple([one.value for one in group] for group in variables)
    x = jax.random.normal(jax.random.key(1), (32, 32, 32, 3))
    return train_step, state, (x, jax.random.randint(jax.random.key(2), (32,), 0, CLASSES))


def main():
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="50%", help="temporary memory: bytes, 2GiB, 50%% of what jax.jit takes")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    train_step, state, batch = build()
    step = rematc.jax.jit(train_step, budget=options.budget, donate_argnums=0)  # in the place of jax.jit
    for name, jitted in (("jax.jit", jax.jit(train_step, donate_argnums=0)), ("rematc.jax.jit", step)):
        memory = jitted.lower(state, *batch).compile().memory_analysis()
        print(f"temporary memory, {name}: {memory.temp_size_in_bytes / 2**20:.1f} MiB")
    for number in range(options.steps):
        state, value = step(state, *batch)
        print(f"step {number}: loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
