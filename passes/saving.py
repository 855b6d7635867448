"""What a partial evaluation saves: the decision on every known value that the staged equations need.

Before:  known: %0 = dot_general %x, %w   %1 = tanh %0   %2 = multiply %1, %1      the staged equations need %2
After:   %0 is saved under `dots`, %1 and %2 are computed again from it

The policy answers for the equation that computes a value. What follows from constants alone, or repeats another value's
elements, is computed again whatever it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rematc.ir.core import Equation, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Name, ToMemory
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy, Recompute, is_private
from rematc.ir.values import Value
from rematc.passes.aliases import Aliases, find_aliases
from rematc.passes.least_residuals import Derivation, least_residuals
from rematc.passes.light_work import LightWork


@dataclass(frozen=True, slots=True)
class Residual:
    """A value that crosses from the known to the staged graph.

    Attributes:
        value: the value, in the known graph.
        param: index of the known graph's parameter that it is; None for a computed value.
        source: the equation that computes it, inside its region if it has one; None for a parameter.
        label: the name that `checkpoint_name` gave it, if any.
        steps: how many results of `source` it holds: one for each step of the loops that `source` stands in.
    """

    value: Value
    param: int | None = None
    source: Equation | None = None
    label: str | None = None
    steps: int = 1


class Saving:
    """Decides, for every known value that the staged equations need, whether it is saved or recomputed.

    Attributes:
        policy: whose answers count; None saves all that is needed.
        aliases: of the known values.
        params: the graph's parameters, which are there.
        producer: for each known value its equation, and where that stands.
        constant: what follows from constants alone.
        again: known values of regions, and the equations that stand for them in the staged graph.
        decisions: as far as they are made, by the root of an alias class.
        given: the roots on which regions have decided.
        residuals: what crosses, by its root.
        recomputed: the equations that the staged graph repeats, by where they stand.
        light: of a loop's step, what is light work; None elsewhere.
        has_tangent: the roots of which the staged graph reads a member that no `stop_gradient` stands before.
    """

    def __init__(
        self,
        params: Iterable[Value],
        known: Sequence[Equation],
        policy: Policy | None,
        decided: Mapping[Value, Decision],
        again: Mapping[Value, Value],
    ) -> None:
        self.policy = policy
        self.aliases: Aliases = find_aliases(known)
        self.params = set(params)
        self.producer: dict[Value, tuple[int, Equation]] = {}
        self.constant: set[Value] = set()
        for index, eqn in enumerate(known):
            for value in eqn.results:
                self.producer[value] = (index, eqn)
            if not _takes_time(eqn.op) and self.constant.issuperset(eqn.operands):
                self.constant.update(eqn.results)
        self.again = again
        self.decisions: dict[Value, Decision] = dict(decided)
        self.given = frozenset(decided)
        self.residuals: dict[Value, Residual] = {}
        self.recomputed: dict[int, Equation] = {}
        self.light: LightWork | None = None
        self.has_tangent: set[Value] = set()

    def need_all(self, wanted: Iterable[Value]) -> None:
        """Make known values available in the staged graph."""
        wanted = list(wanted)
        if self.light is not None:
            self._decide_all(wanted, self._derivation_by_light_work)
        elif self.policy is not None and self.policy.saves_least:
            self._decide_all(wanted, self._derivation)
        for value in wanted:
            self._need(value)

    def _decide_all(self, wanted: Iterable[Value], derivation: Callable[[Value], Derivation | None]) -> None:
        """Save the fewest bytes from which the wanted values follow."""
        derivations: dict[Value, Derivation] = {}

        def derive(root: Value) -> Derivation | None:
            found = derivation(root)
            if found is not None:
                derivations[root] = found
            return found

        saved = least_residuals([self.aliases.root(value) for value in wanted], derive)
        for root in derivations:
            if root in self.params:
                continue
            if root not in saved:
                self.decisions[root] = RECOMPUTE
            elif isinstance(self.decisions[root], Recompute):
                self.decisions[root] = SAVE

    def _derivation(self, root: Value) -> Derivation | None:
        """How a value follows from others by what the policy recomputes."""
        if root in self.params or root in self.constant:
            return None
        _, eqn = self.producer[root]
        is_repeatable = isinstance(self.decide(root), Recompute)
        # What is saved for another reason costs nothing to use.
        is_there = not is_repeatable and (root in self.given or eqn.op.is_fusible)
        return Derivation(0 if is_there else root.type.bytes, self._sources(root) if is_repeatable else None)

    def _derivation_by_light_work(self, root: Value) -> Derivation | None:
        """How a value of a loop's step follows from others without a policy."""
        assert self.light is not None
        if root in self.light.free or root in self.constant:
            return None
        if root in self.params:
            return Derivation(root.type.bytes, None)
        is_repeatable = isinstance(self.decide(root), Recompute)
        is_repeatable |= root in self.light.repeatable and root not in self.given
        return Derivation(root.type.bytes, self._sources(root) if is_repeatable else None)

    def _sources(self, root: Value) -> list[Value]:
        """What a value is computed from again."""
        values = (self.again[root],) if root in self.again else self.producer[root][1].operands
        return [self.aliases.root(value) for value in values]

    def _need(self, wanted: Value) -> None:
        stack = [wanted]
        while stack:
            value = stack.pop()
            root = self.aliases.root(value)
            if value not in self.aliases.stopped:
                self.has_tangent.add(root)
            if root in self.params:
                self.residuals.setdefault(root, Residual(root))
            elif not isinstance(self.decide(root), Recompute):
                self.residuals.setdefault(root, self._computed(root))
            elif root in self.again:
                stack.append(self.again[root])
            else:
                index, eqn = self.producer[value]
                if index not in self.recomputed:
                    self.recomputed[index] = eqn
                    stack.extend(eqn.operands)

    def residual(self, root: Value) -> Residual:
        """What crosses for a class, once all that the staged graph reads is known."""
        value = self.aliases.representative(root, root in self.has_tangent)
        return replace(self.residuals[root], value=value)

    def decide(self, root: Value) -> Decision:
        found = self.decisions.get(root)
        if found is None:
            found = self.decisions[root] = self._decide(root)
        return found

    def _decide(self, root: Value) -> Decision:
        if root in self.constant:
            return RECOMPUTE
        origin = self._origin(root)
        _, eqn = self.producer[origin]
        if not eqn.op.is_repeatable:
            return SAVE
        if _is_enlarged(eqn) and not self._names(root):
            return RECOMPUTE
        if self.policy is None:
            return SAVE
        answers = self.policy.decide(eqn.op, eqn.operand_types, self._labels(root))
        if len(answers) not in (1, len(eqn.results)):
            raise CompileError(
                f"the policy {self.policy.spec} gave {len(answers)} decisions for '{eqn.op.name}', which has "
                f"{len(eqn.results)} results; give one, or one for each",
                eqn.loc,
            )
        answer = answers[0] if len(answers) == 1 else answers[eqn.results.index(origin)]
        # A copy that a region inside made in the host's memory is there already.
        return SAVE if isinstance(answer, Offload) and root.type.on_host else answer

    def _origin(self, root: Value) -> Value:
        """The value that `root` is but for its rounding and its memory: what policies and reports mean by it."""
        value = root
        while isinstance(self.producer[value][1].op, (ReducePrecision, ToMemory)):
            operand = self.aliases.root(self.producer[value][1].operands[0])
            if operand not in self.producer:
                break
            value = operand
        return value

    def _names(self, root: Value) -> list[Equation]:
        """The `name` equations of a value: its own, and those of what it is a copy of."""
        return [*self.aliases.names.get(root, ()), *self.aliases.names.get(self._origin(root), ())]

    def _labels(self, root: Value) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.aliases.labels(root), *self.aliases.labels(self._origin(root)))))

    def _computed(self, root: Value) -> Residual:
        labels = tuple([label for label in self._labels(root) if not is_private(label)])
        names = [eqn for eqn in self._names(root) if not (isinstance(eqn.op, Name) and is_private(eqn.op.label))]
        value = self._origin(root)
        source, steps = names[0] if names else self.producer[value][1], 1
        origin = None if names else source.op.origin(source.results.index(value))
        if origin is not None:
            source, steps = origin.eqn, origin.steps
            labels = (source.op.label,) if isinstance(source.op, Name) else ()
        return Residual(root, None, source, labels[0] if labels else None, steps)


def _is_enlarged(eqn: Equation) -> bool:
    """Whether the result repeats the operand's elements: to keep the operand takes less memory, and no time."""
    return isinstance(eqn.op, BroadcastInDim) and eqn.results[0].type.size > eqn.operands[0].type.size


def _takes_time(op: Op) -> bool:
    """Whether it may be more work to repeat an op of constants than to keep what it gives."""
    return op.is_product or op.is_opaque
