"""The models that benchmarks measure, each one body for NumPy under rematc and for JAX."""

from benchmarks.models.chain import CHAIN
from benchmarks.models.library import JAX, REMATC, Library, Model, unwrapped
from benchmarks.models.transformer import DEEP, TRANSFORMER

#: By name. `transformer-48` is for compile times and is measured only when asked for.
MODELS = {model.name: model for model in (CHAIN, TRANSFORMER, DEEP)}
ON_REQUEST = (DEEP.name,)

__all__ = ["JAX", "MODELS", "ON_REQUEST", "REMATC", "Library", "Model", "unwrapped"]
