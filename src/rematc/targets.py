"""Devices to compile for that need not be here: GPUs and TPUs, one or many.

import rematc

rematc.compile(step, *args, target="h100").memory()    # on any machine, with rematc[cuda] installed

mesh = jax.sharding.Mesh(np.reshape(rematc.targets.devices("v5e:4x4"), (4, 4)), ("data", "model"))
x = jax.ShapeDtypeStruct((4096, 512), "bfloat16", sharding=NamedSharding(mesh, PartitionSpec("data")))
rematc.compile(step, x).memory()    # of one chip of sixteen
"""

from rematc.compiler.driver.targets import devices, memory, names

__all__ = ["devices", "memory", "names"]
