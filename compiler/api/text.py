"""The IR's text with policies in it: what `rematc.ir.parser` reads once it knows how to read a policy."""

from __future__ import annotations

from rematc.compiler.frontends.jax.policies import adopted
from rematc.ir.core import Graph
from rematc.ir.parser import parse_graph
from rematc.ir.policy import Policy
from rematc.passes.policies import parse_policy


def parse(text: str) -> Graph:
    """The graph that this IR text is; the inverse of printing.

    Raises ParseError with line and column in the text where it is not the IR's grammar, and VerifierError where it is
    but breaks a law of the IR.
    """
    return parse_graph(text, policies=_parse_policy)


def _parse_policy(text: str) -> Policy:
    return adopted(parse_policy(text))
