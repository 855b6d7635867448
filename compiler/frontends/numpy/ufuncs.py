"""Ufuncs on tracers: `__array_ufunc__`, its methods, and the operators, which are ufuncs too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.special

from rematc.compiler.frontends.numpy import cumulative, float_bits, folds, products, reductions
from rematc.compiler.frontends.numpy.elementwise import RULES as ELEMENTWISE_RULES
from rematc.compiler.frontends.numpy.elementwise import Rule, fmod, reciprocal, truncate
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    broadcast_operand,
    broadcast_shape,
    broadcast_value,
    fail,
    here,
    shape_of,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.outputs import check_target, given_out, masked_inputs, write
from rematc.compiler.frontends.numpy.promotion import Kind, NumpyDType, ir_dtype, kind_of, resolve
from rematc.compiler.frontends.numpy.special_functions import SPECIAL_RULES
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops import arithmetic
from rematc.ir.types import F64, I64, U64, DType
from rematc.ir.values import Value

#: Rules on the bits of numbers.
_BIT_RULES: dict[str, Rule] = {"spacing": float_bits.spacing, "gcd": float_bits.gcd, "lcm": float_bits.lcm}
RULES = {**ELEMENTWISE_RULES, **_BIT_RULES, **SPECIAL_RULES}
TracerOrPair = Tracer | tuple[Tracer, ...]


def apply_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[ArrayLike], options: Mapping[str, object]
) -> TracerOrPair:
    """What `__array_ufunc__` answers in the innermost open trace."""
    name = ufunc.__name__
    if not options:
        return call_ufunc(ufunc, *inputs) if method == "__call__" else _call_method(ufunc, method, inputs, {})
    outs = given_out(options.get("out"))
    targets = [None if out is None else check_target(out, f"np.{name}") for out in outs]
    options = _without_defaults(options)
    if method != "__call__":
        results = _call_method(ufunc, method, inputs, options)
        return _written(results, targets, name, True)
    where = options.pop("where", True)
    if where is not True:
        if not targets:
            fail(
                f"np.{name}(..., where=...) without out=... leaves elements undefined where the mask does not hold; "
                f"give them: out=np.zeros_like(x), or use np.where(mask, np.{name}(...), other)"
            )
        inputs = masked_inputs(name, inputs, where)
    if options.keys() - {"dtype"}:
        _refuse(name, next(iter(options.keys() - {"dtype"})))
    return _written(call_ufunc(ufunc, *inputs, dtype=options.get("dtype")), targets, name, where)


def _call_method(
    ufunc: np.ufunc, method: str, inputs: Sequence[ArrayLike], options: Mapping[str, object]
) -> TracerOrPair:
    rule = _METHODS.get(method)
    if rule is None:
        advice = _METHOD_ADVICE.get(method, _GENERAL_ADVICE)
        fail(f"np.{ufunc.__name__}.{method} on a traced array is not supported; {advice}")
    return rule(ufunc, *inputs, **options)


def _written(results: TracerOrPair, targets: Sequence[Tracer | None], name: str, where: ArrayLike) -> TracerOrPair:
    if not targets:
        return results
    pairs = zip(results if isinstance(results, tuple) else (results,), targets, strict=True)
    written = [result if target is None else write(result, target, f"np.{name}", where) for result, target in pairs]
    return tuple(written) if isinstance(results, tuple) else written[0]


_GENERAL_ADVICE = "write it with supported functions (rematc.numpy.supported() lists them)"
_METHOD_ADVICE = {
    "at": "use rematc.numpy.at_add(x, index, value) or at_set, which return the new array",
    "reduceat": "use a reduction on each slice, or a product with a matrix of zeros and ones",
}


def _without_defaults(options: Mapping[str, object]) -> dict[str, object]:
    """The options that say something; the memory layout and the arrays to write into aside."""
    kept = {}
    for key, given in options.items():
        is_default = given is np._NoValue or (given is None and key != "axis") or (given is True and key == "where")
        if not is_default and key not in {"out", "casting", "order", "subok"}:
            kept[key] = given
    return kept


def _refuse(name: str, key: str) -> None:
    fail(f"np.{name}(..., {key}=...) on a traced array is not supported; leave {key} out")


def call_ufunc(ufunc: np.ufunc, *inputs: ArrayLike, dtype: object = None) -> TracerOrPair:
    """`ufunc` applied to operands of which at least one is traced."""
    special = _SPECIAL.get(ufunc.__name__)
    if special is not None and _is_known(ufunc):
        if dtype is not None:
            taken, _ = _resolve(ufunc, [as_operand(x) for x in inputs], dtype)
            inputs = tuple([wrap(value_of(x, kind)) for x, kind in zip(inputs, taken, strict=True)])
        return special(ufunc, *inputs)
    rule = RULES.get(ufunc.__name__)
    if rule is None or not _is_known(ufunc):
        fail(f"the ufunc {ufunc.__name__} is not supported on traced arrays; {_GENERAL_ADVICE}")
    operands = [as_operand(x) for x in inputs]
    taken, given = _resolve(ufunc, operands, dtype)
    if ufunc.__name__ in _BEYOND and taken[0].is_integer:
        operands, taken = _within_range(operands, taken[0]), _wide_enough(operands, taken)
    return wrap(_elementwise(rule, ufunc.__name__, operands, taken, given[0]))


#: Comparisons: they are defined of integers that the dtype of the array cannot hold.
_BEYOND = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}


def _wide_enough(operands: Sequence[ArrayLike], taken: tuple[DType, ...]) -> tuple[DType, ...]:
    """The dtypes of the operands of a comparison: 64 bits where one is a traced Python integer, of unknown value."""
    if not any(isinstance(x, Tracer) and x.weak for x in operands):
        return taken
    return tuple([dtype if dtype is U64 and not _is_weak(x) else I64 for x, dtype in zip(operands, taken, strict=True)])


def _is_weak(x: ArrayLike) -> bool:
    return isinstance(kind_of(x), type)


def _within_range(operands: Sequence[ArrayLike], dtype: DType) -> list[ArrayLike]:
    """The operands of a comparison, of which a Python integer may be out of the range of the other one's dtype.

    The comparison is then the same for all elements: of two numbers that compare so.
    """
    iinfo: Any = np.iinfo
    limits = iinfo(dtype.numpy)
    for place, x in enumerate(operands):
        if type(x) is int and not limits.min <= x <= limits.max:
            # An element, compared with what is above all elements, is as 0 with 1; below, as 1 with 0.
            other = broadcast_value(here(), value_of(0, dtype), shape_of(operands[1 - place]))
            pair = [other, other]
            pair[place if x > 0 else 1 - place] = here().full(other.type, 1)
            return [wrap(value) for value in pair]
    return list(operands)


def _elementwise(rule: Rule, name: str, operands: Sequence[ArrayLike], taken: Sequence[DType], given: DType) -> Value:
    shapes = [shape_of(x) for x in operands]
    shape = shapes[0] if len(shapes) == 1 else broadcast_shape(f"np.{name}", shapes)
    b = here()
    result = rule(b, *[broadcast_operand(x, dtype, shape) for x, dtype in zip(operands, taken, strict=True)])
    return b.convert(result, given)


def _resolve(
    ufunc: np.ufunc, operands: Sequence[ArrayLike], dtype: object = None
) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
    """The dtypes of the loop that NumPy takes, of its operands and of its results, which `dtype` may ask for."""
    kinds = tuple([kind_of(x) for x in operands])
    wanted = None if dtype is None else np.dtype(dtype)  # type: ignore[call-overload]  # whatever the user passes
    try:
        return _resolved(ufunc, kinds, wanted)
    except TypeError:
        listed = ", ".join(kind.__name__ if isinstance(kind, type) else kind.name for kind in kinds)
        asked = "" if wanted is None else f" and the result {wanted}"
        fail(f"np.{ufunc.__name__} is not defined for dtypes {listed}{asked}; convert with x.astype(...) first")


@cache
def _resolved(
    ufunc: np.ufunc, kinds: tuple[Kind, ...], wanted: NumpyDType | None
) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
    taken, given = resolve(ufunc, kinds, wanted)
    return tuple([ir_dtype(dtype) for dtype in taken]), tuple([ir_dtype(dtype) for dtype in given])


@cache
def _is_known(ufunc: np.ufunc) -> bool:
    """Whether the ufunc is NumPy's or SciPy's of that name, and not somebody's own of the same name."""
    return getattr(np, ufunc.__name__, None) is ufunc or _special_ufunc(ufunc.__name__) is ufunc


