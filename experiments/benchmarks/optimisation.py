"""What a gradient is worth: the same optimum by exact derivatives, by finite differences and without either.

    python experiments/benchmarks/optimisation.py [springs]

A row of masses on springs and dampers is shaken at one end; the springs and dampers are tuned for the smallest motion
of the last mass. Each way stops at an objective within 1e-6 (relative) of the best one found, or gives up; counted are
simulations (with derivatives: one question, whatever the number of parameters) and seconds without compiling.
"""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import diffmb as mb

jax.config.update("jax_enable_x64", True)
TS = jnp.linspace(0.0, 2.0, 41)
CLOSE = 1e-6


def shake(t, p):
    return 0.02 * jnp.sin(9.0 * t) ** 3


def row(count):
    at = lambda k: mb.Marker("world", (0.5 * k, 0, 0))
    return mb.Mechanism(
        [mb.sphere(f"m{k}", 0.1, mass=1.0) for k in range(count + 1)],
        [mb.Prismatic(f"x{k}", at(k), f"m{k}", axis="x") for k in range(count + 1)],
        connections=[mb.SpringDamper(f"s{k}", f"m{k}", f"m{k + 1}", 300.0, 2.0, 0.5) for k in range(count)],
        drives=[mb.PositionDrive("shaker", "x0", shake)],
        gravity=(0, 0, 0),
    )


def main(count):
    last = f"x{count}"

    def motion(m):
        model = mb.compile(m)
        traj = mb.simulate(model, mb.assemble(model, throw=False), TS, controller=mb.Tolerance(1e-9), throw=False)
        size = sum(m[f"s{k}"].k for k in range(count)) / (300.0 * count)
        return 1e4 * (traj.coordinate(last) ** 2).mean() + 0.1 * (size - 1.0) ** 2

    mech = row(count)
    names = [f"s{k}.{what}" for k in range(count) for what in ("k", "c")]
    bounds = {name: (50.0, 1000.0) if name.endswith("k") else (0.2, 10.0) for name in names}
    run = lambda method, **more: mb.optimise(motion, mech, names, bounds=bounds, method=method, **more)
    rows, best = [], None
    for title, method in (
        ("SLSQP, exact derivatives", mb.SLSQP()),
        ("L-BFGS-B, exact derivatives", mb.LBFGSB(300)),
        ("Nelder and Mead", mb.NelderMead(400 * count)),
        ("differential evolution", mb.DifferentialEvolution(0, members=5, iterations=60)),
    ):
        run(method, callback=lambda i: i.number >= 2)  # compiles
        stop = None if best is None else (lambda i, best=best: i.value <= best * (1 + CLOSE))
        seconds = time.perf_counter()
        found = run(method, callback=stop)
        rows.append((title, found.value, found.simulations, time.perf_counter() - seconds))
        best = found.value if best is None else min(best, found.value)
    rows.insert(2, differences(run, motion, mech, names, bounds, best))
    print(f"{2 * count} numbers\n{'':32}{'objective':>14}{'simulations':>13}{'seconds':>9}{'reached':>9}")
    for title, value, simulations, seconds in rows:
        reached = "yes" if value <= best * (1 + 2 * CLOSE) else "no"
        print(f"{title:32}{value:14.8f}{simulations:13d}{seconds:9.2f}{reached:>9}")


def differences(run, motion, mech, names, bounds, best):
    """SciPy's SLSQP with its own forward differences, numbers of size one."""
    low, high = np.array([bounds[name] for name in names]).T
    start = np.array([run(mb.SLSQP(1), callback=lambda i: True).numbers[name] for name in names])
    fields = lambda m: [getattr(m[name.split(".")[0]], name.split(".")[1]) for name in names]
    value = jax.jit(lambda p: motion(eqx.tree_at(fields, mech, list(p))))
    asked = []

    def f(x):
        asked.append(1)
        return float(value(jnp.asarray(low + x * (high - low))))

    x0 = (start - low) / (high - low)
    first = f(x0)
    asked.clear()
    seconds = time.perf_counter()
    found = minimize(
        lambda x: f(x) / first, x0, method="SLSQP", bounds=[(0, 1)] * len(x0), options={"ftol": 1e-12, "maxiter": 200}
    )
    return "SLSQP, finite differences", found.fun * first, len(asked), time.perf_counter() - seconds


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
