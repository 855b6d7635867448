"""What a loop stacks, one slice a step, for the loop that runs later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unstacked:
    """What of a loop's step reaches the staged loop without being stacked for it.

    Attributes:
        params: for each parameter of the step, whether it does.
        invariant: for each parameter, whether it is the same in all steps.
        results: for each known result, whether it is stacked in any case.
    """

    params: tuple[bool, ...]
    invariant: tuple[bool, ...]
    results: tuple[bool, ...]
