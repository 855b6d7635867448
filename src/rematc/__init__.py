"""rematc."""
