"""XLA on the CPU, as far as memory goes: how it fuses, orders and packs a graph, and what that takes."""
