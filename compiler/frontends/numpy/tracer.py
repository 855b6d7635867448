"""The tracer that NumPy code runs on: NumPy's dispatch protocols, its array's operators, methods and properties.

Each entry notes the user's line on the builder and hands over to the module that knows the function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from rematc.compiler.frontends.numpy import float_bits, indexing, joining, reshaping, selection, shaping, updates
from rematc.compiler.frontends.numpy.dispatch import call_function
from rematc.compiler.frontends.numpy.flat import Flat
from rematc.compiler.frontends.numpy.frames import is_assignment
from rematc.compiler.frontends.numpy.namespace import MODULE
from rematc.compiler.frontends.numpy.operands import dispatching, enter
from rematc.compiler.frontends.numpy.operators import (
    in_place,
    operator,
    power,
    reflected,
    unary,
)
from rematc.compiler.frontends.numpy.refusals import (
    as_bool,
    as_elements,
    as_index,
    as_key,
    as_number,
    refuse,
    refuse_number,
    refused,
    refused_attribute,
)
from rematc.compiler.frontends.numpy.ufuncs import apply_ufunc
from rematc.compiler.tracing.trace import Tracer

_NO_MEMORY = "of a traced array is not known: where an array lies in memory is settled when the program is compiled"
_NO_ELEMENTS = "needs the elements, which a traced array has only when compiled"


def _method(function: Callable[..., object]) -> Callable[..., Tracer]:
    """The method that is NumPy's function of the array and the same further parameters."""

    def apply(self: NumpyTracer, *arguments: object, **options: object) -> Tracer:
        enter(self)
        return call_function(function, (self, *arguments), options)  # type: ignore[return-value]  # these make tracers

    apply.__name__ = function.__name__
    return apply


