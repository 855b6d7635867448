"""Checkpoints lower XLA's temporary memory, on every jaxlib: the figures of benchmarks/chain.py."""

from __future__ import annotations

import numpy as np
import pytest

import rematc
from benchmarks.chain import PLACEMENTS, chain_arguments, chain_loss


@pytest.mark.parametrize(("placement", "limit"), [("each layer", 72), ("layers in groups of 4", 48)])
def test_temporary_memory_of_a_chain_of_layers(placement: str, limit: int) -> None:
    """Without a checkpoint it is 288 MiB; one activation is 4 MiB, the gradients are 24 MiB of results."""
    loss = chain_loss(np, *PLACEMENTS[placement](rematc.checkpoint, lambda _: rematc.checkpoint))
    compiled = rematc.compile(rematc.value_and_grad(loss), *chain_arguments())
    assert compiled.memory().temp_bytes <= limit * 2**20
