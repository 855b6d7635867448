"""Analysis: the kernels of a program as plans hold them, each with a digest of what it computes.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   return %1
After:   0: dot_general, f32[8,8], of 1024 FLOP, reads nothing from memory that it counts, digest 5c1d...
         1: tanh, f32[8,8], reads value 0, digest 02fe...

A digest is of the text of the kernel's equations. In it a value in memory is called by the kernel that writes it, and a
parameter by its place and type: neither names nor locations change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import relative
from rematc.ir.ops.structural import Name
from rematc.ir.printer import print_equations
from rematc.ir.values import Value
from rematc.passes.accounting import products_of
from rematc.passes.aliases import find_aliases
from rematc.passes.planning.planned_program import Kernel, PlannedProgram, StoredValue, described, digest_of
from rematc.passes.planning.translation import Translation


def program_of(translation: Translation) -> PlannedProgram:
    """A program as plans hold it."""
    return PlannedProgram(kernels_of(translation, range(len(translation.clusters))))


def kernels_of(translation: Translation, nodes: Iterable[int]) -> tuple[Kernel, ...]:
    """Some of its kernels."""
    addresses = _Addresses(translation)
    return tuple([addresses.kernel(node) for node in nodes])


class _Addresses:
    """What is known of a program's values and files while its kernels are described."""

    def __init__(self, translation: Translation) -> None:
        graph = translation.graph
        self._translation = translation
        self._aliases = find_aliases(graph.equations)
        self._names = {param: f"%p{place}:{param.type}" for place, param in enumerate(graph.params)}
        self._names |= {value: f"%m{place}" for place, value in enumerate(translation.values)}
        self._files: dict[str, str] = {}

    def kernel(self, node: int) -> Kernel:
        """A kernel, and what it writes."""
        translation, problem = self._translation, self._translation.problem
        *feeders, own = translation.clusters[node]
        where = self._place(own)
        writes = tuple([self._stored(value, own) for value in problem.writes[node]])
        text = print_equations(translation.clusters[node], self._names)
        return Kernel(
            own.op.name,
            digest_of([text, *["result" for value in writes if value.is_result]]),
            self._labels(own),
            where,
            self._fused(feeders, where),
            int(problem.cost[node]),
            translation.flops([node]),
            int(problem.workspace[node]),
            bool(problem.is_repeatable[node]),
            tuple(problem.reads[node]),
            writes,
            products_of(Graph("kernel", tuple(dict.fromkeys(own.operands)), (own,), own.results))
            if own.op.regions()
            else 0,
        )

    def _stored(self, value: int, eqn: Equation) -> StoredValue:
        translation, problem = self._translation, self._translation.problem
        size, replaces = int(problem.size[value]), int(problem.replaces[value])
        known = translation.values[value]
        return StoredValue(str(known.type), size, replaces, bool(problem.is_result[value]), self._origin(eqn, known))

    def _origin(self, eqn: Equation, value: Value) -> str:
        origin = eqn.op.origin(eqn.results.index(value)) if eqn.op.regions() else None
        if origin is None:
            return ""
        names = [origin.eqn.op.label] if isinstance(origin.eqn.op, Name) else ()
        where = self._place(origin.eqn)
        text = described(origin.eqn.op.name, names) + (f" from {where}" if where else "")
        return f"{text}, {origin.steps} steps" if origin.steps > 1 else text

    def _labels(self, eqn: Equation) -> tuple[str, ...]:
        return tuple(dict.fromkeys(label for value in eqn.results for label in self._aliases.labels(value)))

    def _fused(self, feeders: Sequence[Equation], where: str) -> tuple[str, ...]:
        """Names and lines of fused equations, but for the line of what they are fused into."""
        found = {label for eqn in feeders for label in self._labels(eqn)}
        return tuple(sorted(found | {self._place(eqn) for eqn in feeders} - {where, ""}))

    def _place(self, eqn: Equation) -> str:
        """File and line; "" where they are not known."""
        if eqn.loc is None:
            return ""
        file = self._files.get(eqn.loc.file)
        if file is None:
            file = self._files[eqn.loc.file] = relative(eqn.loc.file)
        return f"{file}:{eqn.loc.line}"