class NumpyTracer(Tracer):
    """A traced array that answers NumPy's dispatch protocols."""

    __slots__ = ()
    __array_priority__ = 1000

    # -- NumPy's protocols ---------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        enter(self)
        return apply_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self,
        function: Callable[..., object],
        types: object,
        arguments: tuple[object, ...],
        options: dict[str, object],
    ) -> object:
        enter(self)
        return call_function(function, arguments, options)

    # -- operators -----------------------------------------------------------------------------------------------

    __add__, __radd__ = operator(np.add), reflected(np.add)
    __sub__, __rsub__ = operator(np.subtract), reflected(np.subtract)
    __mul__, __rmul__ = operator(np.multiply), reflected(np.multiply)
    __truediv__, __rtruediv__ = operator(np.divide), reflected(np.divide)
    __floordiv__, __rfloordiv__ = operator(np.floor_divide), reflected(np.floor_divide)
    __mod__, __rmod__ = operator(np.remainder), reflected(np.remainder)
    __matmul__, __rmatmul__ = operator(np.matmul), reflected(np.matmul)
    __and__, __rand__ = operator(np.bitwise_and), reflected(np.bitwise_and)
    __or__, __ror__ = operator(np.bitwise_or), reflected(np.bitwise_or)
    __xor__, __rxor__ = operator(np.bitwise_xor), reflected(np.bitwise_xor)
    __lshift__, __rlshift__ = operator(np.left_shift), reflected(np.left_shift)
    __rshift__, __rrshift__ = operator(np.right_shift), reflected(np.right_shift)
    __lt__, __le__ = operator(np.less), operator(np.less_equal)
    __gt__, __ge__ = operator(np.greater), operator(np.greater_equal)
    __eq__, __ne__ = operator(np.equal), operator(np.not_equal)  # type: ignore[assignment]  # arrays, as NumPy's
    __neg__, __pos__ = unary(np.negative), unary(np.positive)
    __abs__, __invert__ = unary(np.absolute), unary(np.invert)

    __iadd__, __isub__, __imul__ = in_place(np.add), in_place(np.subtract), in_place(np.multiply)
    __itruediv__, __ifloordiv__ = in_place(np.divide), in_place(np.floor_divide)
    __imod__, __imatmul__, __ipow__ = in_place(np.remainder), in_place(np.matmul), in_place(np.power)
    __iand__, __ior__, __ixor__ = in_place(np.bitwise_and), in_place(np.bitwise_or), in_place(np.bitwise_xor)
    __ilshift__, __irshift__ = in_place(np.left_shift), in_place(np.right_shift)

    __pow__, __rpow__ = power, reflected(np.power)

    def __divmod__(self, other: object) -> tuple[Tracer, Tracer]:
        return operator(np.floor_divide)(self, other), operator(np.remainder)(self, other)

    def __rdivmod__(self, other: object) -> tuple[Tracer, Tracer]:
        return reflected(np.floor_divide)(self, other), reflected(np.remainder)(self, other)

    # -- what needs the elements ---------------------------------------------------------------------------------

    __bool__, __index__ = as_bool, as_index
    __int__, __trunc__ = as_number("int", "astype(int)"), as_number("int", "np.trunc(x)")
    __floor__, __ceil__ = as_number("int", "np.floor(x)"), as_number("int", "np.ceil(x)")
    __float__, __complex__ = as_number("float", "astype(float)"), as_number("complex", "astype(complex)")
    __bytes__ = as_number("bytes", "the array itself")
    __array__ = as_elements
    __hash__ = as_key  # type: ignore[assignment]  # raises, with a way out
    __delitem__ = refused("elements of an array cannot be deleted; use np.delete(x, index)")
    __contains__ = refused("`in` of a traced array needs its elements; use np.any(x == item)")
    item = as_number("Python number", "x[...] or reshape(())")
    tolist = as_number("list", "the array itself")

    def __format__(self, spec: str) -> str:
        if spec:
            refuse(
                self,
                f"a traced {self.value.type} is formatted with {spec!r}, but its value is not known while tracing; "
                "print it with rematc.debug.print, or return it and format the result",
            )
        return str(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse(self, f"a traced {self.value.type} cannot be pickled or stored; return it and store the result")

    def __round__(self, ndigits: int | None = None) -> Tracer:
        """As of NumPy's scalars, round(x, n). Without n they become Python integers, which needs the value."""
        if self.ndim:
            refuse(self, f"a traced {self.value.type} is rounded by Python, which takes no arrays; use np.round(x, n)")
        if ndigits is None:
            refuse_number(self, "int", "np.round(x), or round(x, 0)")
        enter(self)
        return selection.round_(self, ndigits)

    def __setitem__(self, index: object, value: object) -> None:
        enter(self)
        if updates.is_part(self, value) and not is_assignment(sys._getframe(1)):
            refuse(
                self,
                "rows of a traced array are exchanged by a function that is not NumPy's own (np.random.shuffle), which "
                "sees each of them change while it reads the other; take them in another order: "
                "x[rematc.random.permutation(key, len(x))]",
            )
        updates.setitem(self, index, value)

    # -- elements and sizes --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.ndim:
            refuse(self, "a traced scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tracer]:
        enter(self)
        if not self.ndim:
            refuse(self, "a traced scalar cannot be iterated over")
        return iter(joining.unstack(self))

    def __getitem__(self, index: object) -> Tracer:
        enter(self)
        return indexing.getitem(self, index)

    @property
    def T(self) -> Tracer:  # noqa: N802  # NumPy's name
        """The dimensions in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Tracer:  # noqa: N802  # NumPy's name
        """The last two dimensions exchanged."""
        enter(self)
        return shaping.matrix_transpose(self)

    @property
    def real(self) -> Tracer:
        """The real part."""
        enter(self)
        return selection.real(self)

    @real.setter
    def real(self, value: object) -> None:
        self.real[...] = value  # type: ignore[index]  # a NumPy tracer

    @property
    def imag(self) -> Tracer:
        """The imaginary part."""
        enter(self)
        return selection.imag(self)

    @imag.setter
    def imag(self, value: object) -> None:
        self.imag[...] = value  # type: ignore[index]  # a NumPy tracer

    @property
    def flat(self) -> Flat:
        """The elements in C order."""
        return Flat(self)

    @flat.setter
    def flat(self, value: object) -> None:
        self.flat[...] = value

    @property
    def device(self) -> str:
        """Where NumPy's arrays are; the compiled program's device is chosen when it is called."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: object = None) -> Tracer:
        """The array itself: there is no other device while tracing."""
        if device != "cpu":
            refuse(self, f"a traced array has the device 'cpu', got {device!r}; devices are chosen when compiling")
        return self

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
        enter(self)
        return reshaping.reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)

    def transpose(self, *axes: object) -> Tracer:
        """As np.transpose; the axes in a tuple or one by one."""
        enter(self)
        return shaping.transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def astype(
        self, dtype: object, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tracer:
        """The array in another dtype."""
        enter(self)
        return shaping.astype(self, dtype, order, casting, subok, copy)

    sum = _method(np.sum)
    prod = _method(np.prod)
    max = _method(np.max)
    min = _method(np.min)
    all = _method(np.all)
    any = _method(np.any)
    argmax = _method(np.argmax)
    argmin = _method(np.argmin)
    mean = _method(np.mean)
    var = _method(np.var)
    std = _method(np.std)
    cumsum = _method(np.cumsum)
    cumprod = _method(np.cumprod)
    argsort = _method(np.argsort)
    argpartition = _method(np.argpartition)
    searchsorted = _method(np.searchsorted)
    dot = _method(np.dot)
    clip = _method(np.clip)
    round = _method(np.round)
    ravel = _method(np.ravel)
    squeeze = _method(np.squeeze)
    swapaxes = _method(np.swapaxes)
    diagonal = _method(np.diagonal)
    trace = _method(np.trace)
    repeat = _method(np.repeat)
    take = _method(np.take)
    choose = _method(np.choose)

    def flatten(self, order: str = "C") -> Tracer:
        """A copy in one dimension."""
        enter(self)
        return reshaping.flatten(self, order)

    def copy(self, order: str = "C") -> Tracer:
        """An array of its own."""
        enter(self)
        if not self.ndim and self.place is None:
            return shaping.astype(self, self.dtype)
        return shaping.copy(self, order)

    def compress(self, condition: object, axis: object = None, out: object = None) -> Tracer:
        """As np.compress."""
        kept: Tracer = dispatching.compress(condition, self, axis, out)
        return kept

    def conj(self) -> Tracer:
        """The complex conjugate; of real numbers the array itself."""
        return unary(np.conjugate)(self) if self.value.type.dtype.is_complex else self

    conjugate = conj

    def fill(self, value: object) -> None:
        """Write one number everywhere."""
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> None:
        """Sort in place."""
        self[...] = np.sort(self, axis, kind, order, stable=stable)

    def partition(self, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None) -> None:
        """Write the elements in the order that np.partition gives them."""
        self[...] = np.partition(self, kth, axis, kind, order)

    put = refused("x.put is not supported on traced arrays; write x[index] = value, or x.flat[index] = value")
    resize = refused("x.resize changes the array's size, which a traced function cannot; use x.reshape or np.pad")
    nonzero = refused("the shape of x.nonzero() depends on data; use rematc.numpy.nonzero(x, size=n) or np.where")

    strides = refused_attribute(f"x.strides {_NO_MEMORY}; sizes are x.shape, x.itemsize and x.nbytes")
    flags = refused_attribute(f"x.flags {_NO_MEMORY}")
    data = refused_attribute(f"x.data {_NO_MEMORY}; return the array and read the result's")
    ctypes = refused_attribute(f"x.ctypes {_NO_MEMORY}; return the array and read the result's")
    base = refused_attribute(f"x.base {_NO_MEMORY}")
    tobytes = refused(f"x.tobytes {_NO_ELEMENTS}; return the array and take the result's")
    tofile = refused(f"x.tofile {_NO_ELEMENTS}; return the array and write the result")
    dump = refused(f"x.dump {_NO_ELEMENTS}; return the array and store the result")
    dumps = refused(f"x.dumps {_NO_ELEMENTS}; return the array and store the result")
    byteswap = refused("x.byteswap is not supported on traced arrays; swap the bytes of the argument before the call")
    getfield = refused("x.getfield: traced arrays have no fields; read other dtypes with x.view(dtype)")
    setfield = refused("x.setfield: traced arrays have no fields; write x[index] = value")
    setflags = refused(f"x.setflags {_NO_MEMORY}; what is not to be written can be copied: x.copy()")

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.type.shape

    @shape.setter
    def shape(self, value: object) -> None:
        refuse(self, "x.shape of a traced array cannot be set; make a new array: x.reshape(shape)")

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self._value.type.dtype.numpy

    @dtype.setter
    def dtype(self, value: object) -> None:
        refuse(self, "x.dtype of a traced array cannot be set; make a new array: x.view(dtype)")

    def view(self, dtype: object = None) -> Tracer:
        """The same bits read as another dtype of as many bits."""
        enter(self)
        return float_bits.view(self, dtype)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The namespace of the Python array API: rematc.numpy.

        With SCIPY_ARRAY_API=1, SciPy's functions that support the standard compute in it.
        """
        return MODULE

    def __copy__(self) -> Tracer:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Tracer:
        return self.copy()
