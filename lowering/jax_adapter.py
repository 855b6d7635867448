"""What we use of JAX beyond its documented API. Everything of that kind stands here, each with a test that names it.

The primitive `rematc_call` stands for one call of a `Program` inside a jaxpr. So `jax.jit` caches, dispatches and
shards our programs with its own machinery, at its own speed.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.extend.backend
import jax.lax.linalg  # registers jaxlib's kernels of linear algebra with XLA
import jaxlib.lapack
import jaxlib.version
import numpy as np
from jax._src import config, debugging, dtypes
from jax._src.ad_checkpoint import _remat_lowering, remat_p
from jax._src.ad_util import replace_rule_output_symbolic_zeros
from jax._src.callback import _callback_op_sharding, emit_python_callback
from jax._src.core import JaxprEqnContext, internal_mutable_array_effect, trace_state_clean
from jax._src.dispatch import apply_primitive
from jax._src.interpreters.partial_eval import Offloadable
from jax._src.lax.lax import _convert_element_type
from jax._src.linear_util import DebugInfo
from jax._src.named_sharding import UnspecifiedValue
from jax._src.random import prng as _prng
from jax._src.sharding_impls import SPMDAxisContext
from jax._src.source_info_util import Scope, is_user_filename, register_exclusion
from jax._src.state.discharge import discharge_state
from jax._src.state.types import AbstractRef, TransformedRef
from jax.experimental.scheduling_groups import xla_metadata_call
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from rematc.ir.core import Effect
from rematc.ir.errors import CompileError
from rematc.ir.host_functions import CallbackError
from rematc.ir.locations import Location
from rematc.ir.types import TensorType
from rematc.lowering.program import Program
from rematc.lowering.validation import parse
from rematc.lowering.writer import CALLBACK, Callback

# `jax.enable_x64` as a context manager costs 1.5 us a call, these two methods of it 0.1 us. They are what the context
# manager itself calls, and set the flag for this thread only.
swap_x64 = jax.enable_x64.swap_local
restore_x64 = jax.enable_x64.set_local

#: What is read of JAX's objects beyond what the imports above name. One that is missing must not pass for one that is
#: not set: a sum over devices, or a constraint, would vanish.
_READ: dict[Any, tuple[str, ...]] = {
    jax.core.ShapedArray: ("mat", "memory_space", "sharding", "weak_type"),
    jax.sharding.AbstractMesh: ("abstract_mesh", "empty", "explicit_axes", "manual_axes", "update_axis_types"),
    JaxprEqnContext: ("compute_type", "xla_metadata"),
    DebugInfo: ("arg_names", "func_name", "func_src_info"),
    jax.lax.sin_p.impl: ("func",),
}


def check_internals(read: dict[Any, tuple[str, ...]]) -> None:
    """Raise ImportError where one of JAX's classes lacks an attribute that is read."""
    for owner, names in read.items():
        for name in names:
            if not hasattr(owner, name):
                raise ImportError(
                    f"jax {jax.__version__} has no {getattr(owner, '__name__', owner)}.{name}, which rematc reads; it "
                    "works with jax 0.10 to 0.12: install one of these"
                )


check_internals(_READ)
# Any: JAX leaves the functions that keys are made by without annotations.
_keys: Any = _prng
# Any: JAX types neither its primitives nor what MLIR's Python classes are generic in.
_call_p: Any = Primitive("rematc_call")
_call_p.multiple_results = True


