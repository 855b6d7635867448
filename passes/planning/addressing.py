"""Analysis: the kernels of a program as plans hold them, each with a digest of what it computes.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   return %1
After:   0: dot_general, f32[8,8], of 1024 FLOP, reads nothing from memory that it counts, digest 5c1d...
         1: tanh, f32[8,8], reads value 0, digest 02fe...

A digest is of the text of the kernel's equations. In it a value in memory is called by the kernel that writes it, and a
parameter by its place and type: neither names nor locations change it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation
from rematc.ir.locations import Location, relative
from rematc.ir.printer import print_equations
from rematc.passes.aliases import Aliases, find_aliases
from rematc.passes.planning.planned_program import Kernel, PlannedProgram, StoredValue, digest_of
from rematc.passes.planning.translation import Translation


def program_of(translation: Translation) -> PlannedProgram:
    """A program as plans hold it."""
    graph, problem = translation.graph, translation.problem
    names = {param: f"%p{place}:{param.type}" for place, param in enumerate(graph.params)}
    names |= {value: f"%m{place}" for place, value in enumerate(translation.values)}
    aliases = find_aliases(graph.equations)
    kernels = []
    for node, cluster in enumerate(translation.clusters):
        own = cluster[-1]
        where = place_of(own.loc)
        writes = tuple([_stored(translation, value) for value in problem.writes[node]])
        kernels.append(
            Kernel(
                own.op.name,
                digest_of([print_equations(cluster, names), *["result" for value in writes if value.is_result]]),
                _labels(own, aliases),
                where,
                _fused(cluster[:-1], aliases, where),
                int(problem.cost[node]),
                translation.flops([node]),
                int(problem.workspace[node]),
                bool(problem.is_repeatable[node]),
                tuple(problem.reads[node]),
                writes,
            )
        )
    return PlannedProgram(tuple(kernels))


def place_of(loc: Location | None) -> str:
    """File and line of a location; "" for none."""
    return "" if loc is None else f"{relative(loc.file)}:{loc.line}"


def _stored(translation: Translation, value: int) -> StoredValue:
    problem = translation.problem
    size, replaces = int(problem.size[value]), int(problem.replaces[value])
    return StoredValue(str(translation.values[value].type), size, replaces, bool(problem.is_result[value]))


def _labels(eqn: Equation, aliases: Aliases) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for value in eqn.results for label in aliases.labels(value)))


def _fused(cluster: Sequence[Equation], aliases: Aliases, where: str) -> tuple[str, ...]:
    """Names and lines of fused equations, but for the line of what they are fused into."""
    found = {label for eqn in cluster for label in _labels(eqn, aliases)}
    return tuple(sorted(found | {place_of(eqn.loc) for eqn in cluster} - {where, ""}))
