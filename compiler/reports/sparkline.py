"""A line of characters, each as high as a number."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS, _LETTERS = "▁▂▃▄▅▆▇█", "_.-=+*%#"


def sparkline(heights: Sequence[int], *, has_blocks: bool = True) -> str:
    """A character for each number, the highest block for the largest one; letters where there are no blocks.

    The lowest is for what is less than an eighth of it.
    """
    characters = _BLOCKS if has_blocks else _LETTERS
    most = max(heights, default=0)
    if most <= 0:
        return characters[0] * len(heights)
    last = len(characters) - 1
    return "".join([characters[min(last, max(0, height) * len(characters) // most)] for height in heights])