def call(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Apply a program to JAX values, one for each of its parameters: inside a trace one equation, outside it runs."""
    results: list[Any] = _call_p.bind(*operands, program=program, **on_meshes(program.module.meshes))
    return results


def on_meshes(meshes: tuple[Any, ...]) -> dict[str, Any]:
    """Parameters by which JAX finds the devices of an equation that it cannot look into: a jaxpr that names them."""
    return {"placed": _placed_on(meshes)} if meshes else {}


@functools.lru_cache(maxsize=64)
def _placed_on(meshes: tuple[Any, ...]) -> Any:
    def place() -> list[Any]:
        scalar = np.zeros((), np.float32)
        constrain: Any = jax.lax.with_sharding_constraint  # which JAX leaves without annotations
        return [constrain(scalar, replicated(mesh)) for mesh in meshes]

    return jax.make_jaxpr(place)()


def replicated(mesh: Any) -> jax.sharding.NamedSharding:
    """The sharding of arrays that lie whole on each device of a mesh."""
    partition: Any = jax.sharding.PartitionSpec
    return jax.sharding.NamedSharding(mesh, partition())


def is_trace_open() -> bool:
    """Whether JAX is tracing in this thread; there is no public way to ask."""
    return not trace_state_clean()


def is_jaxlib_before(*version: int) -> bool:
    """Whether the installed jaxlib is older than this version."""
    return tuple(int(part) for part in jaxlib.version.__version__.split(".")[: len(version)]) < version


def default_platform() -> str:
    """Where JAX runs by default: cpu, cuda, rocm or tpu. `jax.default_backend` calls two of them gpu."""
    backend: Any = jax.extend.backend.get_backend()
    platform: str = backend._raw_platform
    return platform


@functools.cache
def initialize_kernels() -> None:
    """Load the LAPACK that jaxlib's kernels on the CPU call, SciPy's. A program with kernels crashes without."""
    jaxlib.lapack.prepare_lapack_call("getrf_ffi", np.float64)  # type: ignore[no-untyped-call]  # left unannotated


def abstract_value(type: TensorType) -> jax.core.ShapedArray:
    """JAX's type of an array."""
    if type.on_host:
        return jax.core.ShapedArray(type.shape, type.dtype.numpy, memory_space=jax.memory.Space.Host)
    return jax.core.ShapedArray(type.shape, type.dtype.numpy)


#: JAX's own effects of `jax.debug.print`, so that its loops take our programs, and ordered effects are in one order.
_EFFECTS: dict[Effect, frozenset[Any]] = {
    Effect.NONE: frozenset(),
    Effect.UNORDERED: frozenset({debugging.debug_effect}),
    Effect.ORDERED: frozenset({debugging.ordered_debug_effect}),
}


def effects_of(effect: Effect) -> frozenset[Any]:
    """JAX's effects that stand for one of ours."""
    return _EFFECTS[effect]


def _abstract_evaluate(
    *operands: Any, program: Program, placed: Any = None
) -> tuple[list[jax.core.ShapedArray], frozenset[Any]]:
    found = [(operand.shape, operand.dtype) for operand in operands]
    expected = [(type.shape, type.dtype.numpy) for type in program.param_types]
    if found != expected:
        raise CompileError(
            f"'{program.name}' takes ({', '.join(map(str, program.param_types))}), "
            f"got ({', '.join(operand.str_short(short_dtypes=True) for operand in operands)}); "
            "64-bit values need jax.enable_x64(True)"
        )
    return [abstract_value(type) for type in program.result_types], _EFFECTS[program.effect]


def _evaluate(*operands: Any, program: Program, placed: Any = None) -> list[Any]:
    # Outside all traces: only under `jax.disable_jit()`, which must not reach into a compiled program.
    with jax.disable_jit(False):
        results: list[Any] = _jitted(program)(*operands)
    return results


@functools.lru_cache(maxsize=32)
def _jitted(program: Program) -> Any:
    def run(*operands: Any) -> list[Any]:
        return call(program, operands)

    run.__name__ = program.name
    return jax.jit(run)


def lower_call(ctx: mlir.LoweringRuleContext, *operands: Any, program: Program, placed: Any = None) -> Sequence[Any]:
    """Move the program's functions into the module that JAX is lowering, and call what was `main`."""
    _check_devices(ctx, program)
    if program.module.uses_host_memory and "cpu" in ctx.module_context.platforms:
        raise host_memory_error(program, "cpu")
    _prepare_kernels(program, ctx.module_context.platforms)
    source = parse(program.text)
    _drop_memory_kinds(source)
    _emit_callbacks(ctx, source, program)
    symbol = mlir.merge_mlir_modules(
        ctx.module_context.module, program.name, source, dst_symtab=ctx.module_context.symbol_table
    )
    result_types = [mlir.aval_to_ir_type(ctx.module_context, aval) for aval in ctx.avals_out]
    name = ir.FlatSymbolRefAttr.get(symbol)
    if program.effect is not Effect.ORDERED:
        results: Sequence[Any] = func.CallOp(result_types, name, operands).results
        return results
    token = ctx.tokens_in.get(debugging.ordered_debug_effect)
    outcome = func.CallOp([token.type, *result_types], name, [token, *operands]).results
    following = mlir.TokenSet({debugging.ordered_debug_effect: outcome[0]})
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(following))
    return list(outcome)[1:]


