"""Reading XLA's HLO: the text of a module, what it executes, and what of that XLA could merge."""
