"""Roll-outs, one long scan each: a partial differential equation, a particle system, an ordinary one."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.architectures.library import Draw, Function, Library, Model, Wrap


def build_pde(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Burgers' equation in two dimensions on a torus, explicit steps; how far the end is from a target."""

    def derivative(u: Any, axis: int) -> Any:
        return lib.xp.roll(u, -1, axis) - lib.xp.roll(u, 1, axis)

    def laplacian(u: Any) -> Any:
        return sum(lib.xp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * u

    def loss(params: Any, target: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            u, v = state
            new = [
                w - 0.05 * (u * derivative(w, 0) + v * derivative(w, 1)) + params["viscosity"] * laplacian(w)
                for w in (u, v)
            ]
            return (new[0], new[1]), None

        u, v = lib.scan(block(step), params["start"], None, STEPS)[0]
        return lib.xp.mean((u - target) ** 2 + v**2)

    return loss


STEPS = 400


def pde_arguments(size: int = 128) -> tuple[Any, ...]:
    """Viscosity and the two starting fields, and the target field; [size, size]."""
    line = np.linspace(0, 2 * np.pi, size, endpoint=False, dtype=np.float32)
    waves = np.sin(line)[:, None] * np.cos(line), np.cos(line)[:, None] * np.sin(2 * line)
    return {"viscosity": np.float32(0.1), "start": (waves[0], waves[1])}, waves[0] * np.float32(0.5)


def build_particles(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Charges in a well, leapfrog steps; the spread of their ends as a function of starts, masses and charges."""

    def force(params: Any, position: Any) -> Any:
        away = position[:, None, :] - position[None, :, :]
        squares = lib.xp.sum(away * away, axis=-1) + 0.1
        strength = params["charge"][:, None] * params["charge"][None, :] / (squares * lib.xp.sqrt(squares))
        return lib.xp.sum(strength[:, :, None] * away, axis=1) - position

    def loss(params: Any, velocity: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            position, velocity = state
            velocity = velocity + 0.01 * force(params, position) / params["mass"][:, None]
            position = position + 0.01 * velocity
            return (position, velocity), lib.xp.mean(position * position)

        _, spread = lib.scan(block(step), (params["start"], velocity), None, 200)
        return lib.xp.mean(spread)

    return loss


def particles_arguments(count: int = 128) -> tuple[Any, ...]:
    """Starts [count, 3], masses and charges, and starting velocities."""
    draw = Draw()
    ones = np.ones(count, np.float32)
    return {"start": draw.normal(count, 3), "mass": ones, "charge": ones * np.float32(0.1)}, draw.normal(count, 3)


def build_ode(lib: Library, block: Wrap, group: Wrap) -> Function:
    """A differential equation whose right-hand side is a network, classical Runge-Kutta steps."""

    def loss(params: Any, start: Any, target: Any) -> Any:
        def slope(x: Any) -> Any:
            return lib.xp.tanh(x @ params["in"] + params["bias"]) @ params["out"]

        def step(x: Any, _: Any) -> Any:
            first = slope(x)
            second = slope(x + 0.05 * first)
            third = slope(x + 0.05 * second)
            fourth = slope(x + 0.1 * third)
            return x + (first + 2 * second + 2 * third + fourth) * (0.1 / 6), None

        return lib.xp.mean((lib.scan(block(step), start, None, 200)[0] - target) ** 2)

    return loss


def ode_arguments(batch: int = 64, width: int = 32, hidden: int = 256) -> tuple[Any, ...]:
    """The network, starts and targets [batch, width]."""
    draw = Draw()
    params = {"in": draw.weight(width, hidden), "bias": draw.normal(hidden), "out": draw.weight(hidden, width)}
    return params, draw.normal(batch, width), draw.normal(batch, width)


PDE = Model("pde", "Burgers' equation on 128x128, 400 steps", build_pde, pde_arguments)
PARTICLES = Model("particles", "128 charges, 200 steps", build_particles, particles_arguments)
ODE = Model("ode", "a neural ordinary differential equation, 200 Runge-Kutta steps", build_ode, ode_arguments)