def _special_ufunc(name: str) -> object:
    """scipy.special's ufunc; with SCIPY_ARRAY_API=1 it is wrapped in a function that looks for a namespace's own.

    The ufunc of `zeta`, which is a function, has no public name.
    """
    found = getattr(scipy.special, name, None) or getattr(scipy.special._ufuncs, name, None)
    return getattr(found, "__wrapped__", found)


def special_ufuncs() -> dict[str, object]:
    """The ufuncs of scipy.special that can be traced, by name."""
    return {name: _special_ufunc(name) for name in SPECIAL_RULES if hasattr(scipy.special, name)}


# -- ufuncs that are no plain rule over converted operands -----------------------------------------------------------


def _power(ufunc: np.ufunc, x: ArrayLike, y: ArrayLike) -> Tracer:
    operands = [as_operand(x), as_operand(y)]
    taken, given = _resolve(ufunc, operands)
    exponent = _static_number(operands[1])
    if exponent is None or not isinstance(operands[0], Tracer):
        return wrap(_elementwise(RULES["power"], "power", operands, taken, given[0]))
    if taken[0].is_integer and isinstance(operands[1], int):
        value_of(exponent, taken[1])  # NumPy asks whether it fits
    if taken[0].is_integer and exponent < 0:
        fail(f"integers to the negative power {exponent}: NumPy refuses it too; convert the base with astype(float)")
    base = value_of(operands[0], taken[0])
    return wrap(here().convert(_static_power(base, exponent), given[0]))


