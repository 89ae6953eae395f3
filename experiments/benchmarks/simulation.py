"""How long does a given accuracy take? Simulations of the IFToMM problems, and their gradients; float64.

diffmb runs with the cheapest method and tolerance whose end error is below 1e-7 (`iftomm.py` says what that error is);
Exudyn with the fewest steps that give 1e-6; SciPy's DOP853 (Radau where it is stiff) to 1e-7 with diffmb's jitted
accelerations as its right-hand side, and with the equation of one freedom in numpy where there is one. A batch starts
at slightly different speeds; it takes the method that loses no member, the faster of two. The gradient is that of a sum
of end coordinates with respect to the initial speed and all masses; the other numbers of the model are constants of the
program, as where a user's function takes the model from outside. Cold seconds are those to trace, lower and compile
with empty caches. Batches use every core (`mb.batch` over devices), single runs and peers one. Compare ratios of one
run, not seconds of different runs.

    python experiments/benchmarks/simulation.py [pendulum four-bar ...] [--quick] [--no-peers] [--no-batch]
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import exudyn_runs
import jax
import jax.numpy as jnp
import numpy as np
from iftomm import PROBLEMS, Problem, error_of, place_of
from scipy.integrate import solve_ivp
from simulation_table import table
from tree_dynamics import best_of

import diffmb as mb

ACCURACY = 1e-7
PEER_ACCURACY = 1e-6
TOLERANCES = (1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9, 3e-10, 1e-10, 3e-11, 1e-11)
SLOTS = (256, 1024, 4096)
MOST_MEMORY = 4e9  # bytes for the stored steps of a batch, which is made smaller to stay below
PATIENCE = 10  # times the attempts of one run: members of a batch that need more are given up
BUDGET = 60.0  # seconds for the search of a peer

Call = Callable[..., Any]


class Compiled(NamedTuple):
    """A program, seconds to trace it and to compile it from nothing, and bytes of scratch."""

    call: Call
    trace: float
    compile: float
    scratch: int

    @property
    def seconds(self) -> float:
        return self.trace + self.compile


def forget() -> None:
    """Empties the caches of jax, and those of diffmb's own programs."""
    jax.clear_caches()
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "diffmb"]
    for found in [value for module in modules for value in vars(module).values()]:
        if isinstance(found, _lru_cache_wrapper):
            found.cache_clear()


def compiled(function: Call, *arguments: Any) -> Compiled:
    forget()
    start = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    traced = time.perf_counter()
    program = lowered.compile()
    done = time.perf_counter()
    scratch = program.memory_analysis().temp_size_in_bytes
    return Compiled(program, traced - start, done - traced, scratch)


def end_of(p: Problem, solver: Any, slots: int = SLOTS[-1], most: int = 1_000_000) -> Call:
    """(rate, rtol, [masses]) -> (q at the end, whether it arrived, steps, rejected ones)."""
    start, ts = mb.assemble(p.model, p.q, p.rate * p.direction), np.array([0.0, p.end])

    def run(rate: Any, rtol: Any, mass: Any = None) -> tuple:
        model = p.model if mass is None else eqx.tree_at(lambda m: m.mass, p.model, mass)
        state = eqx.tree_at(lambda s: s.v, start, rate * p.direction)
        controller = diffrax.PIDController(
            rtol=rtol, atol=rtol, pcoeff=0.2, icoeff=0.5
        )  # diffmb's default, but for rtol
        traj = mb.simulate(
            model, state, ts, solver=solver, controller=controller, inputs=p.inputs, adjoint=mb.StoredSteps(slots),
            max_steps=most, throw=False,
        )  # fmt: skip
        return traj.q[-1], traj.result == mb.RESULTS.successful, traj.stats.steps, traj.stats.rejected

    return run


def gradient_of(p: Problem, solver: Any, slots: int, most: int = 1_000_000) -> Call:
    """(rate, rtol) -> d(weighted sum of the last q) / d(rate, masses), and whether the run arrived."""
    weights, run = np.cos(1.0 + np.arange(p.model.nq)), end_of(p, solver, slots, most)

    def scalar(rate: Any, mass: Any, rtol: Any) -> Any:
        q, fine, *_ = run(rate, rtol, mass)
        return weights @ q, fine

    return lambda rate, rtol: jax.grad(scalar, (0, 1), has_aux=True)(rate, p.model.mass, rtol)


class Choice(NamedTuple):
    """A method and tolerance that are accurate enough."""

    name: str
    solver: Any
    rtol: float
    forward: Compiled
    seconds: float
    steps: int
    rejected: int
    error: float


def methods(p: Problem) -> dict[str, Any]:
    if p.stiff:
        return {"implicit(5)": mb.implicit(5)}
    return {"explicit(5)": mb.explicit(5), "explicit(8)": mb.explicit(8)}


