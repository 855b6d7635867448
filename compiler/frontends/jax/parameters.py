"""Parameters of JAX's primitives that no import rule reads: they must say nothing, or the equation is refused.

A rule knows the parameters that it has ever read. Any other one stands in a table here: what types or other parameters
say as well, or its value that changes nothing. So one that a later JAX adds is an error, and never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rematc.lowering import graph_call
from rematc.lowering.jax_export import whole
from rematc.lowering.jax_internals.shardings import has_explicit_sharding, is_without_sharding

#: Of each primitive, what the types of its inputs and outputs say as well, or its other parameters, or its name.
_SAID = {
    "approx_top_k": ("k",),
    "argmax": ("index_dtype",),
    "argmin": ("index_dtype",),
    "bitcast_convert_type": ("new_dtype",),
    "broadcast_in_dim": ("shape",),
    "all_gather": ("axis_size",),
    "all_to_all": ("tiled",),
    "reduce_scatter": ("axis_size",),
    "closed_call": ("name",),
    "cond": ("name",),
    "conj": ("_input_dtype", "input_dtype"),
    "conv_general_dilated": ("preferred_element_type",),
    "convert_element_type": ("new_dtype", "weak_type"),
    "dot_general": ("preferred_element_type",),
    "empty": ("dtype", "shape"),
    "empty2": ("dtype", "memory_space"),
    "fft": ("fft_lengths", "fft_type"),
    "iota": ("dtype", "shape"),
    "iota_2x32_shape": ("shape",),
    "reduce": ("computation",),
    "reshape": ("new_sizes",),
    "squeeze": ("dimensions",),
    "expand_dims": ("dimensions",),
    "pure_callback": ("result_avals",),
    "io_callback": ("result_avals",),
    "debug_callback": ("result_avals", "effect"),
    "debug_print": ("effect",),
}
#: Of each primitive, what its derivative or batch depends on, which is JAX's own, of the equation as it stands; or how
#: JAX gets at a value, where rematc has its own way: exact, stable, and with a derivative.
_OWN_WAY = {
    "approx_top_k": ("recall_target", "reduction_input_size_override"),
    "rematc_checkpoint": ("region",),
    "custom_jvp_call": ("jvp_jaxpr_fun", "jvp_jaxpr_thunk", "symbolic_zeros"),
    "custom_lin": ("out_avals", "symbolic_zeros", "in_zeros", "bwd", "num_res", "name"),
    "custom_vjp_call": ("bwd", "fwd_jaxpr_thunk", "fun_jaxpr", "out_trees", "symbolic_zeros", "num_consts"),
    "custom_vjp_call_jaxpr": ("bwd", "fwd_jaxpr_thunk", "out_trees", "symbolic_zeros", "num_consts"),
    "custom_vmap_call": ("rule", "in_tree", "out_tree"),
    "eig": ("enable_eigvec_derivs",),
    # A promise, which nothing of ours uses.
    "gather": ("unique_indices",),
    # Of a jit inside of a function JAX, too, neither donates nor keeps, and may copy the equations.
    "jit": ("ctx_mesh", "donated_invars", "inline", "keep_unused", "name"),
    "pjit": ("ctx_mesh", "donated_invars", "inline", "keep_unused", "name"),
    "remat_opt": ("fun_jaxpr_thunk", "num_consts", "num_res"),
    "scan": ("linear", "ft_in", "ft_out", "num_consts", "num_carry"),
    # The op is JAX's own equation.
    "shard_map": ("check_vma", "in_specs", "jaxpr", "mesh", "newly_manual_axes", "out_specs"),
    "sort": ("is_stable",),
    "top_k": ("is_stable", "operand"),
    # What a composite is made of says what it is.
    "composite": ("attributes", "name", "version"),
    # The graph's own derivatives and batches are those of the passes.
    graph_call.NAME: ("rules",),
    # The same in other shapes, for one CPU.
    whole.NAME: ("arranged",),
    # What JAX does for each key's generator takes them all.
    **dict.fromkeys(("random_bits", "random_seed", "random_split", "random_fold_in"), ("bit_width", "shape", "impl")),
    "random_wrap": ("impl",),
    "custom_partitioning": (
        *("decode_shardings", "in_tree", "infer_sharding_from_operands", "out_tree", "partition", "sharding_rule"),
        *("propagate_user_sharding", "static_args"),
    ),
}
#: Of each primitive, what its rule reads, but not of arrays without elements or dimensions, or in each mode.
_AT_TIMES = {
    "gather": ("dimension_numbers", "fill_value", "indices_are_sorted", "mode", "slice_sizes"),
    "pad": ("padding_config",),
    "reshard": ("concrete_mesh", "dst_sharding"),
    **dict.fromkeys(
        ("scatter", *(f"scatter-{kind}" for kind in ("add", "sub", "mul", "min", "max"))),
        ("dimension_numbers", "indices_are_sorted", "mode", "unique_indices", "update_jaxpr"),
    ),
}
_TABLES = (_SAID, _OWN_WAY, _AT_TIMES)
_READ_NOWHERE = {
    name: frozenset(parameter for table in _TABLES for parameter in table.get(name, ()))
    for name in frozenset().union(*_TABLES)
}


def _is_none(eqn: Any, value: Any) -> bool:
    return value is None


def _is_default(eqn: Any, value: Any) -> bool:
    return value is None or str(getattr(value, "name", value)) == "DEFAULT"


def _is_empty(eqn: Any, value: Any) -> bool:
    return not value


def _is_true(eqn: Any, value: Any) -> bool:
    return value is True


def _is_in_types(eqn: Any, value: Any) -> bool:
    """Whether a sharding says nothing, or what the result's type says, by which the result is placed."""
    return is_without_sharding(value) or has_explicit_sharding(eqn.outvars[0].aval)


#: By a parameter's name, whether a value of it changes nothing.
_NEUTRAL: dict[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("accuracy", "algorithm", "implementation"), _is_default),
    **dict.fromkeys(("out_dtype", "use_magma", "logging_record"), _is_none),
    **dict.fromkeys(("axis_index_groups", "branches_platforms", "device", "memory_space"), _is_none),
    **dict.fromkeys(("compiler_options_kvs", "update_consts", "_split_transpose", "partitioned", "consts"), _is_empty),
    **dict.fromkeys(("sharding", "out_sharding"), _is_in_types),
    **dict.fromkeys(("aggregate_to_topk", "sort_eigenvalues"), _is_true),
}

#: Of each primitive, the parameters that its rule has read.
_known: dict[str, set[str]] = {}


class Recorded(dict[str, Any]):
    """Parameters of an equation that remember which were read."""

    def __init__(self, params: dict[str, Any], read: set[str]) -> None:
        super().__init__(params)
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def items(self) -> Any:
        self._read.update(self)
        return super().items()


def recorded(eqn: Any) -> Any:
    """The equation; where it has parameters that are neither known nor neutral, one that remembers which are read."""
    if not eqn.params or next(unread(eqn), None) is None:
        return eqn
    read = _known.setdefault(eqn.primitive.name, set(_READ_NOWHERE.get(eqn.primitive.name, ())))
    return eqn.replace(params=Recorded(eqn.params, read))


def unread(eqn: Any) -> Iterator[str]:
    """The parameters that the rule of an equation's primitive has never read, and that say something."""
    known = _known.get(eqn.primitive.name, _READ_NOWHERE.get(eqn.primitive.name, ()))
    for name, value in eqn.params.items():
        if name not in known and not (name in _NEUTRAL and _NEUTRAL[name](eqn, value)):
            yield name
