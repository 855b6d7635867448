"""The tracer that NumPy code runs on: NumPy's dispatch protocols, its array's operators, methods and properties.

Each entry notes the user's line on the builder and hands over to the module that knows the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from rematc.compiler.numpy import (
    cumulative,
    indexing,
    joining,
    products,
    reductions,
    selection,
    shaping,
    statistics,
)
from rematc.compiler.numpy.dispatch import call_function
from rematc.compiler.numpy.promotion import kind_of
from rematc.compiler.numpy.ufuncs import apply_ufunc, call_ufunc
from rematc.compiler.trace import Tracer, current_trace, escaped
from rematc.ir.errors import CompileError


def _enter(tracer: Tracer) -> None:
    """Note the user's line. Raises CompileError where no trace is open: `tracer` has escaped its own."""
    trace = current_trace()
    if trace is None:
        raise escaped(tracer)
    trace.enter_line()


def _refuse(tracer: Tracer, message: str) -> NoReturn:
    _enter(tracer)
    trace = current_trace()
    assert trace is not None
    raise CompileError(message, trace.builder.loc)


_Binary = Callable[["NumpyTracer", object], "NumpyTracer"]


def _is_operand(x: object) -> bool:
    return isinstance(x, (Tracer, np.ndarray, int, float, complex, np.generic, list, tuple)) or (
        getattr(x, "__array_ufunc__", True) is not None and hasattr(x, "__array__")
    )


def _operator(ufunc: np.ufunc) -> _Binary:
    def apply(self: NumpyTracer, other: object) -> NumpyTracer:
        if not _is_operand(other):
            return NotImplemented  # type: ignore[no-any-return]  # Python's protocol
        _enter(self)
        return _weakened(ufunc, self, other)

    return apply


def _reflected(ufunc: np.ufunc) -> _Binary:
    def apply(self: NumpyTracer, other: object) -> NumpyTracer:
        if not _is_operand(other):
            return NotImplemented  # type: ignore[no-any-return]  # Python's protocol
        _enter(self)
        return _weakened(ufunc, other, self)

    return apply


def _weakened(ufunc: np.ufunc, x: object, y: object) -> NumpyTracer:
    """The ufunc as an operator: of two Python scalars it makes a Python scalar, where the ufunc makes an array."""
    result = call_ufunc(ufunc, x, y)
    assert isinstance(result, NumpyTracer)
    if _is_weak(x) and _is_weak(y):
        result.weak = True
    return result


def _is_weak(x: object) -> bool:
    if isinstance(x, Tracer):
        return x.weak
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def _unary(ufunc: np.ufunc) -> Callable[[NumpyTracer], Tracer]:
    def apply(self: NumpyTracer) -> Tracer:
        _enter(self)
        result = call_ufunc(ufunc, self)
        assert isinstance(result, Tracer)
        result.weak = self.weak
        return result

    return apply


def _method(function: Callable[..., object]) -> Callable[..., object]:
    """A method with the parameters of the function that it is."""

    def apply(self: NumpyTracer, *arguments: object, **options: object) -> object:
        _enter(self)
        return function(self, *arguments, **options)

    apply.__name__ = function.__name__
    return apply


def _traced_method(function: Callable[..., object]) -> Callable[..., Tracer]:
    return _method(function)  # type: ignore[return-value]  # these functions make tracers


