"""Which random functions there are: a table of what a statement may be.

Values have kinds: v a vector of 3, m a matrix of 3 x 3, s a scalar, c a complex vector, i indices, b booleans, k an
integer scalar; h, half and brain vectors in float32, float16 and bfloat16. All are smooth at random arguments, and
bounded: what is multiplied was a sine, or is divided by its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.support.fuzzing.functions.source import DEFAULTS, Block, Function, Statement, Typed

POLICIES = (
    "None",
    "'nothing'",
    "'everything'",
    "'dots'",
    "'dots-no-batch'",
    "'names=a'",
    "'except=a'",
    "'any-names-but=a'",
    "'auto'",
)
NARROW = ("h", "half", "brain")
DTYPES = {"h": "float32", "half": "float16", "brain": "bfloat16"}


@dataclass(slots=True)
class Scope:
    """A function that is being drawn.

    Attributes:
        random: where choices come from.
        names: of the values there are, with their kinds.
        depth: how deep functions may still nest.
        used: the number of names so far, in all functions.
        is_rule: whether this is in a rule of the user's, or has another reason to use nothing from outside.
    """

    random: Random
    names: list[Typed]
    depth: int
    used: list[int]
    is_rule: bool = False
    statements: list[Statement] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one_of(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def pick(self, kind: str) -> str:
        """A value of this kind, often a recent one; if there is none, one made of another."""
        found = [name for name, other in self.names if other == kind]
        if found:
            return self.random.choice(found[-2:] if self.chance(0.6) else found)
        return DEFAULTS[kind].format(v=self.pick("v"))

    def fresh(self, kind: str) -> str:
        self.used[0] += 1
        return f"{kind[0]}{self.used[0]}"

    def add(
        self,
        kinds: Sequence[str],
        template: str,
        operands: Sequence[str],
        blocks: Sequence[Block] = (),
        traits: Sequence[str] = (),
    ) -> None:
        """A statement; a template that begins with * gives a tuple."""
        targets = tuple([(self.fresh(kind), kind) for kind in kinds])
        self.statements.append(Statement(targets, template, tuple(operands), tuple(blocks), frozenset(traits)))
        self.names.extend(targets)

    def block(self, params: Sequence[str], results: Sequence[str], is_rule: bool = False) -> Block:
        """A function of such parameters to such results; it may use what is outside, unless it is a rule."""
        is_rule = is_rule or self.is_rule
        self.used[0] += 1
        name = f"f{self.used[0]}"
        given = [(self.fresh(kind), kind) for kind in params]
        names = given if is_rule else [*self.names, *given]
        inner = Scope(self.random, list(names), self.depth - 1, self.used, is_rule)
        outer = len(inner.names)
        fill(inner, self.random.randint(1, 2))
        own = inner.names[outer:]
        chosen = [self._result(inner, own, kind) for kind in results]
        if "v" in results and (dead := [name for name, kind in own if kind in "vms" and not _is_used(inner, name)]):
            at = results.index("v")
            inner.add(("v",), "{0} + L.np.sin(L.np.sum({1}))", (chosen[at], self.random.choice(dead)))
            chosen[at] = inner.names[-1][0]
        return Block(name, tuple(given), tuple(inner.statements), tuple(chosen), tuple(results))

    def _result(self, inner: Scope, own: Sequence[Typed], kind: str) -> str:
        """What was computed last, if anything was, so that little is computed for nothing."""
        found = [name for name, other in own if other == kind]
        return found[-1] if found and self.chance(0.9) else inner.pick(kind)


Step = Callable[[Scope], None]


def draw(seed: int) -> Function:
    """The function of a seed."""
    random = Random(seed)
    scope = Scope(random, [("x", "v"), ("w", "m"), ("i", "i")], random.choice((1, 1, 2)), [0])
    fill(scope, random.randint(1, 3))
    scope.statements.append(Statement((("total", "s"),), "L.np.sum(L.np.sin({0}))", (scope.pick("v"),)))
    total = "total"
    for name, kind in scope.names[3:]:
        if kind in ("v", "m", "s", *NARROW) and not _is_used(scope, name):
            scope.statements.append(
                Statement((((after := scope.fresh("s")), "s"),), "{0} + L.np.sum(L.np.sin({1}))", (total, name))
            )
            total = after
    body = Block("f", (("x", "v"), ("w", "m"), ("i", "i")), tuple(scope.statements), (total,), ("s",))
    return Function(body)


def _is_used(scope: Scope, name: str) -> bool:
    return any(name in statement.operands for statement in scope.statements)


def fill(scope: Scope, count: int) -> None:
    for _ in range(count):
        scope.random.choice(_DEEP if scope.depth > 0 else _FLAT)(scope)


# -- values ------------------------------------------------------------------------------------------------------------


def _unary(s: Scope) -> None:
    kind = s.one_of(("v", "v", "v", "m", "s"))
    templates = (
        *("L.np.sin({0})", "L.np.cos({0})", "L.np.tanh({0})", "L.np.exp(L.np.sin({0}))", "{0} / (1 + {0} * {0})"),
        *("L.np.log(2 + L.np.sin({0}))", "L.np.sqrt(1 + {0} ** 2)", "-{0}", "L.np.abs({0})", "L.np.square({0}) / 3"),
        *("L.np.maximum({0}, 0.1)", "L.np.clip({0}, -0.6, 0.7)", "L.np.arctan2({0}, 2.0)", "L.np.power(1.5, {0})"),
        *("L.np.sinc({0} / 3)", "L.np.logaddexp({0}, 0.5)", "2 * {0}", "{0} + 1", "L.np.real({0}) * {0}"),
    )
    s.add((kind,), s.one_of(templates), (s.pick(kind),))


def _binary(s: Scope) -> None:
    kind = s.one_of(("v", "v", "v", "m", "s"))
    templates = (
        *("{0} + {1}", "{0} - {1}", "L.np.sin({0}) * {1}", "{0} / (2 + L.np.sin({1}))", "L.np.maximum({0}, {1})"),
        *("L.np.where({0} > {1}, {0}, L.np.sin({1}))", "L.np.hypot({0}, {1} + 2)", "L.np.cos({0} * {1})"),
    )
    s.add((kind,), s.one_of(templates), (s.pick(kind), s.pick(kind)))


def _product(s: Scope) -> None:
    v, m = s.pick("v"), s.pick("m")
    kind, template = s.random.choice(
        (
            ("v", "{1} @ {0} / 3"),
            ("v", "L.np.einsum('ij,i->j', L.np.sin({1}), {0}) / 3"),
            ("s", "L.np.vdot({0}, {0}) / 3"),
            ("m", "L.np.sin({1}) @ {1} / 3"),
            ("m", "L.np.outer({0}, L.np.sin({0}))"),
            ("m", "L.np.sin({1}) * {0}"),
            ("m", "L.np.einsum('ij,ik->jk', {1}, L.np.cos({1})) / 3"),
        )
    )
    s.add((kind,), template, (v, m))


def _shape(s: Scope) -> None:
    v, m = s.pick("v"), s.pick("m")
    kind, template = s.random.choice(
        (
            *(("v", f"L.np.{name}({{1}}, axis={axis})") for name in ("sum", "mean", "max", "min") for axis in (0, 1)),
            ("m", "{1}.T"),
            ("m", "L.np.stack([{0}, 2 * {0}, L.np.sin({0})])"),
            ("v", "L.np.concatenate([{0}[1:], {0}[:1]])"),
            ("v", "{1}[1]"),
            ("v", "{1}[:, -1]"),
            ("v", "{0}[::-1]"),
            ("v", "L.np.cumsum({0}) / 3"),
            ("v", "L.np.sort({0})"),
            ("v", "L.np.diagonal({1})"),
            ("m", "L.np.broadcast_to({0}, (3, 3))"),
            ("m", "L.np.roll({1}, 1, axis=0)"),
            ("s", "L.np.sum({0})"),
            ("s", "L.np.linalg.norm({0} + 2)"),
            ("s", "L.np.prod(L.np.cos({0}))"),
            ("v", "L.np.full(3, 0.5) * L.np.sum({0})"),
        )
    )
    s.add((kind,), template, (v, m))


def _gather(s: Scope) -> None:
    kind, template = s.random.choice(
        (
            ("v", "{0}[{2}]"),
            ("m", "{1}[{2}]"),
            ("v", "L.np.take({0}, {2})"),
            ("v", "L.np.take_along_axis({1}, {2}[:, None], axis=1)[:, 0]"),
            ("v", "L.add_at(L.np.sin({0}), {2}, {0})"),
            ("m", "L.add_at({1}, {2}, L.np.sin({1}))"),
            ("v", "L.set_at({0}, L.np.argsort({2}), L.np.cos({0}))"),
            ("v", "{1}[{2}, {2}]"),
        )
    )
    s.add((kind,), template, (s.pick("v"), s.pick("m"), s.pick("i")))


def _stop(s: Scope) -> None:
    kind = s.one_of(("v", "v", "m", "s"))
    s.add((kind,), s.one_of(("L.stop({0})", "{0} * L.stop(L.np.sin({0}))", "L.stop({0}) + {0}")), (s.pick(kind),))


def _name(s: Scope) -> None:
    kind = s.one_of(("v", "m"))
    s.add((kind,), s.one_of(("L.name({0}, 'a')", "L.name(L.np.sin({0}), 'b')")), (s.pick(kind),))


def _discrete(s: Scope) -> None:
    kind, template = s.random.choice(
        (
            ("i", "L.np.argsort({0})"),
            ("i", "({1} + 1) % 3"),
            ("b", "{0} > 0.2"),
            ("k", "L.np.argmax({0})"),
            ("k", "{1}[0]"),
            ("i", "L.np.where({0} > 0, {1}, 2 - {1})"),
            ("v", "{1} * {0}"),
            ("v", "L.np.where({2}, {0}, 0.25)"),
            ("v", "{0} + {3}"),
            ("v", "{0} * ({0} > 0)"),
        )
    )
    s.add((kind,), template, (s.pick("v"), s.pick("i"), s.pick("b"), s.pick("k")))


def _complex(s: Scope) -> None:
    if s.chance(0.5):
        s.add(
            ("c",),
            s.one_of(("L.np.exp(1j * {0})", "{0} + 1j * L.np.sin({0})", "L.np.fft.fft({0}) / 3")),
            (s.pick("v"),),
        )
    else:
        templates = ("L.np.real({0} * L.np.conj({0}))", "L.np.imag({0} * {0})", "L.np.abs({0} + 2)", "L.np.real({0})")
        s.add(("v",), s.one_of(templates), (s.pick("c"),))


def _narrow(s: Scope) -> None:
    kind = s.one_of(NARROW)
    if s.chance(0.4):
        s.add((kind,), f"{{0}}.astype('{DTYPES[kind]}')", (s.pick("v"),))
    elif s.chance(0.6):
        templates = ("2.0 * L.np.sin({0})", "{0} * {0} / 3", "L.stop({0}) * {0}", "{0} * L.weak()", "{0} + 1")
        s.add((kind,), s.one_of(templates), (s.pick(kind),))
    else:
        s.add(("v",), "{0} * {1}.astype('float64')", (s.pick("v"), s.pick(kind)))


def _random(s: Scope) -> None:
    s.add(("v",), s.one_of(("L.dropout({0}, 7)", "L.noise({0}, 5)", "L.dropout({0}, {1})")), (s.pick("v"), s.pick("k")))


def _solve(s: Scope) -> None:
    kind, template = s.random.choice(
        (
            ("v", "L.np.linalg.solve(L.regular({1}), {0})"),
            ("m", "L.np.linalg.solve(L.regular({1}), L.np.sin({1}))"),
            ("m", "L.np.linalg.inv(L.regular({1}))"),
            ("m", "L.np.linalg.inv(L.np.stack([L.regular({1}), L.regular(2 * {1})]))[0]"),
            ("m", "L.np.linalg.cholesky(L.definite({1}))"),
            ("v", "L.cho_solve(L.definite({1}), {0})"),
            ("v", "L.linear_solve(L.regular({1}), {0})"),
            ("v", "L.linear_solve(L.definite({1}), {0}, True)"),
            ("s", "L.np.linalg.det(L.regular({1})) / 9"),
            ("s", "L.np.linalg.slogdet(L.regular({1}))[1]"),
            ("v", "L.root({0})"),
        )
    )
    s.add((kind,), template, (s.pick("v"), s.pick("m")))


# -- functions in functions --------------------------------------------------------------------------------------------


def _carries(s: Scope, is_rule: bool = False) -> tuple[list[str], list[str]]:
    kinds = s.random.choice((["v"], ["v"], ["v", "s"], ["v", "v"], ["v", "k"], ["v", "m"], ["v", "h"]))
    return kinds, [s.pick(kind) for kind in kinds]


def _scan(s: Scope) -> None:
    kinds, carry = _carries(s)
    body = s.block([*kinds, "v"], [*kinds, "v"])
    given = ", ".join(f"{{{index}}}" for index in range(len(kinds)))
    flag = ", reverse=True" if s.chance(0.4) else ""
    s.add((*kinds, "m"), f"L.scan({{b0}}, ({given},), {{{len(kinds)}}}{flag})", (*carry, s.pick("m")), (body,))


def _steps(s: Scope) -> None:
    """fori_loop, forwards loops, and loops with a bound."""
    kinds, carry = _carries(s)
    given = "(" + ", ".join(f"{{{index}}}" for index in range(len(kinds))) + ",)"
    form = s.one_of(("fori", "fori", "until", "repeat", "stopped"))
    if form == "fori":
        s.add(kinds, f"*L.fori({{b0}}, 0, 3, {given})", carry, (s.block(["k", *kinds], kinds),))
    elif form == "until":
        s.add(kinds, f"*L.until({{b0}}, 1.5, {given})", carry, (s.block(kinds, kinds),))
    elif form == "repeat":
        steps = s.one_of(("3", "2 + L.np.argmax({0})"))
        s.add(kinds, f"*L.repeat({{b0}}, {steps}, {given})", carry, (s.block(kinds, kinds),), ("forward",))
    else:
        s.add(kinds, f"*L.repeat({{b0}}, 3, L.stop({given}))", carry, (s.block(kinds, kinds, is_rule=True),))


def _cond(s: Scope) -> None:
    v, w = s.pick("v"), s.pick("v")
    if s.chance(0.6):
        pred = s.one_of(("L.np.sum({0}) > 0", "{2}[0] > 1", "L.stop({0})[0] < 0.5"))
        branches = [s.block(["v", "v"], ["v", "s"]) for _ in range(2)]
        s.add(("v", "s"), f"L.cond({pred}, {{b0}}, {{b1}}, {{0}}, {{1}})", (v, w, s.pick("i")), branches)
    else:
        branches = [s.block(["v"], ["v"]) for _ in range(3)]
        index = s.one_of(("{2}[1]", "L.np.argmax({0})"))
        s.add(("v",), f"*L.switch({index}, [{{b0}}, {{b1}}, {{b2}}], {{1}})", (v, w, s.pick("i")), branches)


def _batch(s: Scope) -> None:
    form = s.one_of(("map", "vmap", "vmap", "shared"))
    if form == "map":
        s.add(("m",), "L.map({b0}, {0})", (s.pick("m"),), (s.block(["v"], ["v"]),))
    elif form == "vmap":
        axes = s.one_of(("0", "1", "-1"))
        s.add(("m",), f"L.vmap({{b0}}, 0, {axes})({{0}})", (s.pick("m"),), (s.block(["v"], ["v"]),))
    else:
        body = s.block(["v", "v"], ["v"])
        s.add(("m",), "L.vmap({b0}, (1, None))({0}, {1})", (s.pick("m"), s.pick("v")), (body,))


def _checkpoint(s: Scope) -> None:
    policy, flag = s.one_of(POLICIES), s.one_of(("True", "True", "False"))
    template = f"L.checkpoint({{b0}}, policy={policy}, prevent_cse={flag})({{0}}, {{1}})"
    s.add(("v", "m"), template, (s.pick("v"), s.pick("m")), (s.block(["v", "m"], ["v", "m"]),))


def _jit(s: Scope) -> None:
    s.add(("v", "s"), "L.jit({b0})({0})", (s.pick("v"),), (s.block(["v"], ["v", "s"]),))


def _rule(s: Scope) -> None:
    body, slope = s.block(["v", "v"], ["v"], is_rule=True), s.block(["v", "v"], ["v"], is_rule=True)
    operands = (s.pick("v"), s.pick("v"))
    if s.chance(0.5):
        flag = s.one_of(("", ", zeros=True"))
        s.add(("v",), f"L.with_jvp({{b0}}, {{b1}}{flag})({{0}}, {{1}})", operands, (body, slope))
    else:
        kind = s.one_of(("", "", ", 'zeros'", ", 'inlined'", ", 'nondiff'"))
        s.add(("v",), f"L.with_vjp({{b0}}, {{b1}}{kind})({{0}}, {{1}})", operands, (body, slope), ("rules",))


def _slope(s: Scope) -> None:
    s.add(("v",), "L.slope({b0}, {0})", (s.pick("v"),), (s.block(["v"], ["v"]),))


_FLAT: tuple[Step, ...] = (
    *(_unary,) * 4,
    *(_binary,) * 4,
    *(_product,) * 2,
    *(_shape,) * 2,
    *(_stop,) * 3,
    *(_gather, _name, _discrete, _complex, _narrow, _solve),
)
_DEEP: tuple[Step, ...] = (
    *_FLAT,
    *(_random,),
    *(_scan,) * 3,
    *(_steps,) * 2,
    *(_cond,) * 2,
    *(_checkpoint,) * 3,
    *(_rule,) * 2,
    *(_batch, _jit, _slope),
)