def choose(p: Problem, reference: np.ndarray) -> tuple[list[Choice], list[str]]:
    """The loosest tolerance that is accurate enough, for each method, the faster first; and what failed on the way."""
    found, failed = [], []
    for name, solver in methods(p).items():
        forward = compiled(end_of(p, solver), p.rate, 1e-8)
        for rtol in TOLERANCES:
            q, fine, steps, rejected = forward.call(p.rate, rtol)
            if not bool(fine):
                failed.append(f"{name} at {rtol:g}")
                continue
            error = error_of(p, place_of(p, q), reference)
            if error <= ACCURACY:
                call = lambda: jax.block_until_ready(forward.call(p.rate, rtol))
                seconds = best_of({0: call}, 3)[0]
                found.append(Choice(name, solver, rtol, forward, seconds, int(steps), int(rejected), error))
                break
        else:
            failed.append(f"{name} at any tolerance to {ACCURACY:g}")
    return sorted(found, key=lambda c: c.seconds), failed


def reference_of(p: Problem) -> np.ndarray:
    """Where the point ends: from the problem, or a run with rtol 1e-12 by an explicit method of order 8."""
    if p.place is not None:
        return p.place
    q, fine, *_ = compiled(end_of(p, mb.explicit(8)), p.rate, 1e-8).call(p.rate, 1e-12)
    if not bool(fine):
        raise SystemExit(f"{p.name}: the reference run fails")
    return np.asarray(place_of(p, q))


# --- diffmb -------------------------------------------------------------------------------------------------------


def gradient_check(p: Problem, choices: list[Choice], slope: float) -> float | None:
    """Relative difference to a central difference of runs with a tighter tolerance, by the first method to arrive."""
    width, weights = 1e-4 * max(1.0, abs(p.rate)), np.cos(1.0 + np.arange(p.model.nq))
    for c in choices:
        runs = [c.forward.call(p.rate + side * width, max(1e-2 * c.rtol, 1e-12)) for side in (-1.0, 1.0)]
        if all(bool(fine) for _, fine, *_ in runs):
            low, high = (float(weights @ np.asarray(q)) for q, *_ in runs)
            return abs(slope * 2 * width / (high - low) - 1.0)
    return None


def single(p: Problem, choices: list[Choice], quick: bool, rounds: int) -> dict[str, Any]:
    """Warm and cold seconds of one run and of its gradient, and scratch memory against the number of stored steps."""
    best = choices[0]
    fits = next((n for n in SLOTS if n > 1.1 * best.steps), SLOTS[-1])
    gradients = {n: compiled(gradient_of(p, best.solver, n), p.rate, 1e-8)
                 for n in SLOTS if n == fits or not quick}  # fmt: skip
    gradient = gradients[fits]
    arguments = (p.rate, best.rtol)
    calls = {"forward": best.forward.call, "gradient": gradient.call}
    times = best_of({k: lambda f=f: jax.block_until_ready(f(*arguments)) for k, f in calls.items()}, rounds)
    slopes, fine = gradient.call(*arguments)
    return {
        "method": best.name, "rtol": best.rtol, "steps": best.steps, "rejected": best.rejected, "error": best.error,
        "forward_seconds": min(times["forward"], best.seconds), "gradient_seconds": times["gradient"],
        "stored_steps": fits,
        "gradient_ratio": times["gradient"] / times["forward"] if bool(fine) else None,
        "gradient_check": gradient_check(p, choices, float(slopes[0])),
        "forward_cold": best.forward.seconds, "forward_trace": best.forward.trace,
        "gradient_cold": gradient.seconds, "gradient_trace": gradient.trace,
        "gradient_bytes": {n: g.scratch for n, g in gradients.items()},
    }  # fmt: skip


def batch(p: Problem, choices: list[Choice], quick: bool, rounds: int) -> dict[str, Any]:
    """Seconds per run in a batch over all cores, by the method that loses the fewest members and is fastest, and of its
    gradient."""
    tried = []
    for c in choices:
        slots = 1 << int(np.ceil(np.log2(1.2 * c.steps)))
        bytes_each = 8 * slots * (c.solver.tableau.num_stages + 4) * (p.model.nq + p.model.nv)
        size = max(1, min(256 if quick else 1024, p.batch, int(MOST_MEMORY / bytes_each)))
        rates = np.asarray(p.rate + p.spread * np.linspace(-1.0, 1.0, size))
        most = PATIENCE * (c.steps + c.rejected)
        forward = on_all_cores(end_of(p, c.solver, slots, most), size, c.rtol)
        _, fine, steps, rejected = jax.block_until_ready(forward(rates))
        start = time.perf_counter()
        jax.block_until_ready(forward(rates))
        seconds = (time.perf_counter() - start) / size
        attempts = np.asarray(steps + rejected)
        about = {"method": c.name, "batch": size, "failed": int((~fine).sum()), "attempts": int(attempts.max()),
                 "usual_attempts": int(np.median(attempts)), "stored_steps": slots}  # fmt: skip
        tried.append((about["failed"], seconds, c, about, forward, rates, most))
    _, _, c, about, forward, rates, most = min(tried, key=lambda x: x[:2])
    gradient = on_all_cores(gradient_of(p, c.solver, about["stored_steps"], most), about["batch"], c.rtol)
    lost = int((~gradient(rates)[1]).sum())
    calls = {"forward": forward, "gradient": gradient}
    times = best_of({k: lambda f=f: jax.block_until_ready(f(rates)) for k, f in calls.items()}, rounds)
    return {
        "batch": about | {"lost_in_gradient": lost},
        "batches": [x[3] for x in tried],
        "batch_seconds": times["forward"] / about["batch"],
        "batch_gradient_ratio": times["gradient"] / times["forward"],
    }


