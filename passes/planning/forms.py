"""The forms of a program that plans choose among, beside the one that it has."""

from __future__ import annotations

from rematc.ir.core import Graph
from rematc.passes.planning.branches_again import with_branches_again
from rematc.passes.planning.constraints import Form
from rematc.passes.planning.opened import opened


def forms_of(graph: Graph) -> dict[Form, Graph]:
    """Without its own checkpoints; and with branches that compute again what others gave them; as far as there are any.

    The branches are those of the program without checkpoints, where it has some.
    """
    found = opened(graph)
    *_, last = (graph, *found.values())
    again = with_branches_again(last)
    return found if again is last else {**found, Form.BRANCHES: again}
