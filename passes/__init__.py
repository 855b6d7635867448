"""Graph transformations and analyses. Importing the package registers the passes that pipelines can name."""

# Imported for what they register.
from rematc.passes import barriers, cse, dce, differentiation, inline, narrow, recognize, simplify  # noqa: F401
from rematc.passes.legalize import legalization  # noqa: F401
from rematc.passes.planning import planning_pass  # noqa: F401
from rematc.passes.slicing import slicing  # noqa: F401
