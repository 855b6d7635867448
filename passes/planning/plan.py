"""A plan as an object: what of a program is kept and what is computed again, and what that takes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rematc.ir.errors import CompileError
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import counted, format_bytes, format_seconds
from rematc.passes.planning import plan_json, summary
from rematc.passes.planning.constraints import FREE, Constraints, Form
from rematc.passes.planning.device import device_named
from rematc.passes.planning.difference import PlanDiff, kernel_table
from rematc.passes.planning.explaining import explain
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.planning.loops import LoopDecision
from rematc.passes.planning.planned_loops import PlannedLoop
from rematc.passes.planning.planned_program import PlannedProgram, StoredValue
from rematc.passes.planning.problem import Run, Stages, simulate
from rematc.passes.planning.summary import PlannedValue, PlannedWork
from rematc.passes.planning.timeline import Timeline

#: How many of the kernels whose values are live at the peak the text has.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class WithoutRecomputation:
    """What a program takes without recomputation: bytes at the peak, nanoseconds, operations, and how many products."""

    peak: int
    time: int
    flops: int
    products: int


class Bound:
    """Nanoseconds below which no plan for a budget is; they are found when somebody asks, which takes long."""

    def __init__(self, find: Callable[[], int]) -> None:
        """`find` finds them."""
        self._find: Callable[[], int] | None = find
        self._found = 0

    @classmethod
    def known(cls, found: int) -> Bound:
        """They are known."""
        return cls(lambda: found)

    @property
    def nanoseconds(self) -> int:
        """So many."""
        find = self._find
        if find is not None:
            self._found, self._find = find(), None
        return self._found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def __repr__(self) -> str:
        return f"Bound({self.nanoseconds})"

    def __reduce__(self) -> tuple[Callable[[int], Bound], tuple[int]]:
        return Bound.known, (self.nanoseconds,)


@dataclass(frozen=True)
class Plan:
    """What of a program is kept and what is computed again. `print(plan)` shows it.

    Attributes:
        budget: bytes of temporary memory that it was made for.
        device: whose rates the times are of.
        least: nanoseconds below which no plan for the budget is.
        stages: where kernels run again, and which.
        program: the kernels of the program that it was made for, with what its loops compute again.
        loops: what its loops compute again, and do not stack.
        without_recomputation: what the program takes then, even that of its own checkpoints if plans may take these
            apart; None where that is the plan's program without stages.
        constraints: what it must not do.
        slices: how its program was cut; None where it was not.
    """

    budget: int
    device: str
    least: Bound
    stages: Stages
    program: PlannedProgram
    loops: tuple[PlannedLoop, ...] = ()
    without_recomputation: WithoutRecomputation | None = None
    constraints: Constraints = FREE
    slices: InSlices | None = None

    def __repr__(self) -> str:
        return f"Plan(budget={self.budget}, peak={self.peak}, stages={len(self.stages.begins)}, {self.program.digest})"

    # -- what it takes -------------------------------------------------------------------------------------------------

    @functools.cached_property
    def run(self) -> Run:
        """The program run in its stages, simulated."""
        return simulate(self.program.problem, self.stages)

    @property
    def peak(self) -> int:
        """Predicted bytes of temporary memory."""
        return self.run.peak

    @functools.cached_property
    def _without(self) -> WithoutRecomputation:
        if self.without_recomputation is not None:
            return self.without_recomputation
        run = simulate(self.program.problem)
        flops = sum(kernel.flops for kernel in self.program.kernels)
        return WithoutRecomputation(run.peak, run.time, flops, self.program.products)

    @property
    def peak_without(self) -> int:
        """Those of the program without recomputation."""
        return self._without.peak

    @property
    def time(self) -> int:
        """Predicted nanoseconds of all kernels, with what runs again."""
        return self.run.time

    @property
    def bound(self) -> int:
        """Nanoseconds below which no plan for the budget is."""
        return self.least.nanoseconds

    @property
    def time_without(self) -> int:
        """Those of the program without recomputation."""
        return self._without.time

    @property
    def flops(self) -> int:
        """Floating-point operations without recomputation."""
        return self._without.flops

    @property
    def extra_flops(self) -> int:
        """Those of what runs again."""
        kernels = self.program.kernels
        again = sum(kernels[place].flops for again in self.stages.again for place in again)
        return again + sum(kernel.flops for kernel in kernels) - self.flops

    @property
    def decisions(self) -> tuple[LoopDecision, ...]:
        """What its loops compute again, by their places."""
        return tuple(loop.decision for loop in self.loops)

    def does_as(self, other: Plan) -> bool:
        """Whether another plan of the same program computes the same again, and holds the same sums."""
        return self.does == other.does

    @property
    def does(self) -> tuple[Stages, tuple[LoopDecision, ...], Constraints]:
        """All that is decided, for a program."""
        return self.stages, self.decisions, self.constraints

    @property
    def recomputes(self) -> bool:
        """Whether anything runs again."""
        return bool(self.stages.begins or self.loops)

    @functools.cached_property
    def held(self) -> tuple[int, ...]:
        """The values of the program that are live at the peak, largest first."""
        program = self.program
        live = Timeline(program.problem, self.stages).held(self.run.at) if program.kernels else ()
        return tuple(sorted(live, key=lambda value: (-program.values[value].size, value)))

    @property
    def saved_names(self) -> tuple[str, ...]:
        """The names of `checkpoint_name` whose values are all kept, for `save_only_these_names`."""
        again = {place for row in self.stages.again for place in row}
        kernels = self.program.kernels
        repeated = {name for place in again for name in kernels[place].names}
        repeated |= {name for loop in self.loops for stack in loop.stacks for name in stack.names}
        return tuple(dict.fromkeys(name for kernel in kernels for name in kernel.names if name not in repeated))

    @functools.cached_property
    def kept(self) -> tuple[PlannedValue, ...]:
        """What is held from the forward to the backward pass, largest first."""
        return summary.kept(self.program, self.stages, self._backward_begin)

    @property
    def computed_again(self) -> tuple[PlannedValue, ...]:
        """What stages, and the steps of loops, compute again, largest first."""
        return summary.computed_again(self.program, self.stages, self.loops)

    @property
    def work(self) -> PlannedWork:
        """Kernels and floating-point operations, with what runs again."""
        in_branches = 0
        if self.constraints.form is Form.BRANCHES:
            of_loops = sum(loop.products for loop in self.loops)
            in_branches = self.program.products - of_loops - self._without.products
        begin = self._backward_begin
        return summary.work(self.program, self.stages, self.loops, begin, self.flops, self.extra_flops, in_branches)

    @functools.cached_property
    def _backward_begin(self) -> int:
        return summary.backward_begin(self.program)

    @property
    def is_feasible(self) -> bool:
        """Whether it is predicted to be within its budget."""
        return self.peak <= self.budget

    @property
    def gap(self) -> float:
        """How far from the optimum the time is at most, as a part of the bound."""
        return self.time / self.bound - 1 if self.bound else 0.0

    # -- as text -------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The plan as a JSON document, which `from_json` reads."""
        head = {
            "format": plan_json.FORMAT,
            "budget": self.budget,
            "device": self.device,
            "bound_ns": self.bound,
            **({"constraints": asdict(self.constraints)} if self.constraints else {}),
            **({"slices": asdict(self.slices)} if self.slices is not None else {}),
            "program": self.program.digest,
            "predicted": {
                "peak": self.peak,
                "peak_without": self.peak_without,
                "ns": self.time,
                "ns_without": self.time_without,
                "flops_without": self.flops,
                "extra_flops": self.extra_flops,
                "products_without": self._without.products,
            },
        }
        return plan_json.write(head, self.stages, self.loops, self.program)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan of a document that `to_json` gave. Raises CompileError for what is none."""
        fields = plan_json.parse(text)
        program, stages = plan_json.program_of(fields), plan_json.stages_of(fields)
        program.check_stages(stages)
        constraints = plan_json.constraints_of(fields)
        device = fields.get("device", str)
        loops = plan_json.loops_of(fields, constraints, device_named(device).fusion)
        predicted = plan_json.Fields(fields.get("predicted", dict), "'predicted'")
        peak, time, flops = [predicted.get(f"{what}_without", int) for what in ("peak", "ns", "flops")]
        products = predicted.get("products_without", int, program.products - sum(loop.products for loop in loops))
        whole = WithoutRecomputation(peak, time, flops, products)
        budget, bound = fields.get("budget", int), fields.get("bound_ns", int)
        slices = plan_json.slices_of(fields)
        plan = cls(budget, device, Bound.known(bound), stages, program, loops, None, constraints, slices)
        return plan if plan._without == whole else replace(plan, without_recomputation=whole)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Plan:
        """The plan of a file that holds what `to_json` gave. Raises CompileError where there is none."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CompileError(f"cannot read the plan {os.fspath(path)}: {error}") from None
        try:
            return cls.from_json(text)
        except CompileError as error:
            raise CompileError(f"cannot read the plan {os.fspath(path)}: {error.message}") from None

    def tables(self) -> list[Table]:
        """What `print` shows: figures, what is live at the peak, and what each stage and each loop computes again."""
        program = self.program
        without = f"{format_bytes(self.peak_without)} without recomputation"
        time = f"{format_seconds(self.time_without / 1e9)} without recomputation"
        rows = (
            ("budget", format_bytes(self.budget), self.constraints.text()),
            ("predicted peak", format_bytes(self.peak), without),
            ("predicted time", format_seconds(self.time / 1e9), f"{time} ({self.device})"),
            ("no plan is below", format_seconds(self.bound / 1e9), f"at most {self.gap:.1%} from the optimum"),
            ("program", program.digest, counted(len(program.kernels), "kernel")),
        )
        at = f", when {program.label(int(self.run.steps[self.run.at]))} runs" if program.kernels else ""
        held = tuple(dict.fromkeys(program.producers[value] for value in self.held))
        rest = sum(program.kernels[place].size for place in held[SHOWN:])
        note = f"and {len(held) - SHOWN} others of {format_bytes(rest)}" if len(held) > SHOWN else ""
        tables = [
            Table("plan", ("", "", ""), (False, True, False), rows),
            kernel_table(f"live at the peak{at}", program, held[:SHOWN], note),
        ]
        for begin, again in zip(self.stages.begins, self.stages.again, strict=True):
            tables.append(kernel_table(f"computed again before {program.label(begin)}", program, again))
        return tables + [loop.table() for loop in self.loops]

    def __str__(self) -> str:
        return plain_text(self.tables()).rstrip()

    def describe_held(self, most: int = 8) -> str:
        """The values that are live at the peak, largest first, one a line: name or op, type, bytes, where it is.

        Where there is none, what runs then: a loop, the steps of which hold all.
        """
        if not self.held and self.program.kernels:
            running = int(self.run.steps[self.run.at])
            kernel = self.program.kernels[running]
            line = f"  what '{kernel.op}' takes while it runs"
            return f"{line}, at {kernel.where}" if kernel.where else line
        lines = []
        for value in self.held[:most]:
            kernel, stored = self.program.kernels[self.program.producers[value]], self.program.values[value]
            line = f"  {' '.join(kernel.names) or kernel.op}: {stored.type}, {stored.size} bytes"
            lines.append(f"{line}, at {kernel.where}" if kernel.where else line)
        if len(self.held) > most:
            rest = sum(self.program.values[value].size for value in self.held[most:])
            lines.append(f"  and {len(self.held) - most} others of {rest} bytes")
        return "\n".join(lines)

    # -- applied -------------------------------------------------------------------------------------------------------

    def of(self, program: PlannedProgram) -> Plan:
        """The plan with the names and lines of a program that computes what the plan's own does.

        Raises CompileError, which names what has changed, where it does not, or cannot run in these stages.
        """
        if program is self.program:
            return self
        program.check_same(self.program)
        program.check_stages(self.stages)
        kernels = [
            replace(
                own, names=now.names, where=now.where, fused=now.fused, writes=_with_origins(own.writes, now.writes)
            )
            for own, now in zip(self.program.kernels, program.kernels, strict=True)
        ]
        return replace(self, program=PlannedProgram(tuple(kernels)))

    # -- beside others -------------------------------------------------------------------------------------------------

    def diff(self, other: Plan) -> PlanDiff:
        """What this plan and another one of the same program do differently.

        Raises CompileError where they are of different programs, or do different things in loops.
        """
        if self.decisions != other.decisions:
            raise CompileError(
                "the plans compute different values again in loops, so that their kernels are not the same; print both"
            )
        self.program.check_same(other.program)
        stages, budgets, runs = (self.stages, other.stages), (self.budget, other.budget), (self.run, other.run)
        return PlanDiff(self.program, stages, budgets, runs)

    def explain(self, value: str) -> str:
        """Why a value is kept or computed again, and what it would take the other way round, simulated.

        Args:
            value: a name that `checkpoint_name` gave, `FILE:LINE`, an op, or a label of the plan's text (`tanh.5`).

        Raises CompileError where there is no such value.
        """
        texts = [text for loop in self.loops for text in loop.explain(value)]
        return "\n\n".join(texts) if texts else explain(self.program, self.stages, self.budget, value)


def _with_origins(own: Sequence[StoredValue], now: Sequence[StoredValue]) -> tuple[StoredValue, ...]:
    return tuple([replace(value, origin=new.origin) for value, new in zip(own, now, strict=True)])