class NumpyTracer(Tracer):
    """A traced array that answers NumPy's dispatch protocols."""

    __slots__ = ()
    __array_priority__ = 1000

    # -- NumPy's protocols ---------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        _enter(self)
        return apply_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self,
        function: Callable[..., object],
        types: object,
        arguments: tuple[object, ...],
        options: dict[str, object],
    ) -> object:
        _enter(self)
        return call_function(function, arguments, options)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        _refuse(
            self,
            f"a traced {self.value.type} was asked for its elements, which it has only when compiled: by np.array, "
            "np.asarray or np.full, a library that is not NumPy, or an assignment into a NumPy array; use "
            "rematc.numpy.asarray or full, or make the array from its parts (np.stack, np.concatenate, np.where)",
        )

    # -- operators -----------------------------------------------------------------------------------------------

    __add__, __radd__ = _operator(np.add), _reflected(np.add)
    __sub__, __rsub__ = _operator(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _operator(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _operator(np.divide), _reflected(np.divide)
    __floordiv__, __rfloordiv__ = _operator(np.floor_divide), _reflected(np.floor_divide)
    __mod__, __rmod__ = _operator(np.remainder), _reflected(np.remainder)
    __matmul__, __rmatmul__ = _operator(np.matmul), _reflected(np.matmul)
    __and__, __rand__ = _operator(np.bitwise_and), _reflected(np.bitwise_and)
    __or__, __ror__ = _operator(np.bitwise_or), _reflected(np.bitwise_or)
    __xor__, __rxor__ = _operator(np.bitwise_xor), _reflected(np.bitwise_xor)
    __lshift__, __rlshift__ = _operator(np.left_shift), _reflected(np.left_shift)
    __rshift__, __rrshift__ = _operator(np.right_shift), _reflected(np.right_shift)
    __lt__, __le__ = _operator(np.less), _operator(np.less_equal)
    __gt__, __ge__ = _operator(np.greater), _operator(np.greater_equal)
    __eq__, __ne__ = _operator(np.equal), _operator(np.not_equal)  # type: ignore[assignment]  # arrays, as NumPy's
    __neg__, __pos__ = _unary(np.negative), _unary(np.positive)
    __abs__, __invert__ = _unary(np.absolute), _unary(np.invert)

    def __pow__(self, other: object, modulus: None = None) -> NumpyTracer:
        return _power(self, other) if _is_operand(other) else NotImplemented

    def __rpow__(self, other: object, modulus: None = None) -> NumpyTracer:
        return _reflected(np.power)(self, other)

    def __divmod__(self, other: object) -> tuple[Tracer, Tracer]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Tracer, Tracer]:
        return _reflected(np.floor_divide)(self, other), _reflected(np.remainder)(self, other)

    # -- what needs the elements ---------------------------------------------------------------------------------

    def __bool__(self) -> bool:  # noqa: PLE0304  # raises
        _refuse(
            self,
            f"a traced {self.value.type} is used as a Python bool (if, while, and, or, not), but its value is not "
            "known while tracing; choose with np.where(condition, x, y), or pass the argument as static "
            "(static_argnums)",
        )

    def __int__(self) -> NoReturn:
        self._refuse_number("int", "astype(int)")

    def __float__(self) -> NoReturn:
        self._refuse_number("float", "astype(float)")

    def __complex__(self) -> NoReturn:
        self._refuse_number("complex", "astype(complex)")

    def __index__(self) -> int:  # noqa: PLE0305  # raises
        _refuse(
            self,
            f"a traced {self.value.type} is used where Python needs an integer (range, a shape, an index into a list), "
            "but its value is not known while tracing; pass it as static (static_argnums), or index an array with it",
        )

    def item(self, *arguments: object) -> NoReturn:
        """Refused: the element is not known while tracing."""
        self._refuse_number("Python number", "x[...] or reshape(())")

    def tolist(self) -> NoReturn:
        """Refused: the elements are not known while tracing."""
        self._refuse_number("list", "the array itself")

    def _refuse_number(self, target: str, instead: str) -> NoReturn:
        _refuse(
            self,
            f"a traced {self.value.type} is converted to a {target} (or assigned into a NumPy array), but its value is "
            f"not known while tracing; keep it an array ({instead}), or make the array with np.stack or "
            "rematc.numpy.at_set",
        )

    def __setitem__(self, index: object, value: object) -> NoReturn:
        _refuse(
            self,
            "a traced array cannot be assigned to; make a new one: x = rematc.numpy.at_set(x, index, value) for "
            "x[index] = value, at_add for x[index] += value, with index as in x[index] "
            "(np.s_[1:, ::2] writes slices)",
        )

    def __delitem__(self, index: object) -> NoReturn:
        _refuse(self, "elements of an array cannot be deleted; use np.delete(x, index)")

    def __contains__(self, item: object) -> NoReturn:
        _refuse(self, "`in` of a traced array needs its elements; use np.any(x == item)")

    # -- elements and sizes --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.ndim:
            _refuse(self, "a traced scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tracer]:
        _enter(self)
        if not self.ndim:
            _refuse(self, "a traced scalar cannot be iterated over")
        return iter(joining.unstack(self))

    def __getitem__(self, index: object) -> Tracer:
        _enter(self)
        return indexing.getitem(self, index)

    @property
    def T(self) -> Tracer:  # noqa: N802  # NumPy's name
        """The dimensions in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Tracer:  # noqa: N802  # NumPy's name
        """The last two dimensions exchanged."""
        _enter(self)
        return shaping.matrix_transpose(self)

    @property
    def real(self) -> Tracer:
        """The real part."""
        _enter(self)
        return selection.real(self)

    @property
    def imag(self) -> Tracer:
        """The imaginary part."""
        _enter(self)
        return selection.imag(self)

    @property
    def flat(self) -> Iterator[Tracer]:
        """An iterator over the elements."""
        _enter(self)
        return iter(joining.unstack(shaping.ravel(self)))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.value.type.bytes

    # -- methods -------------------------------------------------------------------------------------------------

    def reshape(self, *shape: object, order: str = "C", copy: object = None) -> Tracer:
        """As np.reshape; the sizes in a tuple or one by one."""
        _enter(self)
        return shaping.reshape(self, shape[0] if len(shape) == 1 else shape, order)

    def transpose(self, *axes: object) -> Tracer:
        """As np.transpose; the axes in a tuple or one by one."""
        _enter(self)
        return shaping.transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def astype(self, dtype: object, *_: object, **__: object) -> Tracer:
        """The array in another dtype."""
        _enter(self)
        return shaping.astype(self, dtype)

    sum = _traced_method(reductions.sum)
    prod = _traced_method(reductions.prod)
    max = _traced_method(reductions.max)
    min = _traced_method(reductions.min)
    all = _traced_method(reductions.all)
    any = _traced_method(reductions.any)
    argmax = _traced_method(reductions.argmax)
    argmin = _traced_method(reductions.argmin)
    mean = _traced_method(statistics.mean)
    var = _traced_method(statistics.var)
    std = _traced_method(statistics.std)
    cumsum = _traced_method(cumulative.cumsum)
    cumprod = _traced_method(cumulative.cumprod)
    dot = _traced_method(products.dot)
    clip = _traced_method(selection.clip)
    round = _traced_method(selection.round_)
    ravel = _traced_method(shaping.ravel)
    flatten = _traced_method(shaping.ravel)
    squeeze = _traced_method(shaping.squeeze)
    swapaxes = _traced_method(shaping.swapaxes)
    diagonal = _traced_method(shaping.diagonal)
    trace = _traced_method(shaping.trace)
    copy = _traced_method(shaping.copy)
    repeat = _traced_method(joining.repeat)
    take = _traced_method(indexing.take)
    compress = _method(lambda self, condition, axis=None: indexing.compress(condition, self, axis))

    def conj(self) -> Tracer:
        """The complex conjugate."""
        return _unary(np.conjugate)(self)

    conjugate = conj

    def fill(self, value: object) -> NoReturn:
        """Refused: it writes into the array."""
        _refuse(self, "a traced array cannot be written to; use np.full_like(x, value)")

    def sort(self, *_: object, **__: object) -> NoReturn:
        """Refused: it writes into the array."""
        _refuse(self, "x.sort() writes into the array; a traced array cannot be written to, nor sorted yet")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: object) -> Tracer:
        return self


def _power(base: NumpyTracer, exponent: object) -> NumpyTracer:
    _enter(base)
    kind = kind_of(base)
    # Python's own rule for its numbers: an integer to a negative power is a float.
    if kind is int and isinstance(exponent, int) and exponent < 0:
        return _weakened(np.power, base * 1.0, exponent)
    return _weakened(np.power, base, exponent)
