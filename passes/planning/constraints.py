"""What a plan must not do: values that it has to keep, and ops that it must not run again."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import rematc.ir.ops  # noqa: F401  # registers the ops that constraints can name
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.registry import OPS
from rematc.ir.spelling import suggestion
from rematc.ir.values import Value
from rematc.passes.aliases import find_aliases
from rematc.passes.planning.loops import is_repeatable


class Form(enum.StrEnum):
    """In which form a program is planned.

    There are those without its own checkpoints (`rematc.passes.planning.opened`), one in which the steps of loops
    compute what is the same in all of them (`rematc.passes.hoist`), and one in which branches compute again what others
    gave them (`rematc.passes.planning.branches_again`).
    """

    NONE = ""
    #: Each step of a loop computes what could be computed before it.
    IN_STEPS = "in steps"
    #: What its own checkpoints compute again is merged with the forward evaluation.
    MERGED = "merged"
    #: And what of it loops would compute again is stacked.
    STACKED = "stacked"
    #: Branches compute again what other branches gave to them alone.
    BRANCHES = "branches"


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a plan must not do, in stages or in loops.

    Attributes:
        keep: names of `checkpoint_name` whose values are in memory from when they are computed, and not computed again.
        never_repeat: names of ops that do not run again.
        sums: whether sums of many values are in memory after each addend (`rematc.passes.planning.partial_sums`). It is
            the planner's choice, not the user's.
        fuses_shared: whether what a library's reduction and another kernel read is counted on to be computed in both,
            as it is where they run in stages of their own, though in one XLA writes it (`Fusion.reduces_alone`). It is
            the planner's choice, too.
        form: of the program: the planner's choice as well.

    Raises CompileError for ops that there are not, and for a text in place of several.
    """

    keep: tuple[str, ...] = ()
    never_repeat: tuple[str, ...] = ()
    sums: bool = False
    fuses_shared: bool = False
    form: Form = Form.NONE

    def __post_init__(self) -> None:
        for what, names in (("keep", self.keep), ("never_repeat", self.never_repeat)):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise CompileError(f"{what} is a list of names, got {names!r}; write {what}=('a', 'b')")
        for name in self.never_repeat:
            if name not in OPS:
                hint = suggestion(name, OPS) or "; ops are named as in --emit ir"
                raise CompileError(f"never_repeat names '{name}', and no op is called so{hint}")

    def text(self) -> str:
        """In words; "" where there are none."""
        parts = [("keeps", self.keep), ("never repeats", self.never_repeat)]
        said = [f"{what} {', '.join(names)}" for what, names in parts if names]
        chosen = [
            ("adds one after another", self.sums),
            ("computes in each step of a loop what is the same in all", self.form is Form.IN_STEPS),
            ("plans its own checkpoints anew", self.form in (Form.MERGED, Form.STACKED)),
            ("computes again in branches what others gave them", self.form is Form.BRANCHES),
        ]
        return "; ".join([*said, *[what for what, is_set in chosen if is_set]])

    def __bool__(self) -> bool:
        return bool(self.keep or self.never_repeat or self.sums or self.fuses_shared or self.form)

    def kept(self, equations: Sequence[Equation]) -> set[Value]:
        """The values that have to be in memory."""
        aliases = find_aliases(equations) if self.keep else None
        if aliases is None:
            return set()
        return {
            value for eqn in equations for value in eqn.results if not set(self.keep).isdisjoint(aliases.labels(value))
        }

    def may_repeat(self, equations: Sequence[Equation]) -> Callable[[Equation], bool]:
        """Whether one of these equations of a body may run again, with all that is in its regions."""
        kept = self.kept(equations)

        def may_repeat(eqn: Equation) -> bool:
            return is_repeatable(eqn) and kept.isdisjoint(eqn.results) and self._allows(eqn)

        return may_repeat if self else is_repeatable

    def _allows(self, eqn: Equation) -> bool:
        if eqn.op.name in self.never_repeat:
            return False
        return all(map(self._allows_region, eqn.op.regions()))

    def _allows_region(self, region: Graph) -> bool:
        return not self.kept(region.equations) and all(map(self._allows, region.equations))


#: No constraints.
FREE = Constraints()
