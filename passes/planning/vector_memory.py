"""What of a program lies in a TPU's vector memory, and not in its main memory.

    112 MiB; %0, 64 MiB, nodes 0 to 9; %1, 64 MiB, nodes 3 to 4; %2, 64 MiB, nodes 6 to 7
    %1 and %2 lie there, one after the other, and %0 does not

XLA for TPUs assigns what is written and soon read to the memory beside the vector units as long as there is room
(`S(1)` in the layouts of optimized modules), and counts none of that as temporary memory. It weighs what a kernel gains
by it; here what lives shortest comes first, which has most of its time from it for each byte and moment of room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def in_vector_memory(
    begins: Sequence[int], ends: Sequence[int], sizes: Sequence[int], capacity: int, values: Sequence[int]
) -> frozenset[int]:
    """Those of some values that lie there.

    Args:
        begins: for each value the node that writes it.
        ends: for each value the last node that reads it; less than it begins where none does.
        sizes: bytes of each.
        capacity: bytes that it has.
        values: those that may lie there, by their numbers.
    """
    if not capacity or not values:
        return frozenset()
    taken = np.zeros(max(ends) + 1, np.int64)
    found = set[int]()
    for value in sorted(values, key=lambda value: (ends[value] - begins[value], begins[value])):
        lives = taken[begins[value] : ends[value] + 1]
        if lives.size and lives.max() + sizes[value] <= capacity:
            lives += sizes[value]
            found.add(value)
    return frozenset(found)
