"""The trace: what records a user's function as a graph while it runs on tracers.

There is one trace for each graph that is being built. An op is recorded into the innermost open trace, even when
all its operands belong to an enclosing one, so that a closure under `checkpoint` is recorded inside the region.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

import jax
import numpy as np
from jax.sharding import NamedSharding

from rematc.compiler.tracing.derivative_order import derivative_order
from rematc.compiler.tracing.memory import Memory, Place
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.ops.structural import StopGradient
from rematc.ir.types import TensorType, dtype_of_numpy
from rematc.ir.values import Array, Value

#: Name of the parameter that a large closed-over array becomes.
CONSTANT = "<constant>"
#: Arrays of at most this many elements are written into the graph; larger ones become hidden parameters.
LITERAL_LIMIT = 64
_PIECE = 1 << 22  # elements that are compared at a time

_innermost: ContextVar[Trace | None] = ContextVar("innermost_open_trace", default=None)
#: The innermost open trace of this thread, or None outside all traces. Calls of compiled functions ask: a frame of
#: Python's around it would cost one of them 1 %.
current_trace: Callable[[], Trace | None] = _innermost.get


def require_trace() -> Trace:
    """The innermost open trace. Raises InternalError outside all traces."""
    trace = _innermost.get()
    if trace is None:
        raise InternalError("an op was applied to tracers outside all traces")
    return trace


class Tracer:
    """Stands for an array while a function is traced: it has a type but no elements.

    Attributes:
        owner: the trace that it belongs to (`trace` is a method of NumPy's arrays).
        weak: whether it stands for a Python scalar, whose type yields to the arrays it meets (NEP 50).
        place: where it lies in memory, if it is a view or has some; None for scalars and for arrays of their own.
        sharding: JAX's, where a type of JAX's says it (axes of type Explicit): of arguments, and of what functions of
            JAX's give; None for what is computed of them.
        lies: how an argument of the program lies on several devices, whatever its type says; None of all else. A
            program is planned for that.
    """

    __slots__ = ("_value", "lies", "owner", "place", "sharding", "weak")
    __hash__ = None  # type: ignore[assignment]  # like an array: `==` compares elements

    def __init__(self, owner: Trace, value: Value, weak: bool = False) -> None:
        self.owner = owner
        self.weak = weak
        self.place: Place | None = None
        self.sharding: NamedSharding | None = None
        self.lies: NamedSharding | None = None
        self._value = value

    @property
    def value(self) -> Value:
        """Its value in the trace's graph; of a view, as the array is now that it is a view of."""
        place = self.place
        if place is None or place.version == place.memory.version or not self.owner.is_open:
            return self._value
        with self.owner.resumed():
            self._value = place.read()
        place.version = place.memory.version
        return self._value

    def assign(self, value: Value) -> None:
        """Write new elements, of the tracer's type, into the memory where it lies."""
        if self.place is not None:
            self.place.write(value)
        self._value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.type.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self._value.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return len(self._value.type.shape)

    @property
    def size(self) -> int:
        return self._value.type.size

    @property
    def first_value(self) -> Value:
        """A value of its type that it had, whatever was written since: what errors tell about it."""
        return self._value

    def __repr__(self) -> str:
        return f"<tracer {self._value.type}{' weak' if self.weak else ''} of '{self.owner.name}'>"


TracerClass = Callable[["Trace", Value, bool], Tracer]


class _LargeConstant:
    """A closed-over array: the object as the user holds it, its copy at the time of tracing, its parameter."""

    __slots__ = ("copy", "source", "tracer")

    def __init__(self, source: object, copy: Array, tracer: Tracer) -> None:
        self.source = source  # kept alive so that its id stays its own
        self.copy = copy
        self.tracer = tracer


class Trace:
    """Records one graph.

    Attributes:
        name: name of the function that is traced.
        builder: receives the equations.
        parent: the trace that was open when this one was opened.
        records: notes of the API about this trace (the differentiations in it).
        is_open: whether equations may still be added.
        order: how many derivatives are taken of the graph.
    """

    def __init__(self, name: str, parent: Trace | None, tracer_class: TracerClass) -> None:
        self.name = name
        self.parent = parent
        self.builder = Builder(name)
        self.records: list[object] = []
        self.is_open = False
        self.order = derivative_order()
        self._tracer_class = tracer_class
        self._captures: dict[Value, tuple[Tracer, Value]] = {}
        self._constants: dict[int, _LargeConstant] = {}
        self._contents: dict[tuple[TensorType, bytes], _LargeConstant] = {}
        self._all_constants: list[_LargeConstant] = []
        self._literals: dict[tuple[object, ...], Value] = {}
        self._token: Token[Trace | None] | None = None
        self._varying: set[Value] = set()
        self._seen = 0

    # -- opening and closing -------------------------------------------------------------------------------------

    def __enter__(self) -> Trace:
        self._token = _innermost.set(self)
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False
        assert self._token is not None
        _innermost.reset(self._token)
        self._token = None

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Record here at the user's line, whatever trace was opened since."""
        if _innermost.get() is self:
            yield
            return
        token = _innermost.set(self)
        self.enter_line()
        try:
            yield
        finally:
            _innermost.reset(token)

    @property
    def captures(self) -> tuple[Tracer, ...]:
        """Tracers of enclosing traces that this one uses, in order of first use."""
        return tuple([tracer for tracer, _ in self._captures.values()])

    @property
    def constants(self) -> tuple[Array, ...]:
        """The large arrays that this trace uses, as they were when it used them first."""
        return tuple([constant.copy for constant in self._all_constants])

    def hidden_parameters(self) -> tuple[Value, ...]:
        """The trailing parameters of the graph: captures, then constants."""
        captured = [value for _, value in self._captures.values()]
        return (*captured, *[constant.tracer.value for constant in self._all_constants])

    # -- recording -----------------------------------------------------------------------------------------------

    def enter_line(self) -> Builder:
        """The builder, its location set to the user's line that is running."""
        self.builder.loc = user_location()
        return self.builder

    def parameter(self, type: TensorType, weak: bool = False, name: str | None = None) -> Tracer:
        """A new parameter of the graph."""
        tracer = self._tracer_class(self, self.builder.parameter(type, name), weak)
        if type.shape:
            tracer.place = Place(Memory(self, tracer.value))
        return tracer

    def tracer(self, value: Value, weak: bool = False) -> Tracer:
        """The tracer of a value of this trace."""
        return self._tracer_class(self, value, weak)

    def zeros(self, type: TensorType) -> Tracer:
        """Zeros that are traced, as a derivative is that turns out to be none: what indexes them may be traced, too."""
        return self.tracer(self.enter_line().zeros(type))

    def emit(self, op: Op, *operands: object) -> tuple[Tracer, ...]:
        """Lift the operands and apply `op` at the user's line."""
        builder = self.enter_line()
        results = builder.emit(op, *[self.lift(operand) for operand in operands])
        return tuple([self._tracer_class(self, value, False) for value in results])

    def varies(self, value: Value, order: int) -> bool:
        """Whether the innermost of so many derivatives may differentiate with respect to a value of this trace.

        Every parameter counts as differentiated, as it is not known here which are.
        """
        if self.order < order:
            return False  # it is from outside of what is differentiated
        if not self._seen:
            self._varying.update(value for value in self.builder.params if value.type.dtype.is_inexact)
        for tracer, inside in self._captures.values():
            if tracer.owner.varies(tracer.value, order):
                self._varying.add(inside)
        for eqn in self.builder.equations[self._seen :]:
            if not isinstance(eqn.op, StopGradient) and not self._varying.isdisjoint(eqn.operands):
                self._varying.update([value for value in eqn.results if value.type.dtype.is_inexact])
        self._seen = len(self.builder.equations)
        return value in self._varying

    # -- lifting -------------------------------------------------------------------------------------------------

    def lift(self, x: object) -> Value:
        """The value of `x` in this trace.

        Args:
            x: a tracer of this trace or of an open one around it, an array (NumPy's, JAX's, or anything with
                `__array__`), or a Python scalar.

        Raises:
            CompileError: where `x` is a tracer of a trace that is over, or nothing that an array can hold.
        """
        if isinstance(x, Tracer):
            return x.value if x.owner is self else self._capture(x)
        if isinstance(x, (bool, int, float, complex)):
            return self.literal(np.asarray(x))
        return self._lift_array(x)

    def literal(self, array: Array) -> Value:
        """A small array as an equation; the same one for the same elements."""
        dtype = dtype_of_numpy(array.dtype)
        if dtype is None:
            raise CompileError(_no_such_dtype(array.dtype), self.builder.loc)
        if array.ndim == 0 and not dtype.is_complex:
            return self.builder.full(TensorType(dtype, ()), array.item())
        key = (dtype, array.shape, array.tobytes())
        found = self._literals.get(key)
        if found is None:
            found = self._literals[key] = self.builder.constant(array)
        return found

    def _capture(self, tracer: Tracer) -> Value:
        outside = tracer.value
        known = self._captures.get(outside)
        if known is not None:
            return known[1]
        enclosing = self.parent
        while enclosing is not None and enclosing is not tracer.owner:
            enclosing = enclosing.parent
        if enclosing is None or not enclosing.is_open:
            raise escaped(tracer)
        value = Value(outside.type, outside.name)
        self._captures[outside] = (tracer, value)
        return value

    def _lift_array(self, x: object) -> Value:
        array = x if isinstance(x, (np.ndarray, np.generic)) else self._as_array(x)
        if array.size <= LITERAL_LIMIT:
            return self.literal(np.asarray(array))
        array = np.asarray(array)
        dtype = dtype_of_numpy(array.dtype)
        if dtype is None:
            raise CompileError(_no_such_dtype(array.dtype), self.builder.loc)
        first = array.reshape(-1)[:1].tobytes()
        if is_splat(array):
            scalar = self.literal(np.frombuffer(first, array.dtype).reshape(()))
            return self.builder.broadcast_in_dim(scalar, array.shape, ())
        if counts(array):
            return self.builder.iota(TensorType(dtype, array.shape), array.shape.index(array.size))
        root = self
        while root.parent is not None:
            root = root.parent
        tracer = root._large_constant(x, array, TensorType(dtype, array.shape))
        return self.lift(tracer)

    def _as_array(self, x: object) -> Array:
        if not hasattr(x, "__array__"):
            raise CompileError(
                f"expected an array or a number, found {type(x).__name__}; "
                "convert it with np.asarray, or keep it out of array operations",
                self.builder.loc,
            )
        return np.asarray(x)

    def _large_constant(self, source: object, array: Array, type: TensorType) -> Tracer:
        known = self._constants.get(id(source))
        # An array that the function changes between two uses is two constants.
        if known is not None and _has_same_bits(known.copy, array):
            return known.tracer
        copy = array
        # JAX's arrays do not change, and where they lie in the host's memory `array` is a view of one.
        if not isinstance(source, jax.Array) or not array.flags.c_contiguous:
            copy = np.array(array, order="C", copy=True)
            copy.flags.writeable = False
        # A mask that every layer computes anew is one constant.
        content = (type, hashlib.sha256(_bits(copy).data).digest())
        constant = self._contents.get(content)
        if constant is None:
            constant = _LargeConstant(source, copy, self.tracer(Value(type, CONSTANT)))
            self._contents[content] = constant
            self._all_constants.append(constant)
        self._constants[id(source)] = _LargeConstant(source, constant.copy, constant.tracer)
        return constant.tracer


def counts(array: Array) -> bool:
    """Whether an array of integers is 0, 1, 2, ... along one dimension, all others of which are of size 1."""
    is_line = array.dtype.kind in "iu" and array.size in array.shape
    return is_line and bool(np.array_equal(array.reshape(-1), np.arange(array.size)))


def is_splat(array: Array) -> bool:
    """Whether all elements have the same bits."""
    if array.size == 0:
        return False
    words = _element_words(array)
    pieces = range(0, len(words), _PIECE)
    return bool((words[:64] == words[0]).all()) and all(
        bool((words[start : start + _PIECE] == words[0]).all()) for start in pieces
    )


def _has_same_bits(x: Array, y: Array) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and np.array_equal(_words(x), _words(y))


def _words(array: Array) -> Array:
    """The elements' bytes, eight at a time where they come out even: comparing them is as fast as memory."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8 if flat.nbytes % 8 else np.uint64)


def _element_words(array: Array) -> Array:
    """The elements' bits, each as one integer, or as a row of bytes where there is none of its size."""
    size = array.dtype.itemsize
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{size}") if size in (1, 2, 4, 8) else flat.view(np.uint8).reshape(array.size, size)


def _bits(array: Array) -> Array:
    """The elements' bytes, one row an element: -0.0 is not 0.0 in them, and NaN is itself."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)


def _no_such_dtype(dtype: np.dtype[np.generic]) -> str:
    return (
        f"arrays of NumPy dtype {dtype} cannot be compiled; "
        "use booleans, integers, floats up to 64 bits or complex numbers of them"
    )


def escaped(tracer: Tracer) -> CompileError:
    """The error for a tracer that is used after, or outside, the trace that made it."""
    trace, value = tracer.owner, tracer.first_value
    made = next((eqn for eqn in trace.builder.equations if value in eqn.results), None)
    if made is not None:
        origin = f"made by '{made.op.name}'" + (f" at {made.loc.describe()}" if made.loc else "")
    elif value.name:
        origin = f"the parameter {value.name}"
    else:
        origin = "one of its parameters"
    state = "is still being traced elsewhere" if trace.is_open else "has been traced already"
    return CompileError(
        f"a traced {value.type} of '{trace.name}' ({origin}) is used outside of it, but '{trace.name}' {state}; "
        f"return the value from '{trace.name}' instead of keeping it in a global, an attribute or a list",
        user_location(),
    )
