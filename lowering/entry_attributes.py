"""What a StableHLO module says of the arguments and results of its `main`, beside their types: donation, names.

Before:  func.func public @main(%arg0: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32>
After:   the graph's own text has the same attributes on its `main`, and who compiles it the same donated arguments
"""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from rematc.lowering.validation import mlir_context, parse

#: The dialects whose attributes do not change what is computed.
_KEPT = ("tf.", "jax.")
#: By which of them an argument is donated: to one result, or to whichever fits.
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")


def donated_arguments(text: str) -> tuple[int, ...]:
    """The numbers of the arguments of a module's `main` whose memory results may take over."""
    with mlir_context():
        module = parse(text)  # which must outlive its operations
        function = main_of(module)
        return tuple(
            [
                index
                for index, attributes in enumerate(dictionaries_of(function, "arg_attrs"))
                if any(name in attributes for name in _DONATED)
            ]
        )


def with_attributes_of(text: str, source: str) -> str:
    """A module with the attributes that the arguments and results of another one's `main` have.

    Where they are as many: constants that became arguments have none.
    """
    with mlir_context():
        module, other = parse(text), parse(source)
        function, given = main_of(module), main_of(other)
        for name in ("arg_attrs", "res_attrs"):
            own, wanted = dictionaries_of(function, name), dictionaries_of(given, name)
            merged = [_merged(one, more) for one, more in zip(own, wanted, strict=False)]
            if merged:
                function.attributes[name] = ir.ArrayAttr.get([*merged, *own[len(merged) :]])
        return f"{str(module.operation.get_asm(large_elements_limit=None)).rstrip()}\n"


def main_of(module: Any) -> Any:
    """The function that is called."""
    functions = [one for one in module.body.operations if one.operation.name == "func.func"]
    return next(one for one in functions if ir.StringAttr(one.attributes["sym_name"]).value == "main")


def dictionaries_of(function: Any, name: str) -> list[Any]:
    """The attributes of the arguments, or the results, of a function: a dictionary each."""
    if name in function.attributes:
        return list(function.attributes[name])
    type = function.type
    return [ir.DictAttr.get({})] * len(type.inputs if name == "arg_attrs" else type.results)


def _merged(own: Any, other: Any) -> Any:
    kept = {one.name: one.attr for one in other if one.name.startswith(_KEPT)}
    return ir.DictAttr.get({**{one.name: one.attr for one in own}, **kept})
