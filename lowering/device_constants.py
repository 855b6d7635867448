"""Closed-over arrays on the device, where they stay from call to call."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import jax
import numpy as np

from rematc.ir.values import Array
from rematc.lowering.program import Program
from rematc.lowering.remembering import Remembered

#: The arrays of a program, under a key that identifies them.
Hidden = dict[str, tuple[Any, ...]]


class DeviceConstants:
    """The device's copies of closed-over arrays, as long as a route has them.

    Equal arrays share one; programs that take the same share a key.
    """

    def __init__(self) -> None:
        self._arrays = weakref.WeakValueDictionary[bytes, jax.Array]()
        self._digests = Remembered[Program, list[bytes]]()

    def keys(self, program: Program) -> set[str]:
        """The keys of `hidden(program)`."""
        return {hashlib.sha256(b"".join(self._digests_of(program))).hexdigest()} if program.constants else set()

    def hidden(self, program: Program) -> Hidden:
        """The arrays of a program under their key; nothing for a program without constants."""
        arrays = []
        # This may run while somebody else's function is traced; the copies must be arrays all the same.
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            for digest, array in zip(self._digests_of(program), program.constants, strict=True):
                copy = self._arrays.get(digest)
                if copy is None:
                    copy = self._arrays[digest] = jax.device_put(array)
                arrays.append(copy)
        return {key: tuple(arrays) for key in self.keys(program)}

    def _digests_of(self, program: Program) -> list[bytes]:
        return self._digests.find(program, lambda: [_digest(array) for array in program.constants])


def _digest(array: Array) -> bytes:
    described = f"{array.dtype.name}{array.shape}".encode()
    return hashlib.sha256(described + np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()
