"""How the lines of a module are called: `backward/layer/tanh_12`, the phase, the user's function, the equation.

The equation `tanh_12` is the one that defines `%12` in the text of the graph (`Lowered.ir()`). In a region it stands
behind those around it, `scan_9/tanh_3`, in a function behind the function, `stage()/tanh_3`. XLA hands these names on
as `op_name` of the instructions that it makes of the lines, and calls these by the last part: its own tools show them,
and `rematc.lowering.hlo.origins` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.printer import name_values
from rematc.ir.values import Value
from rematc.passes.phases import Phase, Phased, Phases

#: Where the user's function is not known.
UNKNOWN = "?"
#: What XLA cuts names at, or we do.
_NOT_IN_NAMES = re.compile("[/;@]")


@dataclass(frozen=True, slots=True)
class Labels:
    """Those of the equation that is being written.

    Attributes:
        phases: of the equations of the graph that is being written, or of the regions of the equation.
        path: the equation, behind those that it stands in: `scan_9/tanh_3`.
        phase: the equation's; None where its lines have no label.
        names: of the values of the graph.
    """

    phases: Phases
    path: str = ""
    phase: Phase | None = None
    names: Mapping[Value, str] = field(default_factory=dict)

    def label(self, loc: Location | None) -> str:
        """`backward/layer/tanh_9`, or "" for none."""
        if self.phase is None:
            return ""
        function = UNKNOWN if loc is None or not loc.function else _NOT_IN_NAMES.sub("|", loc.function)
        return f"{self.phase}/{function}/{self.path}"

    def of(self, eqn: Equation, found: Phased) -> Labels:
        """Those of an equation of the graph."""
        numbers = [self.names[value].removeprefix("%") for value in eqn.results[:1]]
        name = "_".join([eqn.op.name, *numbers])
        return Labels(found.inside, f"{self.path}/{name}" if self.path else name, found.phase)

    def inside(self, graph: Graph) -> Labels:
        """Those of a graph that the equation has, before its first equation."""
        return Labels(self.phases, self.path, None, name_values(graph)) if self.phases else self
