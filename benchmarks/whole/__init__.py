"""Whole models of real sizes, as their users write them, for benchmarks/language.py."""

from benchmarks.architectures.language import LANGUAGE
from benchmarks.whole.convolutional import MOBILENET, RESNET, UNET, VGG
from benchmarks.whole.masked import MASKED
from benchmarks.whole.mixture import MIXTURE
from benchmarks.whole.model import Whole, of_language
from benchmarks.whole.plain import PLAIN
from benchmarks.whole.translation import TRANSLATION
from benchmarks.whole.vision import DIT, VIT, VIT_SCAN

_ALL = (
    *[of_language(name, language) for name, language in LANGUAGE.items()],
    MIXTURE,
    TRANSLATION,
    MASKED,
    PLAIN,
    VIT,
    VIT_SCAN,
    DIT,
    UNET,
    RESNET,
    MOBILENET,
    VGG,
)
#: By name.
WHOLE = {model.name: model for model in _ALL}

__all__ = ["WHOLE", "Whole"]
