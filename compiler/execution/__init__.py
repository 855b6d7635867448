"""From Python functions to graphs and running programs: calls, the pipeline, jit."""
