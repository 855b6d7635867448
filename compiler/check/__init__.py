"""Whether XLA kept what was planned: its module before its passes against the one that runs."""
