"""A jaxpr equation by equation, loops and branches in Python: nothing is compiled but single operations, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from rematc.lowering.jax_internals.jaxprs import scan_parts

Arrays = Sequence[Any]
Rule = Callable[[dict[str, Any], Arrays], Arrays]


def run(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result, by way of its jaxpr."""
    jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    results = evaluate(jaxpr, jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shape), results)


def evaluate(closed: Any, args: Arrays) -> list[Any]:
    """The results of a closed jaxpr."""
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        if not isinstance(atom, core.Literal):
            return env[atom]
        aval: Any = atom.aval
        return np.asarray(atom.val, aval.dtype)

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        rule = _RULES.get(eqn.primitive.name)
        if rule is not None:
            results = rule(eqn.params, operands)
        else:
            results = eqn.primitive.bind(*operands, **eqn.params)
            results = results if eqn.primitive.multiple_results else [results]
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _closed(jaxpr: Any) -> Any:
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, ())


def _called(params: dict[str, Any], operands: Arrays) -> Arrays:
    """Of what calls a jaxpr, whatever the versions name it."""
    return evaluate(_closed(next(one for one in params.values() if hasattr(one, "eqns"))), operands)


def _scan(params: dict[str, Any], operands: Arrays) -> Arrays:
    consts, carried = scan_parts(params)
    carry, xs = list(operands[consts : consts + carried]), operands[consts + carried :]
    rows: list[Arrays] = []
    steps = range(params["length"])
    for step in reversed(steps) if params["reverse"] else steps:
        results = evaluate(params["jaxpr"], [*operands[:consts], *carry, *[x[step] for x in xs]])
        carry = results[:carried]
        rows.append(results[carried:])
    if params["reverse"]:
        rows.reverse()
    if not rows:
        return [*carry, *[np.zeros(aval.shape, aval.dtype) for aval in params["jaxpr"].out_avals[carried:]]]
    return [*carry, *[np.stack(column) for column in zip(*rows, strict=True)]]


def _while(params: dict[str, Any], operands: Arrays) -> Arrays:
    of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = operands[:of_cond], operands[of_cond : of_cond + of_body]
    carry = operands[of_cond + of_body :]
    while evaluate(params["cond_jaxpr"], [*cond_consts, *carry])[0]:
        carry = evaluate(params["body_jaxpr"], [*body_consts, *carry])
    return carry


def _cond(params: dict[str, Any], operands: Arrays) -> Arrays:
    branches = params["branches"]
    index = min(max(int(operands[0]), 0), len(branches) - 1)
    return evaluate(branches[index], operands[1:])


def _linear_solve(params: dict[str, Any], operands: Arrays) -> Arrays:
    lengths = params["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    consts = operands[before : before + lengths.solve]
    return evaluate(_closed(params["jaxprs"].solve), [*consts, *operands[sum(lengths) :]])


def _elementwise(function: Callable[..., Any]) -> Rule:
    """What NumPy computes on the operands, in the type of the first."""

    def rule(params: dict[str, Any], operands: Arrays) -> Arrays:
        arrays = [np.asarray(operand) for operand in operands]
        return [np.asarray(function(*arrays), arrays[0].dtype)]

    return rule


def _predicate(function: Callable[..., Any]) -> Rule:
    return lambda params, operands: [np.asarray(function(*map(np.asarray, operands)))]


def _broadcast(params: dict[str, Any], operands: Arrays) -> Arrays:
    x, shape = np.asarray(operands[0]), params["shape"]
    sizes = [1] * len(shape)
    for dimension, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        sizes[dimension] = size
    return [np.broadcast_to(x.reshape(sizes), shape)]


def _reduce_sum(params: dict[str, Any], operands: Arrays) -> Arrays:
    x = np.asarray(operands[0])
    return [np.sum(x, axis=tuple(params["axes"]), dtype=x.dtype)]


def _select(params: dict[str, Any], operands: Arrays) -> Arrays:
    which, *cases = map(np.asarray, operands)
    if which.dtype == bool and len(cases) == 2:
        return [np.where(which, cases[1], cases[0])]
    return [lax.select_n(which, *cases)]


def _convert(params: dict[str, Any], operands: Arrays) -> Arrays:
    x, dtype = np.asarray(operands[0]), np.dtype(params["new_dtype"])
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    return [x.astype(dtype)]


def _slice(params: dict[str, Any], operands: Arrays) -> Arrays:
    strides = params["strides"] or (1,) * len(params["start_indices"])
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return [np.asarray(operands[0])[tuple(slice(*one) for one in bounds)]]


def _reshape(params: dict[str, Any], operands: Arrays) -> Arrays:
    order = params["dimensions"]
    x = operands[0] if order is None else np.transpose(operands[0], order)
    return [np.reshape(x, params["new_sizes"])]


def _pad(params: dict[str, Any], operands: Arrays) -> Arrays:
    x, value = map(np.asarray, operands)
    config = params["padding_config"]
    if any(low < 0 or high < 0 for low, high, _ in config):
        return [lax.pad(x, value, config)]
    spread = [size + max(size - 1, 0) * between for size, (_, _, between) in zip(x.shape, config, strict=True)]
    padded = np.full([low + size + high for size, (low, high, _) in zip(spread, config, strict=True)], value)
    places = zip(spread, config, strict=True)
    padded[tuple(slice(low, low + size, between + 1) for size, (low, _, between) in places)] = x
    return [padded]


def _dot_general(params: dict[str, Any], operands: Arrays) -> Arrays:
    x, y = map(np.asarray, operands)
    (left, right), batch = params["dimension_numbers"]
    if batch[0] or params["preferred_element_type"] not in (None, x.dtype):
        return [
            lax.dot_general(x, y, params["dimension_numbers"], preferred_element_type=params["preferred_element_type"])
        ]
    return [np.asarray(np.tensordot(x, y, (left, right)), x.dtype)]


_SAME_TYPE: dict[str, Callable[..., Any]] = {
    "mul": np.multiply,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "neg": np.negative,
    "sin": np.sin,
    "cos": np.cos,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "square": np.square,
    "max": np.maximum,
    "min": np.minimum,
    "sign": np.sign,
    "stop_gradient": lambda x: x,
    "conj": np.conj,
}
_OTHER_TYPE: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
    "real": np.real,
    "imag": np.imag,
}
#: Primitives whose meaning is NumPy's; all others are applied by JAX.
_NUMPY: dict[str, Rule] = {
    **{name: _elementwise(function) for name, function in _SAME_TYPE.items()},
    **{name: _predicate(function) for name, function in _OTHER_TYPE.items()},
    "name": lambda params, operands: operands,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": _reduce_sum,
    "select_n": _select,
    "convert_element_type": _convert,
    "slice": _slice,
    "pad": _pad,
    "dot_general": _dot_general,
    "transpose": lambda params, operands: [np.transpose(operands[0], params["permutation"])],
    "reshape": _reshape,
    "squeeze": lambda params, operands: [np.squeeze(operands[0], tuple(params["dimensions"]))],
    "concatenate": lambda params, operands: [np.concatenate(operands, params["dimension"])],
    "rev": lambda params, operands: [np.flip(operands[0], params["dimensions"])],
}
_RULES: dict[str, Rule] = {
    **_NUMPY,
    **dict.fromkeys(("pjit", "jit", "eval_jaxpr", "core_call", "closed_call"), _called),
    **dict.fromkeys(("remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"), _called),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "optimization_barrier": lambda params, operands: operands,
}
