"""The shape of the house, read from the source with `ast`: what may import what, and how large a piece may be."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "diffmb"

# A module imports only from itself and from those before it. A new module takes its place in this list.
ORDER = (
    "_errors",
    "_names",
    "_lazy",
    "_types",
    "_roots",
    "_straight",
    "_spatial",
    "_bodies",
    "_joints",
    "_constraints",
    "_connections",
    "_mechanism",
    "_topology",
    "_closing",
    "_validate",
    "_model",
    "_known",
    "_checks",
    "_captured",
    "_tiles",
    "_functions",
    "_batch",
    "_product",
    "_definite",
    "_pseudo_inverse",
    "_walk",
    "_sweep",
    "_configuration",
    "_kinematics",
    "_closure",
    "_loads",
    "_dynamics",
    "_saddle",
    "_follow",
    "_constrained",
    "_reactions",
    "_mobility",
    "_assembly",
    "_kinematic_simulation",
    "_linear",
    "_motion",
    "_inputs",
    "_results",
    "_plan",
    "_knots",
    "_meter",
    "_manifold",
    "_event",
    "_watch",
    "_esdirk",
    "_apart",
    "_quiet",
    "_progress",
    "_advance",
    "_replay",
    "_timing",
    "_solver",
    "_diagnosis",
    "_resample",
    "_over_time",
    "_trajectory",
    "_channels",
    "_arguments",
    "_simulate",
    "_fixed_rank",
    "_independent",
    "_linearise",
    "_balance",
    "_equilibrium",
    "_parameters",
    "_program",
    "_curves",
    "_sensitivity",
    "_batches",
    "_evaluations",
    "_transforms",
    "_optimality",
    "_problem",
    "_methods",
    "_optimum",
    "_optimise",
    "_units",
    "_measurement",
    "_experiment",
    "_identify",
    "_fit",
    "_studies",
    "_control",
    "control",
    "_formulations",
    "formulations",
    "_io",
    "_config",
    "_viewer",
    "_plots",
    "_literate",
    "_study",
    "_cli",
    "__main__",
)
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}
EXPERIMENT_IMPORTS = {"diffmb", "jax", "numpy", "matplotlib"} | sys.stdlib_module_names

FILES = sorted(PACKAGE.rglob("*.py"))
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.py"))
BENCHMARKS = sorted((ROOT / "experiments" / "benchmarks").glob("*.py"))
PEERS = {"diffrax", "equinox", "exudyn", "frax", "mujoco", "pinocchio", "scipy"}
BENCHMARK_IMPORTS = EXPERIMENT_IMPORTS | PEERS | {path.stem for path in BENCHMARKS}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(path: Path) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of every import, wherever in the file it stands."""
    here = path.relative_to(ROOT).with_suffix("").parts
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            found += [(node.lineno, ".".join([*base, alias.name])) for alias in node.names]
    return found


