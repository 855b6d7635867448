"""Devices as rooflines: how long a kernel takes, from its floating-point operations and the bytes that it moves.

    nanoseconds = launch + max(FLOP of products / their rate + other FLOP / theirs, bytes / bandwidth) + sent / link

Rates are the makers' published peaks. A plan compares times with one another, so that what counts is their ratio.
Bandwidth and memory of NVIDIA's are those that the driver reports, as XLA describes such a device
(xla/backends/gpu/target_config/specs); memory of Google's is what libtpu 0.0.52 lets a program have. Links are those
between devices of one kind, one way: NVLink of the datasheets, the interconnect of Google's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rematc.ir.errors import CompileError
from rematc.passes.kernels import CPU as FUSION_ON_CPU
from rematc.passes.kernels import GPU, TPU, TPU_V6E, Fusion


@dataclass(frozen=True, slots=True)
class Device:
    """What a device can do at best.

    Attributes:
        name: as options name it.
        products: FLOP/ns of matrix products and convolutions, by the bits of an element; of others those of 32 bits.
        arithmetic: FLOP/ns of everything else.
        bandwidth: bytes/ns of its memory.
        launch: ns that a kernel takes besides.
        link: bytes/ns that it sends to others of its kind.
        memory: bytes that a program may have; None where they depend on the machine.
        kinds: how the names begin that JAX gives to such devices (`device_kind`).
        copies_factors: whether factors of products are copied where their dimensions stand in another order than that
            of plain matrices (`rematc.passes.legalize.factors`).
        rounds_factors: whether products of 32-bit numbers round them to bfloat16, at default precision.
        fusion: what its kernels compute that they could also read.
        lanes: elements along the last dimension of the tiles in which its memory is (`rematc.passes.planning.lanes`).
    """

    name: str
    products: Mapping[int, float]
    arithmetic: float
    bandwidth: float
    launch: float
    link: float
    memory: int | None = None
    kinds: tuple[str, ...] = ()
    copies_factors: bool = False
    rounds_factors: bool = False
    fusion: Fusion = TPU
    lanes: int = 1

    def product_time(self, flops: int, bits: int) -> float:
        """Nanoseconds of a matrix product or convolution of elements of so many bits."""
        return flops / self.products.get(bits, self.products[32])

    def time(self, products: float, flops: int, moved: int, sent: int = 0) -> int:
        """Nanoseconds of a kernel.

        Args:
            products: nanoseconds of the products in it.
            flops: its other floating-point operations.
            moved: bytes that it reads and writes.
            sent: bytes that go from each device to others.
        """
        own = max(products + flops / self.arithmetic, moved / self.bandwidth)
        return round(self.launch + own + sent / self.link)


#: AMD EPYC 7763 (product page): 64 cores at 2.45 GHz, 32 FLOP a cycle in 32 bits, 204.8 GB/s. 16 bits go by 32. Several
#: devices on a CPU send through its memory.
CPU = Device(
    name="cpu",
    products={16: 5018.0, 32: 5018.0, 64: 2509.0},
    arithmetic=5018.0,
    bandwidth=204.8,
    launch=1000.0,
    link=204.8,
    copies_factors=True,
    fusion=FUSION_ON_CPU,
)
#: NVIDIA A100 SXM of 80 GB (datasheet, without sparsity): int8 624, bf16 312, TF32 156, f64 19.5, f32 19.5 TFLOP/s
#: outside of tensor cores. TF32 is what products of 32 bits are by default.
A100 = Device(
    name="a100",
    products={8: 624_000.0, 16: 312_000.0, 32: 156_000.0, 64: 19_500.0},
    arithmetic=19_500.0,
    bandwidth=2039.04,
    launch=2000.0,
    link=300.0,
    memory=85_100_068_864,
    kinds=("NVIDIA A100",),
    fusion=GPU,
)
#: NVIDIA H100 SXM (datasheet, without sparsity): f8 1979, bf16 989, TF32 495, f64 67, f32 67 TFLOP/s.
H100 = Device(
    name="h100",
    products={8: 1_979_000.0, 16: 989_000.0, 32: 495_000.0, 64: 67_000.0},
    arithmetic=67_000.0,
    bandwidth=3352.32,
    launch=2000.0,
    link=450.0,
    memory=84_942_979_072,
    kinds=("NVIDIA H100",),
    fusion=GPU,
)
#: NVIDIA H200 (datasheet): an H100 with other memory.
H200 = replace(H100, name="h200", bandwidth=4800.0, memory=151_397_597_184, kinds=("NVIDIA H200",))
#: NVIDIA HGX B200, one of eight (datasheet, without sparsity): f8 4500, bf16 2250, TF32 1125, f64 37, f32 75 TFLOP/s.
B200 = Device(
    name="b200",
    products={8: 4_500_000.0, 16: 2_250_000.0, 32: 1_125_000.0, 64: 37_000.0},
    arithmetic=75_000.0,
    bandwidth=7672.32,
    launch=2000.0,
    link=900.0,
    memory=191_514_411_008,
    kinds=("NVIDIA B200",),
    fusion=GPU,
)

_GIB = 2**30
# Google Cloud TPUs (documentation): bf16, which products of 32 bits take by default, and int8. Of vector units, lanes
# times cores times GHz: "How to scale your model".
#: bf16 275 TFLOP/s, 1228 GB/s; two cores of 2048 lanes at 1.05 GHz ("TPU v4: An Optically Reconfigurable ...").
V4 = Device(
    name="v4",
    products={8: 275_000.0, 16: 275_000.0, 32: 275_000.0},
    arithmetic=4300.0,
    bandwidth=1228.0,
    launch=500.0,
    link=300.0,
    memory=int(30.75 * _GIB),
    kinds=("TPU v4",),
    rounds_factors=True,
    lanes=128,
)
#: bf16 197 TFLOP/s, int8 393; 819 GB/s; 8 x 128 lanes of four units at 1.5 GHz.
V5E = Device(
    name="v5e",
    products={8: 393_000.0, 16: 197_000.0, 32: 197_000.0},
    arithmetic=6144.0,
    bandwidth=819.0,
    launch=500.0,
    link=200.0,
    memory=int(15.75 * _GIB),
    kinds=("TPU v5 lite", "TPU v5e"),
    rounds_factors=True,
    lanes=128,
)
#: bf16 459 TFLOP/s, int8 918; 2765 GB/s; two cores of 8 x 128 lanes of four units at 1.75 GHz.
V5P = Device(
    name="v5p",
    products={8: 918_000.0, 16: 459_000.0, 32: 459_000.0},
    arithmetic=14_336.0,
    bandwidth=2765.0,
    launch=500.0,
    link=600.0,
    memory=int(95.73 * _GIB),
    kinds=("TPU v5", "TPU v5p"),
    rounds_factors=True,
    lanes=128,
)
#: bf16 918 TFLOP/s, int8 1836; 1640 GB/s; the vector unit is not published: that of v5e at v5p's clock.
V6E = Device(
    name="v6e",
    products={8: 1_836_000.0, 16: 918_000.0, 32: 918_000.0},
    arithmetic=7168.0,
    bandwidth=1640.0,
    launch=500.0,
    link=448.0,
    memory=int(31.24 * _GIB),
    kinds=("TPU v6 lite", "TPU v6e"),
    rounds_factors=True,
    lanes=128,
    fusion=TPU_V6E,
)

DEVICES = {device.name: device for device in (CPU, A100, H100, H200, B200, V4, V5E, V5P, V6E)}
_PLATFORMS = {"cpu": CPU, "cuda": H100, "rocm": H100, "tpu": V5E}


def device_named(name: str) -> Device:
    """The device of this name. Raises CompileError where there is none."""
    if name not in DEVICES:
        raise CompileError(f"unknown device '{name}' (known: {', '.join(DEVICES)})")
    return DEVICES[name]


def device_of(platform: str, kind: str = "") -> Device:
    """The device that stands for those of a platform that JAX calls by this name, or for the platform."""
    return device_of_kind(kind) or _PLATFORMS.get(platform, CPU)


def device_of_kind(kind: str) -> Device | None:
    """The device that JAX calls by this name; None where nothing is known of it."""
    known = [(len(start), device) for device in DEVICES.values() for start in device.kinds if kind.startswith(start)]
    return max(known, key=lambda pair: pair[0])[1] if known else None