def _check_devices(ctx: mlir.LoweringRuleContext, program: Program) -> None:
    """Raise CompileError where constraints of the program could not hold: they must not be dropped."""
    if not program.module.partitions:
        return
    if not config.use_shardy_partitioner.value:
        raise CompileError(
            f"'{program.name}' has sharding constraints, which rematc writes for Shardy; leave "
            "jax_use_shardy_partitioner on, or use rematc.jax.value_and_grad, which hands constraints back to JAX",
            program.module.constrained_at,
        )
    context = ctx.module_context.axis_context
    found = context.mesh.size if isinstance(context, SPMDAxisContext) else context.num_devices
    if found != program.module.partitions:
        raise CompileError(
            f"'{program.name}' has sharding constraints over a mesh of {program.module.partitions} devices, and is "
            f"compiled for {found}; pass arrays, or jax.ShapeDtypeStructs, that lie on the devices of the mesh",
            program.module.constrained_at,
        )


def _emit_callbacks(ctx: mlir.LoweringRuleContext, module: ir.Module, program: Program) -> None:
    """Put the platform's own calls of Python in the place of the module's."""
    if not program.module.callbacks:
        return
    found: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if target == CALLBACK:
                found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for operation in found:
        number = ir.StringAttr(operation.attributes["backend_config"]).value
        _emit_callback(ctx, operation, program.module.callbacks[int(number)])
        operation.erase()


def _emit_callback(ctx: mlir.LoweringRuleContext, operation: Any, callback: Callback) -> None:
    token, operands = None, list(operation.operands)
    if callback.is_ordered:
        token, *operands = operands
    given, taken = ([abstract_value(type) for type in types] for types in (callback.operands, callback.results))
    sharding = _callback_op_sharding(ctx.module_context.axis_context, None, taken)
    with ir.InsertionPoint(operation), operation.location:
        outcome, following, _ = emit_python_callback(
            dataclasses.replace(ctx, avals_in=given, avals_out=taken),
            _remembering(callback.function),
            token,
            operands,
            given,
            taken,
            has_side_effect=callback.has_effect,
            sharding=sharding,
        )
    replacements = [following, *outcome] if callback.is_ordered else list(outcome)
    for old, new in zip(operation.results, replacements, strict=True):
        old.replace_all_uses_with(new)


class _Failures:
    """What functions of the user's raised last, in which thread: XLA gives back nothing but a text.

    Others than ours may get that text, where a program of ours is a part of theirs: what nobody takes is forgotten.
    """

    def __init__(self) -> None:
        self._last = deque[tuple[int, CallbackError]](maxlen=16)
        self._lock = threading.Lock()

    def note(self, error: CallbackError) -> None:
        with self._lock:
            self._last.append((threading.get_ident(), error))

    def take(self, text: str) -> CallbackError | None:
        """The last one that a text of XLA's tells of; of this thread, unless XLA made the call in one of its own."""
        with self._lock:
            told = [one for one in self._last if str(one[1]).partition("\n")[0] in text]
            here = [one for one in told if one[0] == threading.get_ident()]
            if not told:
                return None
            found = (here or told)[-1]
            self._last.remove(found)
        return found[1]


