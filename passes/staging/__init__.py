"""Staging: a policy on a whole program becomes checkpoint regions, one for each segment of its backward pass."""
