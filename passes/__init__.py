"""Graph transformations and analyses. Importing the package registers the passes that pipelines can name."""

from rematc.passes import barriers, cse, dce, inline, narrow, recognize, simplify  # noqa: F401  # for what they register
from rematc.passes.legalize import legalization  # noqa: F401
