"""The models that benchmarks measure, each one body for NumPy under rematc and for JAX."""

from benchmarks.architectures.chain import CHAIN
from benchmarks.architectures.convolutional import DIFFUSION, RESNET, UNET
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
)
#: By name.
MODELS = {model.name: model for model in _ALL}
#: For compile times; measured only when asked for.
ON_REQUEST = (DEEP.name,)

__all__ = ["JAX", "MODELS", "ON_REQUEST", "REMATC", "Library", "Model", "unwrapped"]
