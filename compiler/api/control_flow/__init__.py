"""Loops and branches over traced values."""
