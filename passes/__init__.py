"""Graph transformations and analyses. Importing the package registers the passes that pipelines can name."""

# Imported for what they register.
from rematc.passes import (  # noqa: F401
    barriers,
    cse,
    dce,
    differentiation,
    fold_transposes,
    hoist,
    inline,
    narrow,
    offload_order,
    own_repeats,
    recognize,
    simplify,
    unpad,
    unroll,
)
from rematc.passes.legalize import legalization  # noqa: F401
from rematc.passes.planning import planning_pass  # noqa: F401
from rematc.passes.slicing import slicing  # noqa: F401
