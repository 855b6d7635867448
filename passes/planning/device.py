"""Devices as rooflines: how long a kernel takes, from its floating-point operations and the bytes that it moves.

    nanoseconds = launch + max(FLOP of products / their rate + other FLOP / theirs, bytes / bandwidth)

Rates are the makers' published peaks. A plan compares times with one another, so that what counts is their ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rematc.ir.errors import CompileError


@dataclass(frozen=True, slots=True)
class Device:
    """What a device can do at best.

    Attributes:
        name: as options name it.
        products: FLOP/ns of matrix products and convolutions, by the bits of an element; of others those of 32 bits.
        arithmetic: FLOP/ns of everything else.
        bandwidth: bytes/ns of its memory.
        launch: ns that a kernel takes besides.
    """

    name: str
    products: Mapping[int, float]
    arithmetic: float
    bandwidth: float
    launch: float

    def product_time(self, flops: int, bits: int) -> float:
        """Nanoseconds of a matrix product or convolution of elements of so many bits."""
        return flops / self.products.get(bits, self.products[32])

    def time(self, products: float, flops: int, moved: int) -> int:
        """Nanoseconds of a kernel.

        Args:
            products: nanoseconds of the products in it.
            flops: its other floating-point operations.
            moved: bytes that it reads and writes.
        """
        return round(self.launch + max(products + flops / self.arithmetic, moved / self.bandwidth))


#: AMD EPYC 7763 (product page): 64 cores at 2.45 GHz, 32 FLOP a cycle in 32 bits, 204.8 GB/s. 16 bits go by 32.
CPU = Device("cpu", {16: 5018.0, 32: 5018.0, 64: 2509.0}, 5018.0, 204.8, 1000.0)
#: NVIDIA H100 SXM (datasheet, without sparsity): bf16 989, TF32 495, f64 67, f32 67 TFLOP/s outside of tensor cores,
#: 3.35 TB/s. TF32 is what products of 32 bits are by default.
H100 = Device("h100", {8: 1_979_000.0, 16: 989_000.0, 32: 495_000.0, 64: 67_000.0}, 67_000.0, 3350.0, 2000.0)
#: Google Cloud TPU v5e (documentation): bf16 197 TFLOP/s, which products of 32 bits take by default, int8 393;
#: 819 GB/s. The vector unit, from 8 x 128 lanes of four units at 1.5 GHz ("How to scale your model").
V5E = Device("v5e", {8: 393_000.0, 16: 197_000.0, 32: 197_000.0}, 6144.0, 819.0, 500.0)

DEVICES = {device.name: device for device in (CPU, H100, V5E)}
_PLATFORMS = {"cpu": CPU, "cuda": H100, "rocm": H100, "tpu": V5E}


def device_named(name: str) -> Device:
    """The device of this name. Raises CompileError where there is none."""
    if name not in DEVICES:
        raise CompileError(f"unknown device '{name}' (known: {', '.join(DEVICES)})")
    return DEVICES[name]


def device_of_platform(platform: str) -> Device:
    """The device that stands for a platform."""
    return _PLATFORMS.get(platform, CPU)
