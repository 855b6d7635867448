"""Lowering rules, a file a family of ops: what each op is in StableHLO."""