def _static_number(x: ArrayLike) -> float | None:
    """The number that a concrete real scalar holds."""
    if isinstance(x, (np.ndarray, np.generic)) and x.ndim == 0 and x.dtype.kind in "iuf":
        return x.item()  # type: ignore[no-any-return]  # NumPy types item() loosely
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return x
    return None


def _static_power(x: Value, exponent: float) -> Value:
    b = here()
    match exponent:
        case 0:
            return b.full(x.type, 1)
        case 1:
            return x
        case 2:
            return b.multiply(x, x)
        case -1:
            return reciprocal(b, x)
        case 0.5:
            return b.sqrt(x)
        case -0.5:
            return b.rsqrt(x)
        case _ if exponent == int(exponent) and abs(exponent) <= 32:
            return b.emit1(arithmetic.IntegerPower(int(exponent)), x)
    return b.power(x, b.full(x.type, exponent))


def _divmod(ufunc: np.ufunc, x: ArrayLike, y: ArrayLike) -> tuple[Tracer, ...]:
    return (_single(np.floor_divide, x, y), _single(np.remainder, x, y))


def _modf(ufunc: np.ufunc, x: ArrayLike) -> tuple[Tracer, ...]:
    b, ((dtype,), _) = here(), _resolve(ufunc, [as_operand(x)])
    value = value_of(x, dtype)
    return (wrap(fmod(b, value, b.full(value.type, 1))), wrap(truncate(b, value)))


def _ldexp(ufunc: np.ufunc, x: ArrayLike, exponent: ArrayLike) -> Tracer:
    operands = [as_operand(x), as_operand(exponent)]
    taken, given = _resolve(ufunc, operands)
    return wrap(_elementwise(float_bits.scaled_by_power, "ldexp", operands, taken, given[0]))


