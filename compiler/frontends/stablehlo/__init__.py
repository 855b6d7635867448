"""StableHLO text to graphs: the way in for frameworks that emit it."""
