"""How fast are tree dynamics? diffmb, Pinocchio, frax and MJX on the same trees, in the same run, float64.

Chains and binary trees of n revolute joints; forward dynamics, its gradient, inverse dynamics and mass matrix, as
`peers.py` writes them. Batch 1 is one plain call, larger batches go through `jax.vmap`. Pinocchio is called from
Python for one state at a time, in one thread; what jax compiles may use every core. Contenders that disagree by more
than 1e-8 stop the run. They take turns, several rounds, each keeping its best time, so that a busy machine disturbs all
alike: compare the ratios of one run, not microseconds of different runs.

    python experiments/benchmarks/tree_dynamics.py [--quick] [--n 7 30 100] [--batch 1 64 4096] [--peers ...]
"""

import argparse
import dataclasses
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import peers
from peers import Contender, Tree

TOLERANCE = 1e-8
BAR_BATCH = 4096  # the claims about speed are made for this batch
CHAIN_RUNS = 1000
MOST_MEMORY = 6e9  # bytes of scratch beyond which a call is left out, with a note
MOST_SECONDS = 8.0  # per contender and operation, all rounds together
ONE_ROUND = 0.25  # seconds a contender that runs one state after the other may take per round


@dataclasses.dataclass
class Row:
    """One contender, one operation: seconds to compile (traced ones) and microseconds per evaluation."""

    shape: str
    n: int
    batch: int
    operation: str
    contender: str
    microseconds: float | None = None
    compile_seconds: float | None = None
    compile_cpu_seconds: float | None = None
    error: float | None = None
    note: str = ""


def states(n: int, batch: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return list(rng.standard_normal((3, batch, n)))


class Compiled(NamedTuple):
    """A call without arguments for the whole batch; seconds by the clock and of CPU to trace, lower and compile it."""

    call: Callable[[], Any]
    seconds: float
    cpu_seconds: float
    scratch_bytes: float


def compile_call(contender: Contender, op: str, arrays: list[np.ndarray]) -> Compiled:
    f = contender.functions[op]
    if arrays[0].shape[0] == 1:
        arrays, batched = [a[0] for a in arrays], f
    else:
        batched = jax.vmap(f, in_axes=(None, 0, 0, 0))
    on_device = [jax.device_put(a) for a in arrays]
    start, cpu_start = time.perf_counter(), time.process_time()
    options = contender.options.get(op)
    compiled = jax.jit(batched, compiler_options=options).lower(contender.model, *on_device).compile()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    scratch = getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0)
    call = lambda: jax.block_until_ready(compiled(contender.model, *on_device))
    return Compiled(call, seconds, cpu_seconds, scratch)


def loop_call(contender: Contender, op: str, arrays: list[np.ndarray]) -> tuple[Callable[[], Any], int]:
    """A call that evaluates one state after the other, and how many: as many of the batch as fit in ONE_ROUND."""
    f, model, rows = contender.functions[op], contender.model, list(zip(*arrays, strict=True))
    start = time.perf_counter()
    for row in rows[:8]:
        f(model, *row)
    rows = rows[: max(1, int(ONE_ROUND / ((time.perf_counter() - start) / len(rows[:8]))))]

    def call() -> None:
        for row in rows:
            f(model, *row)

    return call, len(rows)


def first_results(contender: Contender, op: str, arrays: list[np.ndarray], call: Callable[[], Any]) -> np.ndarray:
    """Results for a few states, in the tree's order of joints; `call` gives those of the whole batch if traced."""
    few = min(4, len(arrays[0]))
    if contender.traced:
        whole = jax.tree.map(lambda a: a[None] if len(arrays[0]) == 1 else a, call())
        result = jax.tree.map(lambda a: np.asarray(a[:few]), whole)
    else:
        f, model = contender.functions[op], contender.model
        each = [jax.tree.map(np.copy, f(model, *row)) for row in itertools.islice(zip(*arrays, strict=True), few)]
        result = jax.tree.map(lambda *parts: np.stack(parts), *each)
    return contender.restore(op, result)


def best_of(calls: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, float]:
    """Best seconds per call. They take turns; short ones are repeated to last about 2 ms, long ones get fewer turns."""
    repeats, spent, best = {}, dict.fromkeys(calls, 0.0), dict.fromkeys(calls, np.inf)
    for name, call in calls.items():
        for _ in range(2):  # the second time it is warm
            start = time.perf_counter()
            call()
            seconds = time.perf_counter() - start
            repeats[name] = max(1, int(2e-3 / seconds))
            if seconds > MOST_SECONDS:
                spent[name] = best[name] = seconds
                break
    for _ in range(rounds):
        for name, call in calls.items():
            if spent[name] > MOST_SECONDS:
                continue
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            seconds = time.perf_counter() - start
            spent[name] += seconds
            best[name] = min(best[name], seconds / repeats[name])
    return best