_failures = _Failures()


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose exceptions `take_failure` gives."""

    def call(*arrays: Any) -> Any:
        try:
            return function(*[np.asarray(array) for array in arrays])
        except CallbackError as error:
            _failures.note(error)
            raise

    return call


def take_failure(text: str) -> CallbackError | None:
    """The exception of a function of the user's that XLA tells of in this text."""
    return _failures.take(text)


def settle(results: Any) -> None:
    """Wait until these results are there, and everything that programs print or call has happened."""
    jax.block_until_ready(results)  # type: ignore[no-untyped-call]  # JAX leaves both without annotations
    jax.effects_barrier()  # type: ignore[no-untyped-call]


def _prepare_kernels(program: Program, platforms: Sequence[str]) -> None:
    needed = program.module.kernel_platform
    if needed is None:
        return
    for platform in platforms:
        if platform != needed:
            raise CompileError(
                f"'{program.name}' calls linear algebra kernels of platform '{needed}' and cannot run on '{platform}'; "
                f"compile it for '{platform}' from the start (rematc.compile(..., platform='{platform}')), "
                f"or run it on '{needed}'"
            )
    initialize_kernels()


def _drop_memory_kinds(module: ir.Module) -> None:
    """Where arguments and results lie is said on the entry function only, and JAX says it there."""
    for op in module.body.operations:
        for attribute in ("arg_attrs", "res_attrs"):
            if attribute in op.attributes:
                del op.attributes[attribute]


def host_memory_error(program: Program, platform: str) -> CompileError:
    """What to say where a program offloads and the platform cannot."""
    return CompileError(
        f"'{program.name}' offloads values to the host's memory, but on platform '{platform}' there is none apart from "
        "the device's; save these values instead of offloading them, or run it on a GPU or TPU"
    )


def _refuse_jvp(primals: object, tangents: object, *, program: Program, placed: Any = None) -> NoReturn:
    raise CompileError(
        f"JAX cannot differentiate '{program.name}', which is compiled already; "
        "use rematc.grad, or rematc.value_and_grad, before compiling it"
    )


def _refuse_batching(operands: object, dimensions: object, *, program: Program, placed: Any = None) -> NoReturn:
    raise CompileError(
        f"jax.vmap cannot batch '{program.name}', which is compiled already; write the batch dimension in the function"
    )


_call_p.def_effectful_abstract_eval(_abstract_evaluate)
_call_p.def_impl(_evaluate)
# `inline=False`: equal calls share one copy of the program in a module.
mlir.register_lowering(_call_p, lower_call, inline=False)
ad.primitive_jvps[_call_p] = _refuse_jvp
batching.primitive_batchers[_call_p] = _refuse_batching


# -- jaxprs ----------------------------------------------------------------------------------------------------------


#: Where our own modules stand.
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
# What the user's programs show of where they come from is the user's lines.
register_exclusion(_PACKAGE)
#: Where Python's own modules stand.
_STANDARD = str(Path(os.__file__).parent) + os.sep


def equation_location(eqn: Any) -> Location | None:
    """The user's line that an equation of a jaxpr comes from; None where every frame is JAX's or Python's own.

    It is the innermost line outside of installed packages: a layer of flax or equinox is in a package, and the model
    that calls it is the user's. Where all of the code is installed it is the innermost line.

    What JAX traced because we asked it to, such as a derivative rule, has our frames below its own.
    """
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    codes, instructions = traceback.raw_frames()
    installed: tuple[Any, int] | None = None
    for code, instruction in zip(codes, instructions, strict=True):
        kind = _kind_of_file(code.co_filename)
        if kind is _File.OWN:
            break
        if kind is _File.USER:
            return _code_location(code, code.co_filename, instruction)
        if kind is _File.INSTALLED and installed is None:
            installed = (code, instruction)
    if installed is None:
        return None
    code, instruction = installed
    return _code_location(code, code.co_filename, instruction)


