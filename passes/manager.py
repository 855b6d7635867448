"""Passes and pipelines: what a pass is, how pipelines are written, and running one with checks and timings.

manager = PassManager(parse_pipeline("simplify{max_elements=16},cse,dce"))
result = manager.run(graph)          # result.graph, result.records
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from rematc.ir.collecting import collection_paused, users_code
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, InternalError, VerifierError
from rematc.ir.literals import FLOAT, INTEGER, quoted, unquoted
from rematc.ir.spelling import suggestion
from rematc.ir.verifier import verify


class Pass:
    """A graph to a new graph: a frozen dataclass whose fields are the pass's options.

    A subclass stands in its own file, whose docstring says what the graph is before and after and why, and is entered
    by `@register_pass` over `@dataclass(frozen=True, slots=True)`. Options are int, float, bool, str or None, and
    have defaults.

    Attributes:
        name: how pipelines name it.
        keeps_meaning: whether the new graph has the results of the old one. Others are parts of a differentiation, and
            stand in the pipelines of such alone.
        keeps_bits: whether the results are the same bits; of those of other passes some are rounded otherwise.
    """

    __slots__ = ()
    name: ClassVar[str]
    keeps_meaning: ClassVar[bool] = True
    keeps_bits: ClassVar[bool] = True

    def run(self, graph: Graph) -> Graph:
        """The new graph; `graph` itself where there is nothing to do."""
        raise NotImplementedError


_LOGGER = logging.getLogger("rematc.passes")
PASSES: dict[str, type[Pass]] = {}
_P = TypeVar("_P", bound=type[Pass])


def register_pass(cls: _P) -> _P:
    """Class decorator: enter the pass in the registry under its name."""
    if cls.name in PASSES:
        raise ValueError(f"two passes are named '{cls.name}'")
    PASSES[cls.name] = cls
    return cls


# -- running -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did.

    Attributes:
        text: the pass as the pipeline's text shows it.
        seconds: how long it ran, without verification.
        equations_before: equations of the graph and the regions in it.
        equations_after: likewise.
    """

    text: str
    seconds: float
    equations_before: int
    equations_after: int


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The graph after all passes, and what each of them did."""

    graph: Graph
    records: tuple[PassRecord, ...]


@dataclass(frozen=True, slots=True)
class PassManager:
    """Runs passes one after another.

    Attributes:
        passes: in order.
        verify: whether to check the laws of the IR before the first pass and after each one.
        after_each: called with each pass's text and the graph it gave, for dumps.
    """

    passes: Sequence[Pass]
    verify: bool = True
    after_each: Callable[[str, Graph], None] | None = None

    @collection_paused()
    def run(self, graph: Graph) -> PipelineResult:
        """Run the pipeline.

        Raises:
            VerifierError: `graph` breaks a law of the IR before any pass has run.
            InternalError: a pass broke one; it names the pass and the user's line.
        """
        watch = Watch(self.verify, self.after_each)
        if self.verify:
            verify(graph)
        graph = watch.run(self.passes, graph, lambda each, given: each.run(given), lambda given: (given,))
        return PipelineResult(graph, tuple(watch.records))


_S = TypeVar("_S")
Apply = Callable[[Pass, _S], _S]
GraphsOf = Callable[[_S], Sequence[Graph]]


@dataclass(frozen=True, slots=True)
class Watch:
    """What is done beside running passes, on whatever they work on.

    Attributes:
        verify: whether to check the laws of the IR after each pass.
        after_each: called with each pass's text and each new graph it gave, for dumps.
        records: what each pass did.
    """

    verify: bool = True
    after_each: Callable[[str, Graph], None] | None = None
    records: list[PassRecord] = field(default_factory=list)

    def run(self, passes: Sequence[Pass], state: _S, apply: Apply[_S], graphs: GraphsOf[_S]) -> _S:
        """Apply passes one after another; `graphs` says which graphs a state has, the last one at hand."""
        given = graphs(state)
        before = sum(map(count_equations, given))
        for each in passes:
            text = print_pipeline([each])
            start = time.perf_counter()
            state = apply(each, state)
            seconds = time.perf_counter() - start
            made = [graph for graph in graphs(state) if not any(graph is old for old in given)]
            if self.verify and made:
                _verify_after(text, made, given)
            given = graphs(state)
            after = sum(map(count_equations, given)) if made else before
            self.records.append(PassRecord(text, seconds, before, after))
            _LOGGER.debug("%s: %d equations before, %d after, %.3g s", text, before, after, seconds)
            before = after
            if self.after_each is not None:
                for graph in made or given[-1:]:
                    with users_code():
                        self.after_each(text, graph)
        return state


def _verify_after(text: str, made: Iterable[Graph], given: Iterable[Graph]) -> None:
    checked = frozenset(eqn for graph in given for eqn in graph.equations)
    try:
        for graph in made:
            verify(graph, checked)
    except VerifierError as error:
        raise InternalError(f"the pass '{text}' broke the graph: {error}") from error


_WATCH: ContextVar[Watch | None] = ContextVar("watch of the passes that run inside", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Have this watch over the differentiations inside, which no manager runs: the user's function asks for them."""
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


