"""What the documents promise, done: their code runs, their commands exist, their tables are true."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """(line number, content) of the fenced blocks in a language."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: m.start(1)].count("\n"), m.group(1)) for m in found]


def run(text: str, name: str, namespace: dict):
    for line, block in blocks(text, "python"):
        exec(compile("\n" * line + block, str(ROOT / name), "exec"), namespace)


@pytest.fixture
def double_precision():
    before = jax.config.values["jax_enable_x64"]
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def test_readme_code_runs(double_precision):
    namespace = {"__name__": "readme"}
    run(README, "README.md", namespace)
    # The claims made in the comments of the blocks.
    assert abs(namespace["load"]).max() < 1e-12
    assert abs(namespace["M"] @ namespace["vd"] + namespace["c"] - namespace["tau"]).max() < 1e-12
    assert namespace["vd_pushed"].shape == namespace["vd"].shape
    assert namespace["J"].shape == (6, namespace["model"].nv)


def test_contributing_joint_runs(double_precision):
    import diffmb as mb

    namespace = {"__name__": "diffmb._joints._roller", "__package__": "diffmb._joints"}
    run(CONTRIBUTING, "CONTRIBUTING.md", namespace)
    radius, mass = 0.3, 2.0
    mechanism = mb.Mechanism(
        bodies=[mb.cylinder("wheel", radius, 0.1, mass=mass)],
        joints=[namespace["Roller"]("roll", "world", "wheel", radius=radius)],
    )
    model = mb.compile(mechanism)
    M = mb.mass_matrix(model, model.neutral())
    assert abs(float(M[0, 0]) - 1.5 * mass * radius**2) < 1e-12


def test_joint_table_is_true():
    import diffmb as mb

    table = re.search(r"^\| joint \|.*?\n\n", README, re.MULTILINE | re.DOTALL).group()
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \| ([^|]*) \|$", table, re.MULTILINE)
    assert len(rows) >= 10
    for name, nq, nv in rows:
        kind = getattr(mb, name)
        if nq.isdigit():
            assert (kind.nq, kind.nv) == (int(nq), int(nv)), name
    joints = {n for n in dir(mb) if isinstance(getattr(mb, n), type) and hasattr(getattr(mb, n), "retract")}
    missing = {n for n in joints if not n.startswith("Abstract")} - {name for name, _, _ in rows}
    assert not missing, "give each joint a row in the README"


def test_quoted_errors_are_ours():
    table = re.search(r"^\| `MechanismError` says.*?\n\n", README, re.MULTILINE | re.DOTALL).group()
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "diffmb").rglob("*.py"))
    quoted = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(quoted) >= 4
    for text in quoted:
        assert text in source, f"no error says {text!r}"


def commands() -> list[str]:
    return [line for text in (README, CONTRIBUTING) for _, block in blocks(text, "sh") for line in block.splitlines()]


def test_continuous_integration_runs_the_readme_command():
    [command] = [c for c in commands() if c.endswith("-n 2")]
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[-1] == command
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_commands_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed_by_us = {"pre-commit"}  # of the `dev` extra, which the tests do not need
    parts = [shlex.split(part) for command in commands() for part in command.split("&&")]
    assert parts
    for program, *arguments in parts:
        known = program in {"."} | installed_by_us or (ROOT / program).exists() or shutil.which(program)
        assert known, f"{program} is not there"
        for argument in arguments:
            if extra := re.fullmatch(r"\.\[(.+)\]", argument):
                assert extra.group(1) in extras, argument
            if argument.endswith(".py"):
                assert (ROOT / argument).exists(), argument


def test_links_and_files_exist():
    for text in (README, CONTRIBUTING):
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), target
        for path in re.findall(r"`((?:experiments|configs|diffmb|tests)/[\w./]+)`", text):
            assert (ROOT / path).exists(), path
        for extra in re.findall(r"extra `(\w+)`|`(\w+)` extra", text):
            assert "".join(extra) in (ROOT / "pyproject.toml").read_text()


def test_main_job_runs(tmp_path):
    """The first command of the README, to the optimum that it promises."""
    [command] = [c for c in commands() if "optimise" in c]
    program, *arguments = shlex.split(command.split("&&")[-1])
    arguments = [str(ROOT / a) if a.startswith("configs/") else a for a in arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run([program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out" / "four_bar_optimise"
    found = json.loads((out / "optimum.json").read_text())
    first, last = re.search(r"rms load falls from ([\d.]+) to ([\d.]+) N in (\d+) simulations", README).groups()[:2]
    history = (out / "history.csv").read_text().splitlines()
    assert found["converged"] and found["optimality"] < 1e-6
    assert f"{found['value']:.1f}" == last and f"{float(history[1].split(',')[2]):.1f}" == first
    for name in ("report.md", "animation.html", "plots/channels.png", "plots/convergence.png", "results.npz"):
        assert (out / name).stat().st_size > 500, name