def on_all_cores(run: Call, size: int, rtol: float) -> Call:
    """Over many rates, in equal shares on the cores, each of which is a device of its own here."""
    share = -(-size // len(jax.devices()))
    return mb.batch(lambda rate: run(rate, rtol), devices=jax.devices(), chunk=share if share < 128 else None)


# --- SciPy --------------------------------------------------------------------------------------------------------


def to_accuracy(p: Problem, slope: Call, start: np.ndarray, place: Call, reference: np.ndarray) -> dict[str, Any]:
    """Seconds of the loosest tolerance that is accurate enough; else the best error, within the budget."""
    method, begun, least = "Radau" if p.stiff else "DOP853", time.perf_counter(), np.inf

    def patient(t: float, y: np.ndarray) -> Any:
        if time.perf_counter() - begun > BUDGET:
            raise TimeoutError
        return slope(t, y)

    for rtol in TOLERANCES:
        before = time.perf_counter()
        try:
            found = solve_ivp(patient, (0.0, p.end), start, method=method, rtol=rtol, atol=rtol)
        except TimeoutError:
            break
        seconds = time.perf_counter() - before
        error = error_of(p, place(found.y[:, -1]), reference) if found.success else np.inf
        least = min(least, error)
        if error <= ACCURACY:
            if seconds < 2.0:
                again = lambda: solve_ivp(slope, (0.0, p.end), start, method=method, rtol=rtol, atol=rtol)
                seconds = best_of({0: again}, 3)[0]
            return {"rtol": rtol, "seconds": seconds, "calls": int(found.nfev), "error": error}
        if time.perf_counter() - begun + 2 * seconds > BUDGET:
            break
    return {"seconds": None, "error": least}


def scipy(p: Problem, reference: np.ndarray) -> dict[str, Any]:
    nq, tau = p.model.nq, np.zeros(p.model.nv)
    for name, value in p.inputs.items():
        tau[p.model.speeds(name)] = value

    @jax.jit
    def slope(y):
        q, v = y[:nq], y[nq:]
        return jnp.concatenate([mb.qdot(p.model, q, v), mb.forward_dynamics(p.model, q, v, tau)])

    start = np.concatenate([p.q, p.rate * p.direction])
    slope(start)
    rhs, place = lambda t, y: np.asarray(slope(y)), lambda y: place_of(p, y[:nq])
    result = {"scipy": to_accuracy(p, rhs, start, place, reference)}
    if p.minimal:
        m = p.minimal
        result["minimal"] = to_accuracy(p, m.slope, np.array(m.start), m.place, reference)
    return result


def measure(name: str, quick: bool, peers: bool, batches: bool) -> dict[str, Any]:
    p = PROBLEMS[name]()
    reference = reference_of(p)
    rounds = 3 if quick else 8
    choices, failed = choose(p, reference)
    row: dict[str, Any] = {"name": p.name, "group": p.group, "failed": failed}
    row["size"] = {"bodies": len(p.mechanism.bodies), "speeds": p.model.nv, "rows": p.model.nc}
    if choices:
        row |= single(p, choices, quick, rounds)
        row |= batch(p, choices, quick, rounds) if batches else {}
    if peers:
        row |= scipy(p, reference)
        run = exudyn_runs.search(p, reference, PEER_ACCURACY, 10.0 if quick else BUDGET)
        row["exudyn"] = run._asdict() if run else None
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"problems ({' '.join(PROBLEMS)})")
    parser.add_argument("--quick", action="store_true", help="pendulum and four-bar unless named, small batches")
    parser.add_argument("--no-peers", action="store_true", help="diffmb alone")
    parser.add_argument("--no-batch", action="store_true", help="single runs alone")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/simulation.json"), help="where results go")
    options = parser.parse_args()
    unknown = set(options.names) - PROBLEMS.keys()
    if unknown:
        parser.error(f"unknown problems: {' '.join(sorted(unknown))}")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    jax.jit(lambda x: x + 1).lower(np.ones(3)).compile()  # the first compilation also starts the backend
    rows = []
    for name in options.names or (["pendulum", "four-bar"] if options.quick else list(PROBLEMS)):
        rows.append(measure(name, options.quick, not options.no_peers, not options.no_batch))
        print(table(rows[-1:]), flush=True)
    for group in dict.fromkeys(row["group"] for row in rows):
        print(f"\n{group}\n" + table([row for row in rows if row["group"] == group]))
    versions = {"python": platform.python_version(), "jax": jax.__version__, "cores": os.cpu_count()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))
    print(f"results: {options.out}")


if __name__ == "__main__":
    main()