class _File(enum.Enum):
    """Whose code stands in a file."""

    USER = "user"
    INSTALLED = "installed"
    OWN = "ours"
    JAX = "jax"


@functools.lru_cache(maxsize=1 << 12)
def _kind_of_file(file: str) -> _File:
    if file.startswith(_PACKAGE):
        return _File.OWN
    if not is_user_filename(file) or file.startswith("<frozen"):
        return _File.JAX
    is_installed = any(f"{os.sep}{folder}{os.sep}" in file for folder in ("site-packages", "dist-packages"))
    return _File.INSTALLED if is_installed or file.startswith(_STANDARD) else _File.USER


@functools.lru_cache(maxsize=1 << 14)
def _code_location(code: Any, file: str, instruction: int) -> Location:
    # Code objects are equal where their files differ, so the file is a part of what is remembered.
    positions = next(itertools.islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    line, _, column, _ = positions
    return Location(
        file,
        line or code.co_firstlineno,
        0 if column is None else column + 1,
        code.co_qualname.rpartition("<locals>.")[2],
    )


def scopes_of(eqn: Any) -> tuple[str, ...]:
    """The names that `jax.named_scope` gave around an equation, outer ones first, as far as its jaxpr reaches."""
    stack = eqn.source_info.name_stack.stack
    return tuple([entry.name for entry in stack if isinstance(entry, Scope)]) if stack else ()


def is_library_function(jaxpr: Any) -> bool:
    """Whether a jaxpr comes from a function that JAX itself defines."""
    source = "" if jaxpr.debug_info is None else jaxpr.debug_info.func_src_info or ""
    file = source.rpartition(" at ")[2].rpartition(":")[0]
    return bool(file) and not is_user_filename(file)


def closed(jaxpr: Any, constants: Sequence[Any] = ()) -> Any:
    """A jaxpr as a closed one."""
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, tuple(constants))


@functools.lru_cache(maxsize=256)
def is_key(dtype: Any) -> bool:
    """Whether an element type is that of typed random keys."""
    return bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


def key_layout(dtype: Any) -> tuple[Any, tuple[int, ...]]:
    """What a typed key is made of: the element type of its words, and their shape."""
    element = dtype._rules.physical_element_aval(dtype)
    return element.dtype, tuple(element.shape)


def key_words(keys: Any) -> Any:
    """The words of an array of typed keys, along new last dimensions."""
    return jax.random.key_data(keys)


def is_float0(dtype: Any) -> bool:
    """Whether an element type is that of tangents of integers."""
    return bool(dtype == dtypes.float0)


def with_plain_integers(eqn: Any) -> Any:
    """An equation whose parameters hold Python's integers where the user's were NumPy's, which stay in shapes."""
    changed = {name: _plain(one) for name, one in eqn.params.items() if _holds_numpy_integers(one)}
    return eqn.replace(params={**eqn.params, **changed}) if changed else eqn


def _holds_numpy_integers(one: Any) -> bool:
    if type(one) is tuple:
        return any(map(_holds_numpy_integers, one))
    return isinstance(one, np.integer)


def _plain(one: Any) -> Any:
    if type(one) is tuple:
        return tuple(map(_plain, one))
    return int(one) if isinstance(one, np.integer) else one


def apply_equation(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Apply an equation's primitive to JAX values, one for each of its inputs; its outputs."""
    with eqn.ctx.manager:
        return bind(eqn.primitive, operands, eqn.params)


def bind(primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Apply a primitive with the parameters of an equation; its outputs."""
    found = primitive.bind(*operands, **primitive.get_bind_params(params))
    return list(found) if primitive.multiple_results else [found]


def pulled_back(rule: Any, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The cotangents that the backward rule of a `custom_lin` equation gives; zeros without elements as arrays."""
    found = rule.call_wrapped(*residuals, *cts)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], (list, tuple)):
        found, _ = found  # beside them, since jax 0.12: what the rule wants logged
    instantiate: Any = ad.instantiate_zeros
    return [instantiate(replace_rule_output_symbolic_zeros(ct)) for ct in found]


