"""Lowering of transcendental functions and roots: each is one StableHLO op of the same name."""

from __future__ import annotations

from rematc.ir.ops import transcendental
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import lowers

lowers(
    transcendental.Exponential,
    transcendental.ExponentialMinusOne,
    transcendental.Log,
    transcendental.LogPlusOne,
    transcendental.Logistic,
    transcendental.Sine,
    transcendental.Cosine,
    transcendental.Tan,
    transcendental.Tanh,
    transcendental.Sqrt,
    transcendental.Rsqrt,
    transcendental.Cbrt,
)(elementwise.one_type)