@contextmanager
def unwatched() -> Iterator[None]:
    """Let nobody watch over the differentiations inside: they are made to be looked at, and thrown away."""
    token = _WATCH.set(None)
    try:
        yield
    finally:
        _WATCH.reset(token)


def run_watched(passes: Sequence[Pass], state: _S, apply: Apply[_S], graphs: GraphsOf[_S]) -> _S:
    """`Watch.run` by the watch that is there; without one the passes alone."""
    watch = _WATCH.get()
    if watch is not None:
        return watch.run(passes, state, apply, graphs)
    for each in passes:
        state = apply(each, state)
    return state


def count_equations(graph: Graph) -> int:
    """Equations of a graph and of the regions in it; a region that stands in two places counts twice."""
    return _count(graph, {})


def _count(graph: Graph, counts: dict[int, int]) -> int:
    found = counts.get(id(graph))
    if found is None:
        inner = sum([_count(region, counts) for eqn in graph.with_regions for region in eqn.op.regions()])
        found = counts[id(graph)] = len(graph.equations) + inner
    return found


# -- pipelines as text -------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*+("(?:[^"\\]|\\.)*+"|[{},=]|[^\s{},="]++|\Z|.)', re.DOTALL)
_WORD = re.compile(r"[A-Za-z_./][\w./:+-]*")


def print_pipeline(passes: Iterable[Pass]) -> str:
    """`simplify{max_elements=16},cse,dce`: passes with the options that are not at their defaults."""
    return ",".join([_print_pass(each) for each in passes])


def _print_pass(each: Pass) -> str:
    options = []
    for option in _options(type(each)):
        value = getattr(each, option.name)
        if value != option.default or type(value) is not type(option.default):
            options.append(f"{option.name}={_print_option(value)}")
    return f"{each.name}{{{','.join(options)}}}" if options else each.name


def _print_option(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case str():
            is_plain = _WORD.fullmatch(value) and value not in ("none", "true", "false", "inf", "-inf", "nan")
            return value if is_plain else quoted(value)
        case _:
            return repr(value)


def _options(cls: type[Pass]) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(cls)  # type: ignore[arg-type]  # every pass is a dataclass


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes that `text` names; `parse_pipeline(print_pipeline(passes)) == passes`.

    Raises CompileError for an unknown pass or option, or a value that an option does not take.
    """
    return _PipelineParser(text).pipeline()


class _PipelineParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = _TOKEN.findall(text)
        self._at = 0

    def pipeline(self) -> tuple[Pass, ...]:
        passes: list[Pass] = []
        if not self._peek():
            return ()
        while True:
            passes.append(self._pass())
            if not self._peek():
                return tuple(passes)
            self._expect(",", "',' and another pass")

    def _pass(self) -> Pass:
        name = self._word("the name of a pass")
        cls = PASSES.get(name)
        if cls is None:
            names = [known for known, each in PASSES.items() if each.keeps_meaning]
            raise CompileError(f"there is no pass '{name}'{suggestion(name, names)} (passes: {', '.join(names)})")
        if self._peek() != "{":
            return cls()
        self._at += 1
        hints = typing.get_type_hints(cls)
        options: dict[str, object] = {}
        names = [field.name for field in _options(cls)]
        while self._peek() != "}":
            if options:
                self._expect(",", "',' or '}'")
            option = self._word(f"an option of '{name}'")
            if option in options:
                raise CompileError(f"the option '{option}' of '{name}' is given twice")
            if option not in names:
                listed = f"options: {', '.join(names)}" if names else "it has no options"
                raise CompileError(f"the pass '{name}' has no option '{option}'{suggestion(option, names)} ({listed})")
            self._expect("=", "'=' and a value")
            options[option] = _value(f"{name}{{{option}}}", hints[option], self._word("a value"))
        self._at += 1
        return cls(**options)

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _expect(self, token: str, expected: str) -> None:
        if self._peek() != token:
            self._fail(expected)
        self._at += 1

    def _word(self, expected: str) -> str:
        token = self._peek()
        if token in ("", "{", "}", ",", "="):
            self._fail(expected)
        self._at += 1
        return token

    def _fail(self, expected: str) -> typing.NoReturn:
        found = f"'{self._peek()}'" if self._peek() else "its end"
        raise CompileError(f"in the pipeline '{self._text}': found {found}, expected {expected}")


def _value(where: str, annotation: typing.Any, token: str) -> object:
    """The value of an option, of one of the types that its annotation allows."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if is_union else (annotation,)
    text = unquoted(token)
    if text is None:
        if types.NoneType in kinds and token == "none":
            return None
        if bool in kinds and token in ("true", "false"):
            return token == "true"
        if int in kinds and INTEGER.fullmatch(token) and len(token) < 100:
            return int(token)
        if float in kinds and (FLOAT.fullmatch(token) or INTEGER.fullmatch(token)):
            return float(token)
        text = None if token.startswith('"') else token
    if str in kinds and text is not None:
        return text
    expected = " or ".join("none" if kind is types.NoneType else kind.__name__ for kind in kinds)
    raise CompileError(f"{where} is of type {expected}, got {token}")
