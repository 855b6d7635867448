"""Whole models of real sizes, as their users write them, for benchmarks/language.py."""

from benchmarks.architectures.language import LANGUAGE
from benchmarks.whole.model import Whole, of_language

_ALL = (*[of_language(name, language) for name, language in LANGUAGE.items()],)
#: By name.
WHOLE = {model.name: model for model in _ALL}

__all__ = ["WHOLE", "Whole"]