def unit_of(dotted: str) -> str | None:
    """The member of ORDER a dotted name belongs to."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "diffmb" and len(parts) > 1 else None


def files(paths):
    return pytest.mark.parametrize("path", paths, ids=name_of)


def test_order_lists_every_module():
    units = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()} - {"__init__"}
    assert not units - set(ORDER), "give the new module its place in ORDER"


@files(FILES)
def test_imports_go_one_way(path):
    if path == PACKAGE / "__init__.py":
        return
    own = unit_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for line, dotted in imports_of(path):
        unit = unit_of(dotted)
        if unit is None:
            assert dotted.split(".")[0] != "diffmb", f"{name_of(path)}:{line} imports the package it is part of"
        elif {own, unit} <= set(ORDER):
            assert ORDER.index(unit) <= ORDER.index(own), f"{name_of(path)}:{line} imports {unit}, which comes later"


@files(FILES)
def test_third_party_imports_are_declared(path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {d.split(">")[0].split("=")[0].split("[")[0] for d in project["dependencies"]}
    for line, dotted in imports_of(path):
        top = dotted.split(".")[0]
        known = top in declared | {"diffmb"} | sys.stdlib_module_names
        assert known, f"{name_of(path)}:{line} imports {top}, which is no dependency"


def test_topology_knows_no_jax():
    path = PACKAGE / "_topology.py"
    if path.exists():
        tops = {dotted.split(".")[0] for _, dotted in imports_of(path)}
        assert not tops & {"jax", "jaxtyping", "equinox"}


def classes() -> dict[str, ast.ClassDef]:
    return {n.name: n for path in FILES for n in ast.walk(tree_of(path)) if isinstance(n, ast.ClassDef)}


def bases_of(node: ast.ClassDef) -> list[str]:
    bases = [b.value if isinstance(b, ast.Subscript) else b for b in node.bases]
    return [b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in bases]


def declares_abstract(node: ast.ClassDef) -> bool:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and any("abstract" in ast.unparse(d) for d in item.decorator_list):
            return True
        if isinstance(item, ast.AnnAssign) and re.match(r"(\w+\.)?Abstract(Class)?Var\b", ast.unparse(item.annotation)):
            return True
    return False


def test_every_class_is_abstract_or_final():
    known = classes()
    for name, node in known.items():
        abstract = name.lstrip("_").startswith("Abstract")
        parents = [b for b in bases_of(node) if b in known]
        for base in parents:
            assert base.lstrip("_").startswith("Abstract"), f"{name} extends {base}, which is concrete: compose instead"
        if declares_abstract(node):
            assert abstract, f"{name} has abstract members: call it Abstract{name}"
        if abstract:
            assert parents or declares_abstract(node), f"{name} is called abstract and leaves nothing to write"


def test_exports_exist_and_say_so():
    import diffmb

    for node in ast.walk(tree_of(PACKAGE / "__init__.py")):
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                assert alias.asname == alias.name, f"write `from .{node.module} import {alias.name} as {alias.name}`"
                assert not alias.name.startswith("_") or alias.name.startswith("__")
                assert hasattr(diffmb, alias.name), alias.name


@files(FILES)
def test_files_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{lines} lines: split it"


@files(FILES)
def test_functions_are_short(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{name_of(path)}:{node.lineno} {node.name} has {lines} lines"


@files(FILES)
def test_modules_explain_themselves(path):
    if path.name != "__init__.py":
        assert ast.get_docstring(tree_of(path)), "open the module with what it computes"


@files(FILES)
def test_nothing_runs_code_from_data(path):
    for line, dotted in imports_of(path):
        assert dotted.split(".")[0] not in UNSAFE_MODULES, f"{name_of(path)}:{line} imports {dotted}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", "") not in ("eval", "exec"), f"{name_of(path)}:{node.lineno}"
            assert not any(k.arg == "allow_pickle" for k in node.keywords), f"{name_of(path)}:{node.lineno}"


def check_outside(path: Path, allowed: set[str]):
    for line, dotted in imports_of(path):
        parts = dotted.split(".")
        assert parts[0] in allowed, f"{name_of(path)}:{line} imports {dotted}"
        private = parts[0] == "diffmb" and any(p.startswith("_") for p in parts)
        assert not private, f"{name_of(path)}:{line} uses a private part of diffmb"


@files(EXPERIMENTS)
def test_experiments_use_the_public_face_only(path):
    check_outside(path, EXPERIMENT_IMPORTS)
    assert (ROOT / "configs" / f"{path.stem}.toml").exists(), "an experiment has a config of the same stem"


@files(BENCHMARKS)
def test_benchmarks_use_the_public_face_and_peers_only(path):
    check_outside(path, BENCHMARK_IMPORTS)


def test_import_is_silent_and_changes_nothing():
    code = """
import json, logging, jax
from jax._src import xla_bridge
before, level = dict(jax.config.values), logging.getLogger().level
import diffmb
for name in dir(diffmb):
    getattr(diffmb, name)
changed = [k for k, v in jax.config.values.items() if before.get(k) != v]
print(json.dumps([changed, logging.getLogger().level != level, xla_bridge.backends_are_initialized()]))
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    # The last says that no array is made: jax.distributed.initialize must still be possible after the import.
    assert json.loads(run.stdout) == [[], False, False]
