"""Convolutions: windows of the input multiplied by a kernel and summed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import to_front
from rematc.ir.ops.dot import PRECISIONS, check_widening
from rematc.ir.ops.elementwise import NUMBERS, check_arity, check_kind, widened
from rematc.ir.ops.window_dimension import Pairs, WindowDimension, paddings, window_dimensions, windows_of
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing, sum_dtype
from rematc.ir.types import DType, TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value, known


@dataclass(frozen=True, slots=True)
class ConvolutionDimensions:
    """Which dimension of each array is what (StableHLO's dimension numbers).

    Attributes:
        input: batch, features, then the spatial dimensions.
        kernel: output features, input features, then the spatial dimensions.
        output: batch, features, then the spatial dimensions.
    """

    input: tuple[int, ...]
    kernel: tuple[int, ...]
    output: tuple[int, ...]

    @staticmethod
    def features_last(spatial: int) -> ConvolutionDimensions:
        """Batch, `spatial` dimensions, features; of kernels spatial, input and output features: XLA:CPU's own order."""
        data = (0, spatial + 1, *range(1, spatial + 1))
        return ConvolutionDimensions(data, (spatial + 1, spatial, *range(spatial)), data)


@register
@dataclass(frozen=True, slots=True)
class Convolution(Op):
    """Each window of the input times the kernel, summed over positions and input features; bilinear.

    For image n and output feature f, output(n, f, o) is the sum over input features c and positions k of
    input(n, c, o * stride + k * rhs_dilation - low) kernel(f, c, k): the kernel is not turned around, unless
    `window_reversal` says so. With groups, the features of the input (`feature_group_count`) or its batch
    (`batch_group_count`), and the kernel's output features, are cut into as many parts; each part of the input meets
    its part of the kernel, and the results are joined along the output's features.

    Attributes:
        window_strides: distance of two windows, one entry a spatial dimension, as in all that follow.
        padding: zeros before and after the input; negative numbers cut off.
        lhs_dilation: distance of two elements of the input, with zeros between.
        rhs_dilation: distance of two elements of the kernel.
        window_reversal: whether the kernel is turned around.
        dimensions: which dimension is what.
        result_dtype: element type of the sums and the result; None for the operands'.
        precision: how exactly a device with several kinds of product computes: DEFAULT, HIGH or HIGHEST.
    """

    name = "convolution"
    is_product: ClassVar[bool] = True
    window_strides: tuple[int, ...]
    padding: Pairs
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    window_reversal: tuple[bool, ...]
    dimensions: ConvolutionDimensions
    feature_group_count: int = 1
    batch_group_count: int = 1
    result_dtype: DType | None = None
    precision: str = "DEFAULT"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        x, kernel = operands
        self._check_element_types(x, kernel)
        self._check_ranks(x, kernel)
        self._check_groups(x, kernel)
        batch, features = x.shape[self.dimensions.input[0]], kernel.shape[self.dimensions.kernel[0]]
        counts = [window.count(n) for window, n in self._windows(x, kernel)]
        shape = [0] * x.rank
        for dimension, size in zip(
            self.dimensions.output, [batch // self.batch_group_count, features, *counts], strict=True
        ):
            shape[dimension] = size
        return (TensorType(self.result_dtype or x.dtype, tuple(shape), x.on_host),)

    def moved(self, side: int, shape: Sequence[int]) -> tuple[int, ...]:
        """The dimensions of one operand with its features last, as XLA:CPU takes them; () where they stand so."""
        own = ConvolutionDimensions.features_last(len(self.window_strides))
        places, found = (own.input, self.dimensions.input) if side == 0 else (own.kernel, self.dimensions.kernel)
        dimension_at = dict(zip(places, found, strict=True))
        order = [dimension_at[place] for place in range(len(found)) if shape[dimension_at[place]] > 1]
        return () if order == sorted(order) else tuple(order)

    def _check_element_types(self, x: TensorType, kernel: TensorType) -> None:
        check_kind(self, x, NUMBERS)
        if x.dtype is not kernel.dtype:
            raise TypeMismatchError(
                f"'{self.name}' takes operands of one element type, got {x} and {kernel}; convert one"
            )
        if self.result_dtype is not None:
            check_widening(self, x, kernel, self.result_dtype)
        if self.precision not in PRECISIONS:
            raise TypeMismatchError(f"'{self.name}' takes precision {', '.join(PRECISIONS)}, got {self.precision!r}")

    def _check_ranks(self, x: TensorType, kernel: TensorType) -> None:
        if x.rank != kernel.rank or x.rank < 2:
            raise TypeMismatchError(f"'{self.name}' takes operands of one rank, at least 2, got {x} and {kernel}")
        named = (
            ("input", self.dimensions.input),
            ("kernel", self.dimensions.kernel),
            ("output", self.dimensions.output),
        )
        for what, dimensions in named:
            if sorted(dimensions) != list(range(x.rank)):
                raise TypeMismatchError(
                    f"'{self.name}' of {x} takes each of 0 to {x.rank - 1} once as {what} dimensions, "
                    f"got {list(dimensions)}"
                )
        if len(self.window_reversal) != x.rank - 2:
            raise TypeMismatchError(
                f"'{self.name}' of {x} takes {x.rank - 2} entries of window_reversal, got {list(self.window_reversal)}"
            )

    def _check_groups(self, x: TensorType, kernel: TensorType) -> None:
        by_feature, by_batch = self.feature_group_count, self.batch_group_count
        if min(by_feature, by_batch) != 1 or max(by_feature, by_batch) < 1:
            raise TypeMismatchError(
                f"'{self.name}' takes groups of features or of the batch, got {by_feature} and {by_batch}; "
                "expected numbers of at least 1, and one of them 1"
            )
        batch, features = [x.shape[d] for d in self.dimensions.input[:2]]
        outputs, inputs = [kernel.shape[d] for d in self.dimensions.kernel[:2]]
        for what, size, count in (
            ("input features", features, by_feature),
            ("input batch", batch, by_batch),
            ("output features", outputs, by_feature * by_batch),
        ):
            if size % count:
                raise TypeMismatchError(
                    f"'{self.name}' of {x} and {kernel}: {count} groups do not divide the {what}, {size}"
                )
        if inputs * by_feature != features:
            raise TypeMismatchError(
                f"'{self.name}' of {x} and {kernel}: the input has {features} features in {by_feature} groups, "
                f"so the kernel takes {features // by_feature} input features, got {inputs}"
            )

    def _windows(self, x: TensorType, kernel: TensorType) -> list[tuple[WindowDimension, int]]:
        """For each spatial dimension, how the windows lie, and the input's size."""
        dimensions = window_dimensions(
            self,
            [kernel.shape[d] for d in self.dimensions.kernel[2:]],
            self.window_strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
        )
        return list(zip(dimensions, [x.shape[d] for d in self.dimensions.input[2:]], strict=True))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        dtype = self.result_dtype.numpy if self.result_dtype else operands[0].dtype
        wide = widened(np.empty((), dtype)).dtype
        x = operands[0].astype(wide).transpose(self.dimensions.input)
        kernel = operands[1].astype(wide).transpose(self.dimensions.kernel)
        kernel = np.flip(kernel, tuple([2 + i for i, turned in enumerate(self.window_reversal) if turned]))
        spatial = window_dimensions(
            self, kernel.shape[2:], self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation
        )
        by_feature, by_batch = self.feature_group_count, self.batch_group_count
        groups = by_feature * by_batch
        batch, features = x.shape[0] // by_batch, x.shape[1] // by_feature
        outputs, taps = kernel.shape[0] // groups, features * math.prod(kernel.shape[2:])

        windows = windows_of(x, spatial, np.zeros((), wide))
        counts = windows.shape[2 : 2 + len(spatial)]
        # [batch groups, batch, feature groups, features, *counts, *taps]: groups to the front, features to the taps.
        windows = windows.reshape(by_batch, batch, by_feature, features, *windows.shape[2:])
        windows = np.moveaxis(windows, (2, 3), (1, 3 + len(spatial)))
        left = windows.reshape(groups, batch * math.prod(counts), taps)
        right = kernel.reshape(groups, outputs, taps)
        with np.errstate(all="ignore"):
            products = np.matmul(left, right.transpose(0, 2, 1))
        result = np.moveaxis(products.reshape(groups, batch, *counts, outputs), (0, -1), (1, 2))
        result = result.reshape(batch, groups * outputs, *counts)
        return (np.moveaxis(result, range(result.ndim), self.dimensions.output).astype(dtype, order="C"),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, kernel), (tx, tk) = primals, tangents
        from_x = None if tx is None else b.emit1(self, tx, kernel)
        from_kernel = None if tk is None else b.emit1(self, x, tk)
        if from_x is None or from_kernel is None:
            return (from_kernel if from_x is None else from_x,)
        return (b.add(from_x, from_kernel),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, kernel) = cts, operands
        if ct is None:
            return (None, None)
        if isinstance(x, LinearOperand):
            kernel = known(kernel, "a product of two tangents is not linear")
            return (self._ct_of_input(b, ct, x.type, kernel), None)
        return (None, self._ct_of_kernel(b, ct, x, kernel.type))

    def _ct_of_input(self, b: Emitter, ct: Value, x: TensorType, kernel: Value) -> Value:
        """The cotangent convolved with the kernel turned around, its input and output features exchanged.

        With groups, each group of output features gives its group of input features (or of the batch).
        """
        if not ct.type.size or not x.size:
            return b.zeros(x)
        dimensions, dtype = self.dimensions, ct.type.dtype
        groups = self.feature_group_count * self.batch_group_count
        windows = [window.over_results(n) for window, n in self._windows(x, kernel.type)]
        # Turned by an op of its own: XLA on CPUs has no fast kernel for reversed windows.
        forwards = [d for d, turned in zip(dimensions.kernel[2:], self.window_reversal, strict=True) if not turned]
        turned = _move_groups(b, b.reverse(b.convert(kernel, dtype), forwards), groups, *dimensions.kernel[:2])
        op = Convolution(
            tuple([window.stride for window in windows]),
            paddings(windows),
            tuple([window.base_dilation for window in windows]),
            self.rhs_dilation,
            (False,) * len(windows),
            ConvolutionDimensions(dimensions.output, _exchanged(dimensions.kernel), dimensions.input),
            feature_group_count=groups,
            precision=self.precision,
        )
        result = b.emit1(op, ct, turned)
        if self.batch_group_count > 1:
            result = _move_groups(b, result, groups, dimensions.input[1], dimensions.input[0])
        return b.convert(result, x.dtype)

    def _ct_of_kernel(self, b: Emitter, ct: Value, x: Value, kernel: TensorType) -> Value:
        """The input convolved with the cotangent, batch and features exchanged: groups of features become groups of the
        batch and the other way round.
        """
        if not ct.type.size or not x.type.size:
            return b.zeros(kernel)
        dimensions = self.dimensions
        windows = [window.over_positions(n) for window, n in self._windows(x.type, kernel)]
        op = Convolution(
            tuple([window.stride for window in windows]),
            paddings(windows),
            self.lhs_dilation,
            tuple([window.dilation for window in windows]),
            (False,) * len(windows),
            ConvolutionDimensions(
                _exchanged(dimensions.input), _exchanged(dimensions.output), _exchanged(dimensions.kernel)
            ),
            feature_group_count=self.batch_group_count,
            batch_group_count=self.feature_group_count,
            precision=self.precision,
        )
        result = b.emit1(op, b.convert(x, ct.type.dtype), ct)
        turned = [d for d, is_reversed in zip(dimensions.kernel[2:], self.window_reversal, strict=True) if is_reversed]
        return b.convert(b.reverse(result, turned), kernel.dtype)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        """The batch becomes part of the images, or of the kernel's output features; of two batched operands, groups."""
        (x, kernel), (has_x, has_kernel) = batch.operands, batch.is_batched
        of_input, of_kernel, of_output = self.dimensions.input, self.dimensions.kernel, self.dimensions.output
        by_feature, by_batch = self.feature_group_count, self.batch_group_count
        if not has_kernel:
            op, inner, groups = self, of_output[0], 1
            x = _merge(b, x, of_input[0], by_batch)
        elif not has_x:
            op, inner, groups = self, of_output[1], by_feature * by_batch
            kernel = _merge(b, kernel, of_kernel[0], groups)
        else:
            inner, groups = of_output[1], 1
            is_by_batch = by_batch > 1
            x, kernel = _merge(b, x, of_input[0 if is_by_batch else 1], 1), _merge(b, kernel, of_kernel[0], 1)
            counts = (by_feature, by_batch * batch.size) if is_by_batch else (by_feature * batch.size, by_batch)
            op = replace(self, feature_group_count=counts[0], batch_group_count=counts[1])
        return (_split(b, b.emit1(op, x, kernel), inner, groups, batch.size),)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        of_input, of_kernel, of_output = self.dimensions.input, self.dimensions.kernel, self.dimensions.output
        found = []
        if self.batch_group_count == 1:
            found.append(Slicing((of_input[0], None), (of_output[0],)))
        if self.batch_group_count == self.feature_group_count == 1:
            found.append(Slicing((None, of_kernel[0]), (of_output[1],)))
            found.append(Slicing((of_input[1], of_kernel[1]), (None,)))
        return tuple(found)

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        if not part.slicing.is_sum:
            return b.emit(self, *operands)
        return b.emit(replace(self, result_dtype=sum_dtype(self.result_dtype or operands[0].type.dtype)), *operands)

    def flops(self, operands: Types, results: Types) -> int:
        """Products with padding and with zeros between elements do not count, so the transposes cost as much."""
        x, kernel = operands
        reads = math.prod([window.reads(n) for window, n in self._windows(x, kernel)])
        batch = x.shape[self.dimensions.input[0]] // self.batch_group_count
        outputs, inputs = [kernel.shape[d] for d in self.dimensions.kernel[:2]]
        return 2 * batch * outputs * inputs * reads


def _exchanged(dimensions: tuple[int, ...]) -> tuple[int, ...]:
    """The first two entries exchanged."""
    return (dimensions[1], dimensions[0], *dimensions[2:])


def _move_groups(b: Emitter, x: Value, groups: int, source: int, target: int) -> Value:
    """`x` with the outer part of its dimension `source`, of size `groups`, made the outer part of `target`."""
    if groups == 1:
        return x
    shape = list(x.type.shape)
    shape[source] //= groups
    split = b.reshape(x, [*shape[:source], groups, *shape[source:]])
    order = [d for d in range(len(shape) + 1) if d != source]
    order.insert(target, source)
    shape[target] *= groups
    return b.reshape(b.transpose(split, order), shape)


def _merge(b: Emitter, x: Value, dimension: int, groups: int) -> Value:
    """`x` with its first dimension, the batch, merged into another: under the groups that this is cut into."""
    size, *shape = x.type.shape
    before, n, after = shape[:dimension], shape[dimension], shape[dimension + 1 :]
    cut = b.reshape(x, [size, *before, groups, n // groups, *after])
    place = dimension + 1
    order = [*range(1, place + 1), 0, *range(place + 1, cut.type.rank)]
    return b.reshape(b.transpose(cut, order), [*before, size * n, *after])


def _split(b: Emitter, x: Value, dimension: int, groups: int, size: int) -> Value:
    """What `_merge` merged, apart again: the batch is the first dimension."""
    shape = x.type.shape
    before, n, after = shape[:dimension], shape[dimension] // size, shape[dimension + 1 :]
    cut = b.reshape(x, [*before, groups, size, n // groups, *after])
    return b.reshape(to_front(b, cut, dimension + 1), [size, *before, n, *after])
