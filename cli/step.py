"""The training step that the command compiles: the value and gradient of the entry under a policy."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rematc.cli.arguments import find_arguments, parse_type
from rematc.cli.model import Entry, find_entry, load_model, users_code
from rematc.cli.options import Options
from rematc.cli.progress import Progress, interruptible
from rematc.cli.source import relative
from rematc.compiler import driver
from rematc.compiler.differentiation import value_and_grad
from rematc.compiler.driver import Compiled, Lowered
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.printer import print_graph

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The entry function with the arguments it is compiled for, and how to compile it.

    Attributes:
        entry: the function.
        args: its arguments.
        options: what the command line says.
        progress: says what is going on.
    """

    entry: Entry
    args: tuple[object, ...]
    options: Options
    progress: Progress

    @property
    def file(self) -> str:
        """The model file, relative to the working directory where it lies below it."""
        return relative(str(self.options.model.absolute()))

    @property
    def differentiated(self) -> str:
        """The names of the parameters that the gradient is with respect to."""
        try:
            names = list(inspect.signature(self.entry.function).parameters)
        except (TypeError, ValueError):
            names = []
        count = len(self.args)
        positions = [index % count if -count <= index < count else index for index in self.options.argnums]
        return ", ".join(names[index] if index < len(names) else f"argument {index}" for index in positions)

    def trace(self) -> Graph:
        """The entry as traced, not differentiated."""
        with self.progress.phase(f"tracing {self.entry.name}"):
            return self._at_entry(lambda: driver.trace(self.entry.function, *self.args))

    def lower(self, policy: str | None = None) -> Lowered:
        """The step under a policy (the command's own by default), with the dumps and timings that were asked for."""
        policy = self.options.policy if policy is None else policy
        argnums = self.options.argnums
        function = value_and_grad(
            self.entry.function, argnums[0] if len(argnums) == 1 else argnums, policy=_no_policy_as_none(policy)
        )
        dump = self._after_each_pass(policy)
        with self.progress.phase(f"tracing and differentiating {self.entry.name}, policy {policy}"):
            return self._at_entry(
                lambda: driver.lower(function, *self.args, passes=self.options.passes, after_each=dump)
            )

    def compile(self, lowered: Lowered, what: str = "") -> Compiled:
        """What XLA makes of the step."""
        where = self.options.platform
        with self.progress.phase(f"compiling{what}" + (f" for {where}" if where else "")):
            return interruptible(lambda: lowered.compile(where))

    def _at_entry(self, run: Callable[[], R]) -> R:
        """Run what traces the entry; an error that has no place of its own is about the entry as a whole."""
        try:
            with users_code():
                return run()
        except CompileError as error:
            error.loc = error.loc or self.entry.loc
            raise

    def _after_each_pass(self, policy: str) -> Callable[[str, Graph], None] | None:
        if not self.options.print_between_passes:
            return None

        def dump(text: str, graph: Graph) -> None:
            print(f"// policy {policy}, after the pass {text}\n{print_graph(graph)}", file=sys.stderr)

        return dump


def _no_policy_as_none(policy: str) -> str | None:
    return None if policy == "none" else policy


def load_step(options: Options, progress: Progress) -> TrainingStep:
    """Load the model, find its entry and arguments. Raises CompileError, and whatever the model raises."""
    types = [parse_type(text) for text in options.args]
    with progress.phase(f"loading {options.model}"):
        entry = find_entry(load_model(options.model), options.entry)
        args = find_arguments(entry, types)
    return TrainingStep(entry, args, options, progress)
