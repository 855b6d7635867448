"""Loops as long as a condition holds: `while`. How many steps there are is not known before they are taken."""