def _frexp(ufunc: np.ufunc, x: ArrayLike) -> tuple[Tracer, ...]:
    b, ((dtype,), given) = here(), _resolve(ufunc, [as_operand(x)])
    parts = float_bits.frexp(b, value_of(x, dtype))
    return tuple([wrap(b.convert(part, kind)) for part, kind in zip(parts, given, strict=True)])


def _single(ufunc: np.ufunc, *inputs: ArrayLike) -> Tracer:
    result = call_ufunc(ufunc, *inputs)
    assert isinstance(result, Tracer)
    return result


def _product(rule: Callable[..., Tracer]) -> Callable[..., TracerOrPair]:
    def apply(ufunc: np.ufunc, x: ArrayLike, y: ArrayLike) -> Tracer:
        return rule(x, y)

    return apply


_SPECIAL: dict[str, Callable[..., TracerOrPair]] = {
    "power": _power,
    "divmod": _divmod,
    "modf": _modf,
    "ldexp": _ldexp,
    "frexp": _frexp,
    "matmul": _product(products.matmul),
    "vecdot": _product(products.vecdot),
    "matvec": _product(products.matvec),
    "vecmat": _product(products.vecmat),
}


# -- methods ---------------------------------------------------------------------------------------------------------


def _reduce(ufunc: np.ufunc, x: ArrayLike, axis: object = 0, **options: object) -> Tracer:
    rule = _REDUCTIONS.get(ufunc.__name__)
    if rule is None and ufunc.__name__ in folds.ASSOCIATIVE:
        rule = folds.reduction(ufunc, RULES[ufunc.__name__])
    if rule is None:
        fail(f"np.{ufunc.__name__}.reduce on a traced array is not supported; {_GENERAL_ADVICE}")
    return rule(x, axis=axis, **options)


def _accumulate(ufunc: np.ufunc, x: ArrayLike, axis: object = 0, dtype: object = None) -> Tracer:
    rule = cumulative.ACCUMULATIONS.get(ufunc.__name__)
    if rule is None and ufunc.__name__ in folds.ASSOCIATIVE:
        rule = folds.accumulation(ufunc, RULES[ufunc.__name__])
    if rule is None:
        fail(f"np.{ufunc.__name__}.accumulate on a traced array is not supported; {_GENERAL_ADVICE}")
    return rule(x, axis=axis, dtype=dtype)


def _outer(ufunc: np.ufunc, x: ArrayLike, y: ArrayLike) -> TracerOrPair:
    left, right = wrap(value_of(x)), value_of(y)
    b, rank = here(), right.type.rank
    column = b.reshape(left.value, (*left.shape, *[1] * rank))
    weak = isinstance(x, Tracer) and x.weak
    return call_ufunc(ufunc, wrap(column, weak), y)


_REDUCTIONS: dict[str, Callable[..., Tracer]] = {
    "add": reductions.sum,
    "multiply": reductions.prod,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "logical_and": reductions.all,
    "logical_or": reductions.any,
}
_METHODS: dict[str, Callable[..., TracerOrPair]] = {
    "reduce": _reduce,
    "accumulate": _accumulate,
    "outer": _outer,
}
SUPPORTED_UFUNCS = frozenset(RULES) | frozenset(_SPECIAL)


def i0(x: ArrayLike) -> Tracer:
    """As np.i0: the modified Bessel function of order 0, in the dtype of floats, and in float64 of others."""
    dtype = value_of(x).type.dtype
    found = _single(scipy.special.i0, x if dtype.is_float else wrap(value_of(x, F64)))
    return wrap(here().convert(found.value, dtype if dtype.is_float else F64))


#: Functions of NumPy that are ufuncs of SciPy.
FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {np.i0: i0} if "i0" in SPECIAL_RULES else {}
