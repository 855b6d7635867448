r"""The IR's text back into graphs.

    graph     = "graph" "@" name "(" [param {"," param}] ")" "->" "(" [type {"," type}] ")" "{" {equation} return "}"
    param     = "%" name ":" type
    equation  = [param {"," param} "="] op [value {"," value}] [fields] [location]
    return    = "return" [value {"," value}]
    fields    = "{" [name "=" field {"," name "=" field}] "}"            the forms of fields: rematc.ir.forms
    type      = dtype ["<host>"] "[" [size {"," size}] "]"               f32[4,8], one token
    location  = "loc(" ["\"" function "\"("] "\"" file "\":" line ":" column [")"] ")"      one token

`//` starts a comment. Every error is a ParseError with its place in the text, or a VerifierError where an equation's
types are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn

import rematc.ir.ops  # noqa: F401  # registers the ops that text can name
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import CompileError, ParseError, VerifierError
from rematc.ir.fields import record_of
from rematc.ir.forms import expect_comma
from rematc.ir.literals import unquoted
from rematc.ir.locations import Location
from rematc.ir.registry import OPS
from rematc.ir.spelling import suggestion
from rematc.ir.types import DTYPES, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import check_types

MAX_DIMENSIONS = 64  # NumPy's limit
MAX_DEPTH = 64  # of regions in regions: the parser recurses on nothing else

_STRING = r'"(?:[^"\\\n]|\\.)*+"'
_TOKEN = re.compile(
    rf"""(?:\s++|//[^\n]*+)*+
    (   %[A-Za-z0-9_.]++                                                          # value
    |   loc\({_STRING}(?::\d++:\d++\)|\({_STRING}:\d++:\d++\)\))                  # location
    |   [a-z][a-z0-9]*+(?:<host>)?\[[0-9,\ ]*+\]                                  # type
    |   @(?:[A-Za-z0-9_.]++|{_STRING})                                            # name of a graph
    |   {_STRING}
    |   -?[A-Za-z0-9_](?:[A-Za-z0-9_.]|(?<=[0-9.]e)[+-](?=[0-9]))*+               # number, word
    |   ->
    |   \S
    |   \Z
    )""",
    re.VERBOSE | re.ASCII,
)
_TYPE = re.compile(r"([a-z0-9]+)(<host>)?\[(?:([0-9]+(?:,[0-9]+)*))?\]")
_LOCATION = re.compile(rf"loc\((?:({_STRING})\()?({_STRING}):([0-9]{{1,18}}):([0-9]{{1,18}})\)+")


def parse_graph(text: str, *, policies: Callable[[str], object] | None = None, file: str = "<ir>") -> Graph:
    """The graph that `text` shows; `parse_graph(print_graph(g)) == g`, locations included.

    Args:
        text: one graph.
        policies: makes a policy of its spec; needed only where the text has policies.
        file: name of the text in errors.

    Raises:
        ParseError: the text is not of the grammar, or uses a name that is not defined; `loc` is the place in the text.
        VerifierError: the types of an equation are not those that its op gives; `loc` is the place in the text.
    """
    parser = _Parser(text, policies, file)
    graph = parser.graph()
    if parser.peek():
        parser.fail("the end of the text")
    return graph


class _Parser:
    """Reads tokens from left to right; `rematc.ir.forms.Reader` for the fields of ops."""

    def __init__(self, text: str, policies: Callable[[str], object] | None, file: str) -> None:
        self._text = text
        self._policies = policies
        self._file = file
        self._tokens: list[str] = _TOKEN.findall(text)
        self._at = 0
        self._depth = 0
        self._types: dict[str, TensorType] = {}
        self._ops: dict[tuple[str, ...], Op] = {}
        self._locs: dict[str, Location] = {}

    # -- tokens --------------------------------------------------------------------------------------------------

    def peek(self) -> str:
        return self._tokens[self._at]

    def take(self) -> str:
        token = self._tokens[self._at]
        if token:  # the end of the text stays where it is
            self._at += 1
        return token

    def expect(self, token: str) -> None:
        if self._tokens[self._at] != token:
            self.fail(f"'{token}'")
        self._at += 1

    def fail(self, expected: str) -> NoReturn:
        token = self.peek()
        found = f"'{token if len(token) <= 40 else token[:40] + '...'}'" if token else "the end of the text"
        raise ParseError(f"found {found}, expected {expected}", self._place(self._at))

    def _place(self, index: int) -> Location:
        """Line and column of a token. Tokens carry no positions, so this reads the text again."""
        matches = _TOKEN.finditer(self._text)
        offset = next(match.start(1) for at, match in enumerate(matches) if at == index)
        line_start = self._text.rfind("\n", 0, offset) + 1
        return Location(self._file, self._text.count("\n", 0, offset) + 1, offset - line_start + 1)

    # -- graphs --------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """A graph, with a scope of its own."""
        self.expect("graph")
        name = self._symbol()
        scope: dict[str, Value] = {}
        params = self._params(scope)
        self.expect("->")
        result_types = self._result_types()
        self.expect("{")
        equations = []
        while self.peek() != "return":
            equations.append(self._equation(scope))
        at = self._at
        self._at += 1
        results = self._operands(scope)
        if tuple([value.type for value in results]) != result_types:
            found = ", ".join(str(value.type) for value in results)
            expected = ", ".join(map(str, result_types))
            raise ParseError(f"graph '{name}' returns ({found}), its first line says ({expected})", self._place(at))
        self.expect("}")
        return Graph(name, params, tuple(equations), results)

    def region(self) -> Graph:
        if self._depth == MAX_DEPTH:
            self.fail(f"no more than {MAX_DEPTH} regions in each other")
        self._depth += 1
        graph = self.graph()
        self._depth -= 1
        return graph

    def _symbol(self) -> str:
        token = self.peek()
        name = token[1:] if token[:1] == "@" else ""
        text = unquoted(name) if name[:1] == '"' else name or None
        if text is None:
            self.fail("the graph's name, such as @main")
        self._at += 1
        return text

    def _params(self, scope: dict[str, Value]) -> tuple[Value, ...]:
        params: list[Value] = []
        self.expect("(")
        while self.peek() != ")":
            if params:
                expect_comma(self, ")")
            name = self._new_name(scope, ())
            param = scope[name] = Value(self.type(), name[1:])
            params.append(param)
        self._at += 1
        return tuple(params)

    def _result_types(self) -> tuple[TensorType, ...]:
        types: list[TensorType] = []
        self.expect("(")
        while self.peek() != ")":
            if types:
                expect_comma(self, ")")
            types.append(self.type())
        self._at += 1
        return tuple(types)

    # -- equations -----------------------------------------------------------------------------------------------

    def _equation(self, scope: dict[str, Value]) -> Equation:
        at = self._at
        names, results = self._results(scope)
        op_at = self._at
        cls = self._op_class()
        operands = self._operands(scope)
        op = self._op(cls, op_at)
        eqn = Equation(op, operands, results, self._loc())
        try:
            check_types(eqn)
        except CompileError as error:
            raise VerifierError(f"{error.message}{_source(eqn)}", self._place(at)) from error
        # Not before the operands are read: an equation does not read its own results.
        scope.update(zip(names, results, strict=True))
        return eqn

    def _results(self, scope: dict[str, Value]) -> tuple[list[str], tuple[Value, ...]]:
        names: list[str] = []
        results: list[Value] = []
        if self.peek()[:1] != "%":
            return names, ()
        while True:
            name = self._new_name(scope, names)
            names.append(name)
            results.append(Value(self.type()))
            if self.peek() != ",":
                break
            self._at += 1
        self.expect("=")
        return names, tuple(results)

    def _new_name(self, scope: dict[str, Value], before: Sequence[str]) -> str:
        name = self.peek()
        if name[:1] != "%" or name == "%":
            self.fail("the name of a value, such as %0")
        if name in scope or name in before:
            self.fail("a name that is not defined yet")
        self._at += 1
        self.expect(":")
        return name

    def _operands(self, scope: dict[str, Value]) -> tuple[Value, ...]:
        tokens, at = self._tokens, self._at
        # After an op without operands, the next equation may start right here: `%0: f32[] = ...`.
        if tokens[at][:1] != "%" or tokens[at + 1] == ":":
            return ()
        operands = []
        while True:
            value = scope.get(tokens[at])
            if value is None:
                self._at = at
                self._fail_undefined(scope)
            operands.append(value)
            if tokens[at + 1] != ",":
                break
            at += 2
        self._at = at + 1
        return tuple(operands)

    def _fail_undefined(self, scope: dict[str, Value]) -> NoReturn:
        self.fail(f"a value defined before this{suggestion(self.peek(), scope)}")

    def _op_class(self) -> type[Op]:
        name = self.peek()
        cls = OPS.get(name)
        if cls is None:
            self.fail(f"an op, or 'return'{suggestion(name, OPS)}")
        self._at += 1
        return cls

    def _op(self, cls: type[Op], at: int) -> Op:
        """The op with its fields. Most fields occur many times over, and are the same tokens each time."""
        key = self._flat_fields(cls.name)
        op = self._ops.get(key) if key else None
        if op is not None:
            self._at += len(key) - 1
            return op
        start = self._at
        record = record_of(cls)
        known = record.read_fields(self) if self.peek() == "{" else {}
        missing = [field.name for field in record.fields if field.default is None and field.name not in known]
        if missing:
            self.fail(f"{{{missing[0]}=...}}, the fields of '{cls.name}'")
        try:
            op = cls(**known)
        except CompileError as error:
            raise ParseError(error.message, self._place(at)) from error
        if len(key) == self._at - start + 1:
            self._ops[key] = op
        return op

    def _flat_fields(self, name: str) -> tuple[str, ...]:
        """The op's name and the tokens of its fields up to the first closing brace; () if that is far."""
        at = self._at
        if self._tokens[at] != "{":
            return (name,)
        try:
            end = self._tokens.index("}", at, at + 200)
        except ValueError:
            return ()
        return (name, *self._tokens[at : end + 1])

    # -- leaves --------------------------------------------------------------------------------------------------

    def type(self) -> TensorType:
        token = self.peek()
        type = self._types.get(token)
        if type is None:
            type = self._types[token] = self._new_type(token)
        self._at += 1
        return type

    def _new_type(self, token: str) -> TensorType:
        match = _TYPE.fullmatch(token.replace(" ", ""))
        if match is None or match[1] not in DTYPES:
            self.fail("a type such as f32[4,8]")
        sizes = match[3].split(",") if match[3] else []
        if len(sizes) > MAX_DIMENSIONS or max(map(len, sizes), default=0) > 18:
            self.fail(f"at most {MAX_DIMENSIONS} dimensions, each below 10**18")
        return TensorType(DTYPES[match[1]], tuple(map(int, sizes)), match[2] is not None)

    def policy(self, spec: str) -> object:
        if self._policies is None:
            self.fail("no policy: parse_graph was not given `policies`, which makes policies of their text")
        try:
            policy = self._policies(spec)
        except CompileError as error:
            raise ParseError(error.message, self._place(self._at)) from error
        self._at += 1
        return policy

    def _loc(self) -> Location | None:
        token = self.peek()
        if token != "loc" and token[:4] != "loc(":
            return None
        loc = self._locs.get(token)
        if loc is None:
            loc = self._locs[token] = self._new_loc(token)
        self._at += 1
        return loc

    def _new_loc(self, token: str) -> Location:
        match = _LOCATION.fullmatch(token)
        file = unquoted(match[2]) if match else None
        function = unquoted(match[1]) if match and match[1] else ""
        if match is None or file is None or function is None:
            self.fail('a location such as loc("model.py":12:8) or loc("function"("model.py":12:8))')
        return Location(file, int(match[3]), int(match[4]), function)


def _source(eqn: Equation) -> str:
    return f" (compiled from {eqn.loc})" if eqn.loc else ""
