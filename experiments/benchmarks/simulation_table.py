"""The results of `simulation.py` as a table: one column for each problem, bars of the project on the right."""

from typing import Any

BARS = {  # claims of the project: limit, and whether more is better
    "forward_cold": (3.0, False),
    "gradient_cold": (8.0, False),
    "gradient_ratio": (4.0, False),
    "batch_gradient_ratio": (4.0, False),
    "over_exudyn": (50.0, True),
    "over_exudyn_batch": (300.0, True),
}


def _bytes(n: float) -> str:
    return f"{n / 1e6:.2f} MB" if n < 1e8 else f"{n / 1e9:.2f} GB"


def _seconds(s: float | None) -> str:
    if s is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if s * factor >= 1.0:
            return f"{s * factor:.3g} {unit}"
    return f"{s * 1e6:.3g} us"


def _judged(row: dict[str, Any], key: str, value: float | None, form: str) -> str:
    """A value, and whether it keeps its bar."""
    if value is None:
        return "-"
    limit, more = BARS[key]
    kept = value >= limit if more else value <= limit
    return f"{value:{form}} {'ok' if kept else 'MISS'}"


def _peer(row: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """Seconds, tolerance, and times the seconds of diffmb."""
    found = row.get(name)
    title = "SciPy, accelerations by diffmb" if name == "scipy" else "SciPy, one freedom in numpy"
    if not found:
        return [(title, "-"), ("  / diffmb, single", "-")]
    if found["seconds"] is None:
        return [(title, f"error {found['error']:.0e}"), ("  / diffmb, single", "-")]
    ratio = f"{found['seconds'] / row['forward_seconds']:.1f}" if "method" in row else "-"
    return [(title, f"{_seconds(found['seconds'])} ({found['rtol']:g})"), ("  / diffmb, single", ratio)]


def _exudyn(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Seconds and steps of Exudyn, and how many times longer than diffmb it takes."""
    run = row.get("exudyn")
    titles = ["Exudyn", "  method", "  step", "  end error", "x faster than Exudyn, single", "  per run in the batch"]
    if not run:
        return [(title, "-") for title in titles]
    own = "method" in row
    cells = [
        _seconds(run["seconds"]) + (" extrapolated" if run["guessed"] else ""),
        run["method"],
        _seconds(run["step"]),
        f"{run['error']:.1e}",
        _judged(row, "over_exudyn", run["seconds"] / row["forward_seconds"] if own else None, ".1f"),
        _judged(row, "over_exudyn_batch", run["seconds"] / row["batch_seconds"] if "batch" in row else None, ".0f"),
    ]
    return list(zip(titles, cells, strict=True))


def _many(row: dict[str, Any]) -> list[tuple[str, str]]:
    details = ("method", "members (given up)", "attempts: median, most", "gradient / run")
    titles = ["  per run in a batch", *(f"    {detail}" for detail in details)]
    if "batch" not in row:
        return [(title, "-") for title in titles]
    many = row["batch"]
    cells = [
        _seconds(row["batch_seconds"]),
        many["method"],
        f"{many['batch']} ({many['failed']})",
        f"{many['usual_attempts']}, {many['attempts']}",
        _judged(row, "batch_gradient_ratio", row["batch_gradient_ratio"], ".2f"),
    ]
    return list(zip(titles, cells, strict=True))


def _own(row: dict[str, Any]) -> list[tuple[str, str]]:
    if "method" not in row:
        return [("diffmb", "does not get there")]
    check = row["gradient_check"]
    cells = [
        ("diffmb", f"{row['method']}, {row['rtol']:g}"),
        ("  steps (rejected)", f"{row['steps']} ({row['rejected']})"),
        ("  end error", f"{row['error']:.1e}"),
        ("  one run", _seconds(row["forward_seconds"])),
        ("    per attempt", _seconds(row["forward_seconds"] / (row["steps"] + row["rejected"]))),
        ("  its gradient", _seconds(row["gradient_seconds"])),
        ("  gradient / run", _judged(row, "gradient_ratio", row["gradient_ratio"], ".2f")),
        ("  gradient, by differences", "-" if check is None else f"{check:.0e}"),
        *_many(row),
        ("  cold run, s", _judged(row, "forward_cold", row["forward_cold"], ".2f")),
        ("    of it tracing", f"{row['forward_trace']:.2f}"),
        ("  cold gradient, s", _judged(row, "gradient_cold", row["gradient_cold"], ".2f")),
        ("    of it tracing", f"{row['gradient_trace']:.2f}"),
    ]
    sizes = row["gradient_bytes"]
    memory = [(f"  scratch, {n} stored steps", _bytes(sizes[n]) if n in sizes else "-") for n in (256, 1024, 4096)]
    return [*cells, *memory]


def _cells(row: dict[str, Any]) -> list[tuple[str, str]]:
    size = row["size"]
    head = ("bodies, speeds, rows", f"{size['bodies']}, {size['speeds']}, {size['rows']}")
    return [head, *_own(row), *_exudyn(row), *_peer(row, "scipy"), *_peer(row, "minimal")]


def table(rows: list[dict[str, Any]]) -> str:
    columns = [_cells(row) for row in rows]
    longest = max(columns, key=len)
    lines = [f"{'':32}" + "".join(f"{row['name']:>22}" for row in rows)]
    for k, (title, _) in enumerate(longest):
        values = [column[k][1] if len(column) == len(longest) else dict(column).get(title, "") for column in columns]
        lines.append(f"{title:32}" + "".join(f"{value:>22}" for value in values))
    lines += [f"{row['name']}: no success with {', '.join(row['failed'])}" for row in rows if row["failed"]]
    for row in rows:
        for many in row.get("batches", ()):
            if many["failed"]:
                given_up = f"{many['failed']} of {many['batch']} given up after {many['attempts']} attempts"
                lines.append(f"{row['name']}: batch with {many['method']}: {given_up}, median {many['usual_attempts']}")
        if row.get("batch", {}).get("lost_in_gradient"):
            lines.append(f"{row['name']}: {row['batch']['lost_in_gradient']} gradients of the batch did not arrive")
    return "\n".join(lines)