def can(contender: str, n: int, batch: int, op: str) -> bool:
    """MJX compiles for minutes: it takes part where it is quickest to build."""
    return contender != "mjx" or (n <= 7 and batch == 64 and op in ("forward", "gradient"))


def measure(tree: Tree, batch: int, operations: Sequence[str], field: list[Contender], rounds: int) -> list[Row]:
    """All operations of all contenders take turns together, so that their ratios mean something on a busy machine."""
    rows, calls, evaluations, right = [], {}, {}, {}
    for op, contender in itertools.product(operations, field):
        if not can(contender.name, tree.n, batch, op):
            continue
        row = Row(tree.name, tree.n, batch, op, contender.name)
        arrays, key = contender.states(*states(tree.n, batch)), (contender.name, op)
        if contender.traced:
            call, row.compile_seconds, row.compile_cpu_seconds, scratch = compile_call(contender, op, arrays)
            evaluations[key] = batch
            if scratch > MOST_MEMORY:
                row.note = f"left out, it needs {scratch / 1e9:.0f} GB"
        else:
            call, evaluations[key] = loop_call(contender, op, arrays)
        rows.append(row)
        if not row.note:
            calls[key] = call
            got = first_results(contender, op, arrays, call)
            row.error = float(np.abs(got - right.setdefault(op, got)).max() / np.abs(got).max())
            if not row.error < TOLERANCE:
                raise SystemExit(f"{contender.name} disagrees with {field[0].name} by {row.error:.1e}: {row}")
    best = best_of(calls, rounds)
    for row in rows:
        key = (row.contender, row.operation)
        if key in best:
            row.microseconds = best[key] / evaluations[key] * 1e6
        gradient = (row.contender, "gradient")
        if row.operation == "forward" and best.get(key, 0.0) > 1.2 * best.get(gradient, np.inf):
            row.note = "slower than its own gradient: suspect the compiler, do not quote this figure"
    return rows


def long_chain(n: int) -> dict[str, float]:
    """A chain of n bodies: seconds to build and compile, microseconds, and |ID(FD(tau)) - tau| / |c| on 64 states."""
    start = time.perf_counter()
    contender = peers.diffmb(peers.chain(n))
    built = time.perf_counter() - start
    q, v, tau = states(n, 64)
    forward = compile_call(contender, "forward", [q, v, tau])
    vd = np.asarray(forward.call())
    inverse = jax.jit(jax.vmap(contender.functions["inverse"], in_axes=(None, 0, 0, 0)))
    back, bias = (np.asarray(inverse(contender.model, q, v, a)) for a in (vd, 0 * vd))
    residual = float((np.abs(back - tau).max(1) / np.abs(bias).max(1)).max())  # round-off goes with the largest load
    microseconds = best_of({"diffmb": forward.call}, 3)["diffmb"] / 64 * 1e6
    return {"n": n, "build": built, "compile": forward.seconds, "microseconds": microseconds, "residual": residual}


