"""Losses out of packages that others wrote, one file a package, each as JAX users have it.

`benchmarks/models.py` measures them. A file holds `LOSSES`; importing it fails where its package is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: The files of this folder, by the package that each takes its losses from.
PACKAGES = (
    "flax_linen",
    "flax_nnx",
    "equinox",
    "haiku",
    "optax",
    "numpyro",
    "diffrax",
    "distrax",
    "e3nn_jax",
    "jraph",
    "blackjax",
    "jaxopt",
    "tinygp",
    "gpjax",
    "ott",
    "penzai",
    "jax_md",
    "dynamax",
    "flowjax",
    "lineax",
    "keras",
    "rlax",
    "transformers",
    "bijx",
    "fftloggin",
    "evermore",
    "haliax",
    "jaxdf",
    "synax",
    "blox",
    "jaxnu",
    "jaxley",
    "rnn_jax",
    "jaxdiffmodal",
    "dlux",
    "cuthbert",
    "jaxoplanet",
    "kalmax",
    "connex",
    "equimo",
    "optimistix",
    "jaxlie",
    "interpax",
    "quadax",
    "orthax",
    "exponax",
    "pdequinox",
    "folx",
    "vbjax",
    "netket",
    "mctx",
    "pzflow",
    "brax",
    "matfree",
    "jaxwt",
    "signax",
    "dm_pix",
    "dynamiqs",
    "fedjax",
)


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss and how it is made.

    Attributes:
        name: on the command line and in tables.
        about: what it computes, in a few words.
        build: makes the function and its arguments anew; the function is differentiated in the first of them, whose
            leaves are floating-point arrays.
        tolerance: how far its gradients may be from JAX's, over the largest entry of each array, where a float32
            computation repeats so many roundings that the default is too strict; the reason stands where it is given.
        is_single: whether it computes in float32 whatever its arguments are.
        second_tolerance: the same as `tolerance`, of second derivatives.
    """

    name: str
    about: str
    build: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    tolerance: float | None = None
    is_single: bool = False
    second_tolerance: float | None = None
