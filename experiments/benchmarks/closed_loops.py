"""How fast are closed loops? Accelerations with multipliers, and their gradient; diffmb and Pinocchio in the same run.

Four-bar, Andrews' squeezer, a row of six four-bar windows; float64. Pinocchio is called from Python for one state at a
time, in one thread (its derivative call gives whole Jacobians, diffmb's the gradient of one weighted sum). Contenders
whose accelerations disagree by more than 1e-7 stop the run. Compare ratios of one run.

    python experiments/benchmarks/closed_loops.py [--quick] [--batch 1 64 4096]
"""

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np
from loops import Loops, andrews, mechanism, pinocchio, states, windows
from peers import Contender
from tree_dynamics import best_of, compile_call, loop_call

import diffmb as mb

TOLERANCE = 1e-7


def contenders(m: Loops, model: mb.Model, weights: np.ndarray) -> list[Contender]:
    """diffmb, and Pinocchio where it is installed, as functions of (model, q, v, tau)."""
    order = [int(name[1:]) for name in model.inboard]  # the body of each speed

    def accelerations(model: Any, q, v, tau):
        d = mb.dynamics(model, q, v, tau)
        return d.vd, d.lam

    def loss(q, v, tau, model):
        return weights @ mb.dynamics(model, q, v, tau).vd

    gradient = lambda model, q, v, tau: jax.grad(loss, (0, 1, 2))(q, v, tau, model)
    own = Contender("diffmb", True, np.arange(model.nv), model, {"dynamics": accelerations, "gradient": gradient})
    try:
        forward, slopes = pinocchio(m, order)
    except ImportError:
        return [own]
    functions = {"dynamics": lambda _, *x: forward(*x), "gradient": lambda _, *x: slopes(*x)}
    return [own, Contender("pinocchio", False, np.arange(model.nv), None, functions)]


def measure(m: Loops, batch: int, rounds: int) -> list[dict[str, Any]]:
    model = mb.compile(mechanism(m))
    arrays = states(m, model, batch)
    weights = np.random.default_rng(0).standard_normal(model.nv)
    rows, calls, evaluations, field = [], {}, {}, contenders(m, model, weights)
    for contender in field:
        for op in ("dynamics", "gradient"):
            row = {"mechanism": m.name, "batch": batch, "operation": op, "contender": contender.name}
            if contender.traced:
                call, row["compile_seconds"], _, scratch = compile_call(contender, op, arrays)
                row["scratch_megabytes"] = scratch / 1e6
                evaluations[contender.name, op] = batch
            else:
                call, evaluations[contender.name, op] = loop_call(contender, op, arrays)
            calls[contender.name, op] = call
            rows.append(row)
    if len(field) > 1:
        vd = np.atleast_2d(np.asarray(calls["diffmb", "dynamics"]()[0]))[0]
        other = field[1].functions["dynamics"](None, *(a[0] for a in arrays))
        error = float(np.abs(vd - other).max() / np.abs(other).max())
        if not error < TOLERANCE:
            raise SystemExit(f"{m.name}: diffmb and Pinocchio disagree by {error:.1e}")
        rows[0]["error"] = error
    best = best_of(calls, rounds)
    for row in rows:
        key = (row["contender"], row["operation"])
        row["microseconds"] = best[key] / evaluations[key] * 1e6
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':10}{'batch':>6}  {'operation':10}{'diffmb us':>11}{'pinocchio us':>14}{'ratio':>8}{'compile s':>11}"]
    for key in dict.fromkeys((r["mechanism"], r["batch"], r["operation"]) for r in rows):
        cells = {r["contender"]: r for r in rows if (r["mechanism"], r["batch"], r["operation"]) == key}
        own, other = cells["diffmb"], cells.get("pinocchio")
        line = f"{key[0]:10}{key[1]:6d}  {key[2]:10}{own['microseconds']:11.2f}"
        peer = other["microseconds"] if other else float("nan")
        line += f"{peer:14.2f}{peer / own['microseconds']:8.2f}"
        lines.append(line + f"{own['compile_seconds']:11.2f}")
    for name, batch in dict.fromkeys((r["mechanism"], r["batch"]) for r in rows):
        own = {r["operation"]: r["microseconds"] for r in rows
               if (r["mechanism"], r["batch"], r["contender"]) == (name, batch, "diffmb")}  # fmt: skip
        lines.append(f"{name}, batch {batch}: gradient / dynamics = {own['gradient'] / own['dynamics']:.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="four-bar, batch 256")
    parser.add_argument("--batch", type=int, nargs="+", help="batch sizes (1 4096)")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/closed_loops.json"), help="where results go")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    rows = []
    for m in [windows(1)] if options.quick else [windows(1), andrews(), windows(6)]:
        for batch in options.batch or ([256] if options.quick else [1, 4096]):
            rows += measure(m, batch, 3 if options.quick else 8)
            print(table([r for r in rows if r["mechanism"] == m.name]), flush=True)
    print("\n" + table(rows))
    versions = {"python": platform.python_version(), "jax": jax.__version__, "cores": os.cpu_count()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))
    print(f"results: {options.out}")


if __name__ == "__main__":
    main()