@dataclasses.dataclass
class Bar:
    """A claim of the project, and what this run measured."""

    claim: str
    measured: float
    limit: float
    at_least: bool

    @property
    def passed(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{'PASS' if self.passed else 'FAIL'}  {self.measured:8.2f} {sign} {self.limit:<6g} {self.claim}"


def bars(rows: list[Row], chains: dict[int, dict[str, float]]) -> list[Bar]:
    time_of = {(r.shape, r.n, r.batch, r.operation, r.contender): r.microseconds for r in rows}
    found = []
    for shape, n in dict.fromkeys((r.shape, r.n) for r in rows):
        where = f"{shape} n={n} batch={BAR_BATCH}"
        own = time_of.get((shape, n, BAR_BATCH, "forward", "diffmb"))
        for peer, factor in (("frax", 3.0), ("pinocchio", 1.0)):
            other = time_of.get((shape, n, BAR_BATCH, "forward", peer))
            if own and other:
                found.append(Bar(f"forward dynamics, times the rate of {peer}: {where}", other / own, factor, True))
        gradient = time_of.get((shape, n, BAR_BATCH, "gradient", "diffmb"))
        if own and gradient:
            found.append(Bar(f"gradient, times the cost of forward dynamics: {where}", gradient / own, 5.0, False))
    for row in rows:
        if row.contender == "diffmb" and row.operation == "forward" and row.n == 100 and row.compile_seconds:
            claim = f"seconds to compile forward dynamics: {row.shape} n=100 batch={row.batch}"
            found.append(Bar(claim, row.compile_seconds, 3.0, False))
    if {100, CHAIN_RUNS} <= chains.keys():
        growth = chains[CHAIN_RUNS]["compile"] / chains[100]["compile"]
        found.append(Bar(f"compile time of the chain of {CHAIN_RUNS}, times that of n=100", growth, 1.5, False))
    if CHAIN_RUNS in chains:
        residual = chains[CHAIN_RUNS]["residual"]
        claim = f"chain of {CHAIN_RUNS} bodies runs: residual of inverse dynamics, times 1e-9"
        found.append(Bar(claim, residual / 1e-9, 1.0, False))
    return found


def table(rows: list[Row], names: list[str]) -> str:
    """Microseconds per evaluation, and ratios to diffmb."""
    head = f"{'':9}{'n':>4}{'batch':>6}  {'operation':12}" + "".join(f"{name:>12}" for name in names)
    head += "".join(f"{name + '/diffmb':>18}" for name in names if name != "diffmb") + f"{'compile s':>11}"
    lines = [head]
    for key in dict.fromkeys((r.shape, r.n, r.batch, r.operation) for r in rows):
        cells = {r.contender: r for r in rows if (r.shape, r.n, r.batch, r.operation) == key}
        value = {name: cells[name].microseconds if name in cells else None for name in names}
        line = f"{key[0]:9}{key[1]:4d}{key[2]:6d}  {key[3]:12}"
        line += "".join(f"{value[name]:12.2f}" if value[name] else f"{'-':>12}" for name in names)
        for name in names:
            if name != "diffmb":
                ratio = value[name] / value["diffmb"] if value[name] and value.get("diffmb") else None
                line += f"{ratio:18.2f}" if ratio else f"{'-':>18}"
        own = cells.get("diffmb")
        lines.append(line + (f"{own.compile_seconds:11.2f}" if own and own.compile_seconds else ""))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="n = 7 and 30, batch 4096, two operations, no MJX")
    parser.add_argument("--n", type=int, nargs="+", help="numbers of joints (7 30 100)")
    parser.add_argument("--batch", type=int, nargs="+", help="batch sizes (1 64 4096)")
    parser.add_argument("--peers", nargs="+", choices=list(peers.BUILDERS), help="contenders (all that are installed)")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/tree_dynamics.json"), help="where results go")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    sizes = options.n or ([7, 30] if options.quick else [7, 30, 100])
    batches = options.batch or ([4096] if options.quick else [1, 64, 4096])
    operations = ("forward", "gradient") if options.quick else peers.OPERATIONS
    wanted = options.peers or [name for name in peers.BUILDERS if not (options.quick and name == "mjx")]
    names = [name for name in peers.installed() if name in wanted]
    jax.jit(lambda x: x + 1).lower(np.ones(3)).compile()  # the first compilation also starts the backend

    rows = []
    for n in sizes:
        for shape in peers.TREES:
            tree = peers.TREES[shape](n)
            field = [peers.BUILDERS[name](tree) for name in names if name != "mjx" or n <= 7]
            here = []
            for batch in batches:
                here += measure(tree, batch, operations, field, 5 if options.quick else 10)
            print(table(here, names), flush=True)
            rows += here
    chains = {} if options.quick else {n: long_chain(n) for n in (100, CHAIN_RUNS)} if "diffmb" in names else {}
    checks = bars(rows, chains) if "diffmb" in names else []

    print("\nmicroseconds per evaluation, best of the run\n" + table(rows, names))
    for row in rows:
        if row.note:
            print(f"{row.contender} {row.operation}, {row.shape} n={row.n} batch={row.batch}: {row.note}")
    for c in chains.values():
        seconds = f"built in {c['build']:.2f} s, compiled in {c['compile']:.2f} s"
        print(f"chain of {c['n']}: {seconds}, {c['microseconds']:.0f} us, residual {c['residual']:.1e}")
    print("\n".join(map(str, checks)))
    versions = {"python": platform.python_version(), "jax": jax.__version__, "cores": os.cpu_count()}
    result = {
        "versions": versions,
        "rows": [dataclasses.asdict(row) for row in rows],
        "chains": list(chains.values()),
        "bars": [{**dataclasses.asdict(bar), "passed": bar.passed} for bar in checks],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))
    print(f"results: {options.out}")


if __name__ == "__main__":
    main()