def function_name(jaxpr: Any) -> str:
    """The name of the function that a jaxpr was traced from."""
    return "function" if jaxpr.debug_info is None else str(jaxpr.debug_info.func_name or "function")


def scan_parts(params: Any) -> tuple[int, int]:
    """How many consts and carries a scan's equation has."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def expanded(eqn: Any) -> Callable[..., list[Any]]:
    """What a `call_hi_primitive` equation is made of, as a function of the values of its inputs."""
    primitive = eqn.params["_prim"]

    def function(*operands: Any) -> list[Any]:
        found = primitive.expand(*jax.tree.unflatten(primitive.in_tree, operands))
        return jax.tree.leaves(found)

    return function


#: Whether the user runs JAX with 64-bit types, while a program of ours is traced: this thread's flag is set for that.
_users_x64: ContextVar[bool | None] = ContextVar("the_users_x64", default=None)


def is_x64_enabled() -> bool:
    """Whether the user runs JAX with 64-bit types: by JAX's configuration, or in a block of `jax.enable_x64`."""
    found = _users_x64.get()
    settings: Any = jax.config
    return bool(settings.jax_enable_x64) if found is None else found


def is_tracing_with_x64() -> bool:
    """Whether this thread's flag is ours, set while a program is traced."""
    return _users_x64.get() is not None


@contextmanager
def tracing_with_x64(users: bool | None) -> Iterator[None]:
    """Trace with this thread's flag set for us; `users` is what it was, None where JAX's configuration says it."""
    token = _users_x64.set(bool(jax.enable_x64.get_global()) if users is None else users)
    try:
        yield
    finally:
        _users_x64.reset(token)


def words_of(aval: Any) -> jax.core.ShapedArray:
    """The abstract value of an array, or of the words of an array of typed keys."""
    if not is_key(aval.dtype):
        return jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
    element, words = key_layout(aval.dtype)
    return jax.core.ShapedArray((*aval.shape, *words), element)


def as_words(value: Any) -> Any:
    """An array, or the words of one of typed keys."""
    dtype = getattr(value, "dtype", None)
    return value if dtype is None or not is_key(dtype) else key_words(value)


