"""Operations of StableHLO and CHLO that are no ops of the IR, each with the reason."""

from __future__ import annotations

from rematc.compiler.frontends.stablehlo.block import REASONS

_TOKENS = "it orders effects; programs of the IR are functions without effects. Take it out of the program"
_DEVICES = "it talks to other devices; graphs are of one device. Import the program before it is partitioned"
_QUANTIZED = "quantized types are not in the IR; dequantize before"
_REMOVED = "StableHLO deprecates it; let its tools replace it (stablehlo-legalize-deprecated-ops)"

REASONS.update(
    {f"stablehlo.{name}": _TOKENS for name in ("after_all", "create_token", "infeed", "outfeed", "recv", "send")}
)
REASONS.update({f"stablehlo.{name}": _TOKENS for name in ("async_start", "async_done")})
REASONS.update(
    {
        f"stablehlo.{name}": _DEVICES
        for name in (
            *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"),
            "collective_reduce",
            *("cross-replica-sum", "partition_id", "reduce_scatter", "replica_id"),
        )
    }
)
REASONS.update({f"stablehlo.{name}": _QUANTIZED for name in ("uniform_dequantize", "uniform_quantize")})
REASONS.update({f"stablehlo.{name}": _REMOVED for name in ("einsum", "torch_index_select", "unary_einsum")})
REASONS.update({f"sdy.{name}": _DEVICES for name in ("manual_computation", "named_computation")})
REASONS.update(
    {
        "stablehlo.rng": "it draws other numbers each time; use rng_bit_generator, whose state is a value",
        "stablehlo.set_dimension_size": "it makes a size depend on data; shapes of the IR are static",
        "chlo._asin_acos_kernel": "it is a step inside XLA's expansion of asin and acos; import before that",
        "chlo.ragged_dot": "sizes of its groups are data; write a dot_general with masked operands",
    }
)
