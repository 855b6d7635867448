"""What the command line asks for, once click has read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: What a model is written in.
FRONTENDS = ("auto", "numpy", "jax")
#: What `--emit` prints, in the order in which the compiler makes it.
EMITTED = ("ir", "linear", "forward", "backward", "plan", "plan-json", "stablehlo", "hlo", "hlo-optimized", "buffers")
#: Those that are not of a derivative, but of what is made of it under a budget or a plan.
PLANNED = ("plan", "plan-json", "stablehlo", "hlo", "hlo-optimized", "buffers")
#: The documents of JSON that the command prints, by what they are; each has a schema.
DOCUMENTS = ("report", "comparison", "pareto", "diff", "plan")
#: Those of a StableHLO module.
OF_MODULES = ("ir", *PLANNED)
#: How the name of a file with a StableHLO module ends.
MODULE = ".mlir"
#: How recomputation is kept where it is: `rematc.passes.barriers.STRATEGIES`, and what the platform needs.
BARRIERS = ("auto", "optimization_barrier", "call", "conditional", "none")


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options; see `remat-compile --help`.

    Attributes:
        model: the Python file, or one with a StableHLO module.
        model_args: what stands after `--`: the model's own arguments.
        entry: name of the function in it, or None to find it.
        frontend: "numpy", "jax", or "auto" to find out which of them the function is written in.
        args: types of the arguments, as written; () takes `example_args()`.
        argnums: positions to differentiate with respect to.
        has_aux: whether the function returns (value, auxiliary data).
        policy: the policy's text; "none" is no policy.
        budget: the temporary memory that the step may take, as written; None for none.
        keep: names of values that the plan for the budget keeps, as written; None for none.
        never_repeat: ops that it never runs again, likewise.
        plan_seconds: after how many no plan is improved any more.
        plan: the file of the plan to apply; None for none.
        save_plan: the file to write the plan to.
        slices: in how many slices the largest stage runs, as written; "off" is none.
        compare: policies to compare; () prints a report.
        pareto: whether to print what plans for many budgets take.
        emit: what to print instead of a report.
        output: the file to write.
        html: the file to write the report to as a page.
        dump: the directory to write the program at every stage to.
        run: whether to run the training step.
        profile: the directory for its trace, "" to keep none; None for no profile.
        target: what to compile for; None is what jax takes.
        barrier: the strategy of barriers in the default pipeline.
        passes: a pipeline instead of the default one.
        print_between_passes: whether to print the graph after each pass.
        time_passes: whether to print what each pass took.
        strict: whether a plan that XLA undid is an error.
        json: whether to print JSON.
        quiet: no progress, no baseline.
        verbose: nothing is left out.
        traceback: whether to print Python's traceback of an error.
    """

    model: Path
    model_args: tuple[str, ...]
    entry: str | None
    frontend: str
    args: tuple[str, ...]
    argnums: tuple[int, ...]
    has_aux: bool
    policy: str
    budget: str | None
    keep: str | None
    never_repeat: str | None
    plan_seconds: float | None
    plan: Path | None
    save_plan: Path | None
    slices: str
    compare: tuple[str, ...]
    pareto: bool
    emit: str | None
    output: Path | None
    html: Path | None
    dump: Path | None
    run: bool
    profile: str | None
    target: str | None
    barrier: str
    passes: str | None
    print_between_passes: bool
    time_passes: bool
    strict: bool
    json: bool
    quiet: bool
    verbose: bool
    traceback: bool

    @property
    def is_module(self) -> bool:
        """Whether the model is a StableHLO module: a whole step, which is not differentiated."""
        return self.model.suffix == MODULE

    @property
    def is_planned(self) -> bool:
        """Whether the step has a plan."""
        return self.budget is not None or self.plan is not None