def apply_to_words(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """As `apply_equation`, with the words of typed keys in their place."""
    given = [
        _keys.random_wrap(value, impl=atom.aval.dtype._impl) if is_key(atom.aval.dtype) else value
        for atom, value in zip(eqn.invars, operands, strict=True)
    ]
    return [
        key_words(value) if is_key(variable.aval.dtype) else value
        for variable, value in zip(eqn.outvars, apply_equation(eqn, given), strict=True)
    ]


def key_function(eqn: Any) -> Callable[..., Any]:
    """What an equation that makes keys, or bits of them, computes: a function of words, in other primitives."""
    params = eqn.params
    aval = eqn.invars[0].aval
    rank = len(aval.shape)

    def function(*operands: Any) -> Any:
        with eqn.ctx.manager:
            match eqn.primitive.name:
                case "random_seed":
                    return _keys.random_seed_impl_base(*operands, impl=params["impl"])
                case "random_split":
                    return _keys.random_split_impl_base(aval.dtype._impl, *operands, rank, shape=params["shape"])
                case "random_fold_in":
                    return _keys.random_fold_in_impl_base(aval.dtype._impl, *operands, aval.shape)
                case _:
                    return _keys.random_bits_impl_base(aval.dtype._impl, *operands, rank, **params)

    return function


# -- tracing for others ------------------------------------------------------------------------------------------------


def trace_context() -> object:
    """All of JAX's settings that change what is traced: 64-bit types, precision, meshes, names of axes."""
    context: object = config.trace_context()
    return context


def captured_as_inputs(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A closed jaxpr whose constants are its last inputs, and the constants."""
    inner = jaxpr.jaxpr
    count = len(inner.constvars)
    if not count:
        return jaxpr, []
    debug_info = inner.debug_info
    if debug_info is not None and debug_info.arg_names is not None:
        debug_info = debug_info._replace(arg_names=(*debug_info.arg_names, *("",) * count))
    moved = inner.replace(constvars=[], invars=[*inner.invars, *inner.constvars], debug_info=debug_info)
    return closed(moved), list(jaxpr.consts)


def without_remat3() -> Any:
    """A context in which `jax.checkpoint` is the one that JAX has by default."""
    return config.remat3(False)


def recompute_apart(primitive: Any, *avals: Any, **params: Any) -> bool:
    """A policy of `jax.checkpoint`'s that saves nothing, for what is linear already.

    Where XLA drops barriers, what is recomputed under it becomes a function that XLA must not inline.
    """
    return False


def _lower_checkpoint(ctx: mlir.LoweringRuleContext, *operands: Any, **params: Any) -> Sequence[Any]:
    """JAX's own lowering of `jax.checkpoint`; behind its barrier a call, under `recompute_apart`."""
    jaxpr = params["jaxpr"]
    is_kept = params["differentiated"] and params["prevent_cse"] is True and not jaxpr.effects
    if params["policy"] is not recompute_apart or not is_kept:
        usual: Sequence[Any] = _remat_lowering(ctx, *operands, **params)
        return usual
    # JAX leaves both functions without annotations.
    barrier: Any = jax.lax.optimization_barrier
    recomputed: Any = xla_metadata_call(jaxpr_as_fun(closed(jaxpr)), inlineable="false")  # type: ignore[no-untyped-call]
    apart = mlir.lower_fun(lambda *given: recomputed(*barrier(given)), multiple_results=True)
    results: Sequence[Any] = apart(ctx, *operands)
    return results


@functools.cache
def policy_of_recomputation() -> Any:
    """`recompute_apart`, known to JAX's lowering of `jax.checkpoint` from the first time that it is asked for.

    Before jaxlib 0.12 that lowering is replaced on the CPU, for this process: of all other policies it stays JAX's.
    """
    if is_jaxlib_before(0, 12):
        mlir.register_lowering(remat_p, _lower_checkpoint, platform="cpu")
    return recompute_apart


def offloadable(src: str, dst: str) -> Any:
    """What a policy of `jax.checkpoint`'s answers for a value that waits in another memory."""
    return Offloadable(src, dst)


def is_weak(aval: Any) -> bool:
    """Whether the element type of an array yields to those that it meets, as a Python number's does."""
    return isinstance(aval, jax.core.ShapedArray) and bool(aval.weak_type)


def is_part_of_reference(value: Any) -> bool:
    """Whether a value is a view of a mutable array, which has no abstract value."""
    return isinstance(value, TransformedRef)


def is_reference(aval: Any) -> bool:
    """Whether an abstract value is that of a mutable array."""
    return isinstance(aval, AbstractRef)


def has_only_local_references(one: Any) -> bool:
    """Whether the effects of a jaxpr, or an equation, are those of references that it makes itself, at any depth."""
    return set(one.effects) == _LOCAL


def makes_references(jaxpr: Any) -> bool:
    """Whether equations of a jaxpr make references: of itself, not of what it calls."""
    if internal_mutable_array_effect not in jaxpr.effects:
        return False
    return any(is_reference(variable.aval) for eqn in jaxpr.eqns for variable in eqn.outvars)


def without_own_references(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A closed jaxpr that holds the references it made as values, in loops and calls that use them, too.

    What makes references for itself alone, such as a function with a derivative rule, is left as it is: JAX would
    drop the rule.

    Returns:
        a closed jaxpr whose last inputs are what was captured, and the captured arrays.

    Raises:
        NotImplementedError: where JAX has no such form of an equation that uses a reference.
    """
    moved, captured = captured_as_inputs(jaxpr)
    inner = moved.jaxpr
    eqns = [eqn if _has_references(eqn) else eqn.replace(effects=eqn.effects - _LOCAL) for eqn in inner.eqns]
    return discharge_state(closed(inner.replace(eqns=eqns)), should_discharge=False, lower=False), captured


def _has_references(eqn: Any) -> bool:
    return any(is_reference(atom.aval) for atom in (*eqn.invars, *eqn.outvars))


#: The effect of equations that make references, and use them, where nobody else sees them.
_LOCAL = {internal_mutable_array_effect}


def key_generator(dtype: Any) -> str:
    """The name of the generator of typed keys, as `jax.random.key_impl` gives it."""
    name: str = dtype._impl.name
    return name


def keys_of_words(words: Any, dtype: Any) -> Any:
    """The array of typed keys that words are."""
    return _keys.random_wrap(words, impl=dtype._impl)


def weakly_typed(value: Any) -> Any:
    """An array whose element type yields to those that it meets, as a Python number's does."""
    return _convert_element_type(value, weak_type=True)


def is_without_sharding(sharding: Any) -> bool:
    """Whether a parameter for a result's sharding says nothing."""
    if sharding is None or isinstance(sharding, UnspecifiedValue):
        return True
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return False
    return sharding.mesh.empty or not (abstract_mesh(sharding).explicit_axes or any(sharding.spec))


#: The primitives of JAX's own and ours, and how many modules there were when they were looked for.
_own: dict[Any, str] = {}
_searched = 0
_OWNERS = ("jax", "rematc")


def own_name(primitive: Any) -> str:
    """The name of a primitive of JAX's own, or of ours; "" for one of somebody else's, who may call it what he likes.

    JAX's are the ones that its modules hold, and ours are those of this package's.
    """
    found = _own.get(primitive)
    if found is not None:
        return found
    if _search() and primitive in _own:
        return _own[primitive]
    return ""


def _search() -> bool:
    """Look for such primitives where modules were loaded since the last time; whether there were any."""
    global _searched  # noqa: PLW0603  # a count beside the table that it belongs to
    if len(sys.modules) == _searched:
        return False
    _searched = len(sys.modules)
    for module in [one for name, one in list(sys.modules.items()) if name.partition(".")[0] in _OWNERS]:
        _own.update({one: one.name for one in list(vars(module).values()) if isinstance(one, Primitive)})
    return True


def is_lowered_when_called(primitive: Any) -> bool:
    """Whether a call of a primitive compiles its lowering, as those of JAX's own do."""
    implementation = primitive.impl
    return isinstance(implementation, functools.partial) and implementation.func is apply_primitive


def is_unspecified(sharding: Any) -> bool:
    """Whether a call of `jax.jit` leaves a sharding to the compiler."""
    return isinstance(sharding, UnspecifiedValue)


def has_explicit_sharding(aval: Any) -> bool:
    """Whether a type says how its arrays lie over devices: it is on a mesh with axes of type Explicit."""
    if not isinstance(aval, jax.core.ShapedArray):
        return False
    mesh = aval.sharding.mesh
    return not mesh.empty and bool(mesh.explicit_axes)


def abstract_mesh(sharding: Any) -> Any:
    """The mesh of a `NamedSharding`, without its devices."""
    return sharding.mesh.abstract_mesh


def with_auto_axes(mesh: Any) -> Any:
    """An abstract mesh over whose axes XLA spreads values as it likes, where types said it before."""
    return mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, jax.sharding.AxisType.Auto))


def varying_axes(aval: Any) -> frozenset[str]:
    """The axes of `shard_map`, with its checks on, along which a value may differ from device to device."""
    if not isinstance(aval, jax.core.ShapedArray):
        return frozenset()
    manual: Any = aval.mat
    return frozenset(manual.varying)


def with_varying_axes(aval: Any, like: Any) -> Any:
    """An abstract value on the devices of another one, which differs from device to device as that does."""
    partition: Any = jax.sharding.PartitionSpec
    spec = partition(*(None,) * aval.ndim)
    return like.update(shape=aval.shape, dtype=aval.dtype, weak_type=False, sharding=like.sharding.update(spec=spec))
