"""Random functions as trees of statements: how they are written, run, and made smaller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

#: What stands for a value that is left out, made of a vector of its scope.
DEFAULTS = {
    "v": "{v}",
    "m": "L.np.outer({v}, {v})",
    "s": "{v}[0]",
    "i": "L.np.argsort(L.stop({v}))",
    "b": "({v} > 0)",
    "k": "L.np.argmax({v})",
    "c": "({v} + 0.5j)",
    "h": "{v}.astype('float32')",
    "half": "{v}.astype('float16')",
    "brain": "{v}.astype('bfloat16')",
}
Typed = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Block:
    """A function in a function.

    Attributes:
        name: of the function.
        params: names and kinds.
        statements: in order.
        results: names, or expressions.
        kinds: of the results.
    """

    name: str
    params: tuple[Typed, ...]
    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """Targets = an expression of operands and of functions defined just before.

    Attributes:
        targets: names and kinds.
        template: the expression, with `{0}` for operands and `{b0}` for the names of blocks.
        operands: names, or expressions.
        blocks: functions that it uses.
        traits: what there must be for it: "jax", "numpy", "forward" derivatives, "rules" that go backwards alone.
    """

    targets: tuple[Typed, ...]
    template: str
    operands: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Written:
    """A function by its text."""

    source: str

    def text(self) -> str:
        return self.source

    def made(self, library: object) -> Callable[..., Any]:
        """The function, in these words."""
        namespace: dict[str, Any] = {"L": library}
        exec(compile(self.source, "<random function>", "exec"), namespace)  # noqa: S102, RUF100  # our own text
        found: Callable[..., Any] = namespace["f"]
        return found

    def traits(self) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True, slots=True)
class Function:
    """A random function of x, a vector, w, a matrix, and i, indices; it returns a scalar."""

    body: Block

    def text(self) -> str:
        """Its definition."""
        lines = [*_definition(replace(self.body, results=()), "")]
        lines.append(f"    return {self.body.results[0]}")
        return "\n".join(lines) + "\n"

    def made(self, library: object) -> Callable[..., Any]:
        """The function, in these words."""
        return Written(self.text()).made(library)

    def traits(self) -> frozenset[str]:
        """Of all statements."""
        return _traits(self.body)

    def size(self) -> int:
        """Characters, the blanks before lines aside."""
        return sum(len(line.strip()) for line in self.text().splitlines())


def _traits(block: Block) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for statement in block.statements:
        found = found.union(statement.traits, *map(_traits, statement.blocks))
    return found


def _definition(block: Block, indent: str) -> Iterator[str]:
    yield f"{indent}def {block.name}({', '.join(name for name, _ in block.params)}):"
    for statement in block.statements:
        yield from _lines(statement, indent + "    ")
    if block.results:
        yield f"{indent}    return ({', '.join(block.results)},)"


def _lines(statement: Statement, indent: str) -> Iterator[str]:
    for block in statement.blocks:
        yield from _definition(block, indent)
    names = {f"b{index}": block.name for index, block in enumerate(statement.blocks)}
    targets = ", ".join(name for name, _ in statement.targets)
    comma = "," if len(statement.targets) == 1 and statement.template.startswith("*") else ""
    yield f"{indent}{targets}{comma} = {statement.template.removeprefix('*').format(*statement.operands, **names)}"


# -- smaller ones ------------------------------------------------------------------------------------------------------


def reduced(function: Function, fails: Callable[[Function], bool], tries: int = 300) -> Function:
    """A function that fails and of which nothing can be left out, of what so many tries leave out."""
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for body in _smaller(function.body, "x"):
            candidate = Function(body)
            if candidate.size() >= function.size():
                continue
            tries -= 1
            if tries < 0:
                return function
            if fails(candidate):
                function, has_shrunk = candidate, True
                break
    return function


def _smaller(block: Block, vector: str) -> Iterator[Block]:
    vector = next((name for name, kind in block.params if kind == "v"), vector)
    for index in reversed(range(len(block.statements))):
        statement = block.statements[index]
        for choice in _stand_ins(statement, block, index, vector):
            yield _without(block, index, choice)
    for index, result in enumerate(block.results):
        default = DEFAULTS[block.kinds[index]].format(v=vector)
        if result != default:
            yield replace(block, results=(*block.results[:index], default, *block.results[index + 1 :]))
    for index, statement in enumerate(block.statements):
        for at, inner in enumerate(statement.blocks):
            for smaller in _smaller(inner, vector):
                blocks = (*statement.blocks[:at], smaller, *statement.blocks[at + 1 :])
                yield _with(block, index, replace(statement, blocks=blocks))
        for at, operand in enumerate(statement.operands):
            if operand != vector and (len(operand) > 6 or operand in {n for n, k in _names(block, index) if k == "v"}):
                operands = (*statement.operands[:at], vector, *statement.operands[at + 1 :])
                yield _with(block, index, replace(statement, operands=operands))


def _names(block: Block, index: int) -> list[Typed]:
    """What is defined before a statement."""
    return [*block.params, *(target for one in block.statements[:index] for target in one.targets)]


def _stand_ins(statement: Statement, block: Block, index: int, vector: str) -> Iterator[dict[str, str]]:
    """What may stand for the targets of a statement."""
    kinds = dict(_names(block, index))
    defaults = {name: DEFAULTS[kind].format(v=vector) for name, kind in statement.targets}
    for operand in statement.operands:
        if any(kinds.get(operand) == kind for _, kind in statement.targets):
            yield {n: operand if kinds.get(operand) == kind else defaults[n] for n, kind in statement.targets}
    yield defaults


def _with(block: Block, index: int, statement: Statement) -> Block:
    return replace(block, statements=(*block.statements[:index], statement, *block.statements[index + 1 :]))


def _without(block: Block, index: int, env: dict[str, str]) -> Block:
    statements = (*block.statements[:index], *(_renamed(one, env) for one in block.statements[index + 1 :]))
    return replace(block, statements=statements, results=tuple(_said(one, env) for one in block.results))


def _renamed(statement: Statement, env: dict[str, str]) -> Statement:
    operands = tuple(_said(one, env) for one in statement.operands)
    blocks = tuple(
        replace(
            block,
            statements=tuple(_renamed(one, env) for one in block.statements),
            results=tuple(_said(one, env) for one in block.results),
        )
        for block in statement.blocks
    )
    return replace(statement, operands=operands, blocks=blocks)


def _said(expression: str, env: dict[str, str]) -> str:
    """The expression with others for names."""
    for name, other in env.items():
        expression = _replaced(expression, name, other)
    return expression


def _replaced(expression: str, name: str, other: str) -> str:
    return re.sub(rf"\b{name}\b(?!\()", other.replace("\\", "\\\\"), expression)
