"""The models that benchmarks measure, each one body for NumPy under rematc and for JAX."""

from benchmarks.architectures.chain import CHAIN
from benchmarks.architectures.convolutional import DIFFUSION, RESNET, UNET
from benchmarks.architectures.language import LANGUAGE_MODELS
from benchmarks.architectures.library import JAX, REMATC, Library, Model, unwrapped
from benchmarks.architectures.rollouts import ODE, PARTICLES, PDE
from benchmarks.architectures.sequences import LSTM, MIXTURE, SCANNED, STATE_SPACE, TRANSLATION
from benchmarks.architectures.transformer import DEEP, TRANSFORMER

_ALL = (
    CHAIN,
    TRANSFORMER,
    DEEP,
    RESNET,
    UNET,
    LSTM,
    STATE_SPACE,
    MIXTURE,
    DIFFUSION,
    TRANSLATION,
    SCANNED,
    PDE,
    PARTICLES,
    ODE,
    *LANGUAGE_MODELS,
)
#: By name.
MODELS = {model.name: model for model in _ALL}
#: Their steps take GiB.
LARGE = tuple([model.name for model in LANGUAGE_MODELS])
#: For compile times, and the large ones; measured only when asked for.
ON_REQUEST = (DEEP.name, *LARGE)

__all__ = ["JAX", "LARGE", "MODELS", "ON_REQUEST", "REMATC", "Library", "Model", "unwrapped"]
