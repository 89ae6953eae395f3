"""What do the formulations cost? Accelerations with multipliers of the same mechanisms, each way, in the same run.

Chains of 5 and 20 rods on revolute joints, and a four-bar; float64. The house's own row is `mb.dynamics`. Unknowns are
the coordinates that a formulation integrates, and the size of the largest linear system that it solves in one
evaluation. Contenders whose accelerations disagree by more than 1e-7 stop the run. Compare ratios of one run.

    python experiments/benchmarks/formulations.py [--quick] [--batch 1024]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

TOLERANCE = 1e-7


def chain(n: int) -> mb.Mechanism:
    rods = [mb.rod(f"rod {k}", 0.3, mass=0.5) for k in range(n)]
    ends = ["world", *(mb.Marker(f"rod {k}", (0.3, 0, 0)) for k in range(n - 1))]
    joints = [mb.Revolute(f"J{k}", ends[k], f"rod {k}", axis="zy"[k % 2]) for k in range(n)]
    return mb.Mechanism(rods, joints, gravity=(0, -9.81, 0))


def four_bar() -> mb.Mechanism:
    rods = [mb.rod("crank", 0.1, mass=0.2), mb.rod("coupler", 0.3, mass=0.5), mb.rod("rocker", 0.25, mass=0.4)]
    joints = [
        mb.Revolute("A", "world", "crank"),
        mb.Revolute("B", mb.Marker("crank", (0.1, 0, 0)), "coupler"),
        mb.Revolute("C", mb.Marker("coupler", (0.3, 0, 0)), mb.Marker("rocker", (0.25, 0, 0))),
        mb.Revolute("D", mb.Marker("world", (0.3, 0, 0)), "rocker"),
    ]
    return mb.Mechanism(rods, joints, gravity=(0, -9.81, 0))


def states(model: mb.Model, batch: int) -> tuple[jax.Array, jax.Array]:
    """(q, v), each (batch, n); those of a loop near one closed attitude."""
    rng = np.random.default_rng(0)
    if model.nc:
        closed = [mb.assemble(model, {"A": a}, {"A": 1.0}) for a in (0.5, 0.6)]
        pick = np.arange(batch) % 2
        return jnp.stack([s.q for s in closed])[pick], jnp.stack([s.v for s in closed])[pick]
    return jnp.asarray(rng.standard_normal((batch, model.nq))), jnp.asarray(rng.standard_normal((batch, model.nv)))


def contenders(model: mb.Model) -> dict[str, tuple[tuple[int, int] | None, Callable]]:
    """Unknowns, and accelerations as a function of (model, q, v)."""
    found: dict[str, tuple[Any, Callable]] = {}
    for kind in mb.formulations.ALL:
        try:
            unknowns = kind(model).unknowns
        except mb.MechanismError as error:
            print(f"{kind.__name__} does not describe it: {error}")
            continue
        found[kind.__name__.lower()] = unknowns, lambda model, q, v, kind=kind: kind(model).dynamics(q, v)
    found["mb.dynamics"] = (model.nq, max(model.nc, model.nv)), lambda model, q, v: mb.dynamics(model, q, v)
    return found


def seconds(call: Callable, rounds: int) -> float:
    """The quickest of some rounds."""
    best = np.inf
    for _ in range(rounds):
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < 0.2:
            jax.block_until_ready(call())
            count += 1
        best = min(best, (time.perf_counter() - start) / count)
    return float(best)


def measure(name: str, mechanism: mb.Mechanism, batch: int, rounds: int) -> list[str]:
    model = mb.compile(mechanism)
    q, v = states(model, batch)
    lines, reference = [], np.asarray(mb.dynamics(model, q[0], v[0]).vd)
    for title, (unknowns, accelerations) in contenders(model).items():
        start = time.perf_counter()
        single = jax.jit(accelerations).lower(model, q[0], v[0]).compile()
        compiling = time.perf_counter() - start
        many = jax.jit(jax.vmap(accelerations, (None, 0, 0))).lower(model, q, v).compile()
        error = np.abs(np.asarray(single(model, q[0], v[0]).vd) - reference).max() / np.abs(reference).max()
        if not error < TOLERANCE:
            raise SystemExit(f"{name}: {title} disagrees with mb.dynamics by {error:.1e}")
        one = seconds(lambda: single(model, q[0], v[0]), rounds) * 1e6
        each = seconds(lambda: many(model, q, v), rounds) * 1e6 / batch
        size = f"{unknowns[0]} | {unknowns[1]}" if unknowns else "- | -"
        lines.append(f"| {name} | {title} | {size} | {one:.0f} | {each:.1f} | {compiling:.1f} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, chain of 5 only")
    parser.add_argument("--batch", type=int, default=1024)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    systems = {"chain of 5": chain(5), "chain of 20": chain(20), "four-bar": four_bar()}
    if given.quick:
        systems = {"chain of 5": chain(5)}
    print(
        f"| mechanism | formulation | coordinates | linear system | one, us | each of {given.batch}, us | compile, s |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, mechanism in systems.items():
        measure(name, mechanism, given.batch, 1 if given.quick else 3)


if __name__ == "__main__":
    main()
