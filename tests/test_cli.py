"""The command line: what it answers, with which code, and what is in the folder afterwards."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from studies import PENDULUM, cli, refused, write  # noqa: F401  (cli is a fixture)

import diffmb as mb
from diffmb import _cli, _trajectory
from diffmb._study import _watch

ROOT = Path(__file__).parent.parent


def table(path: Path) -> dict[str, np.ndarray]:
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(file))
    column = lambda k: [row[k] for row in rows[1:]]
    number = lambda x: np.array([float(a) for a in x]) if all(a and a[-1].isdigit() for a in x) else x
    return {name: number(column(k)) for k, name in enumerate(rows[0])}


def pendulum(length=0.8, mass=1.0):
    return mb.Mechanism([mb.rod("arm", length, mass=mass)], [mb.Revolute("A", "world", "arm")], gravity=(0, -9.81, 0))


def test_help_needs_no_jax():
    code = "import sys; from diffmb import _cli; _cli.parser().format_help(); print('jax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
    run = subprocess.run([sys.executable, "-m", "diffmb", "nonsense"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2 and "invalid choice: 'nonsense'" in run.stderr


def test_files_that_cannot_be_read(cli, tmp_path):  # noqa: F811
    refused(cli("run", tmp_path / "no.toml"), 2, "no.toml does not exist")
    refused(cli("run", tmp_path), 2, "is a folder; give the name of a TOML file")
    refused(cli("check", write(tmp_path, "")), 2, "is empty")
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    refused(cli("check", tmp_path / "binary.toml"), 2, "is no text")
    refused(cli("check", write(tmp_path, "a = [1,")), 2, "study.toml:1: not TOML")
    refused(cli("check", write(tmp_path, "schema_version = 1\n")), 2, "has no [mechanism]")
    refused(cli("run", write(tmp_path, PENDULUM), "--set", "time.points=true"), 2, "--set time.points is true")
    refused(cli("run", write(tmp_path, PENDULUM.replace("end = 0.4\n", ""))), 2, "has no [time] with an end")
    refused(cli("run", write(tmp_path, PENDULUM + "[extra]\nday = 2020-01-01\n")), 2, "extra is not known")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["binary.toml", "study.toml"]


@pytest.mark.skipif(os.name == "nt" or os.getuid() == 0, reason="root reads everything")
def test_a_file_without_permission(cli, tmp_path):  # noqa: F811
    path = write(tmp_path, PENDULUM)
    os.chmod(path, 0)
    refused(cli("run", path), 5, "cannot be read: Permission denied")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the pendulum, in its folder."""
    home = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_cli, "prepare_jax", list)
        assert _cli.main(["run", write(home, PENDULUM), "--out", str(home / "out"), "--quiet"]) == 0
    return home / "out"


def test_run_writes_everything(finished):
    names = {p.relative_to(finished).as_posix() for p in finished.rglob("*") if p.is_file()}
    wanted = {"results.npz", "results.json", "channels.csv", "plots/channels.png", "animation.html", "report.md"}
    assert wanted | {"config.toml", "study.json", "status.json"} <= names
    assert not [n for n in names if "tmp" in n or "lock" in n]
    study, status = (json.loads((finished / f"{n}.json").read_text()) for n in ("study", "status"))
    assert study["command"] == "run" and study["config"]["parameters"]["mass"] == 1.0 and "jax" in study["versions"]
    assert status["state"] == "finished" and set(status["files"]) >= wanted
    report = (finished / "report.md").read_text()
    assert "# Pendulum" in report and "plots/channels.png" in report and "successful" in report
    for name in [line.split("](")[1][:-1] for line in report.splitlines() if line.startswith("- [")]:
        assert (finished / name).exists(), name


def test_run_is_the_motion_that_python_finds(finished):
    model = mb.compile(pendulum())
    ts = np.linspace(0.0, 0.4, 9)
    own = mb.simulate(model, mb.assemble(model, {"A": -np.pi / 3}), ts)
    read = mb.load(finished / "results.npz", model)
    np.testing.assert_allclose(read.q, own.q, rtol=0, atol=1e-8)  # pieces: other steps, the same tolerance
    np.testing.assert_array_equal(read.ts, ts)
    columns = table(finished / "channels.csv")
    assert list(columns) == ["time [s]", "A [rad or m]", "tip.position.x [m]"]
    np.testing.assert_array_equal(columns["A [rad or m]"], read.q[:, 0])
    np.testing.assert_allclose(columns["tip.position.x [m]"], 0.8 * np.cos(read.q[:, 0]), atol=1e-12)


def test_sensitivity_agrees_with_jax(cli, tmp_path):  # noqa: F811
    text = PENDULUM + '[sensitivity]\nwhere = ["length", "mass"]\nresponses = ["last"]\nover_time = ["A"]\n'
    code, _, err = cli("sensitivity", write(tmp_path, text), "--out", tmp_path / "out")
    assert code == 0, err

    def angle(length):
        model = mb.compile(pendulum(length))
        return mb.simulate(model, mb.assemble(model, {"A": -jnp.pi / 3}), np.linspace(0, 0.4, 9)).coordinate("A")

    slope = np.asarray(jax.jit(jax.jacfwd(angle))(0.8))
    found = table(tmp_path / "out" / "sensitivity.csv")
    assert found["number"] == ["length", "mass"]
    np.testing.assert_allclose(found["derivative"], [slope[-1], 0.0], rtol=1e-7, atol=1e-9)
    curve = table(tmp_path / "out" / "sensitivity_over_time.csv")["d A / d length"]
    np.testing.assert_allclose(curve, slope, rtol=1e-7, atol=1e-9)
    report = (tmp_path / "out" / "report.md").read_text()
    assert "plots/influence_last.png" in report and "plots/over_time_1.png" in report


OPTIMISE = '[optimise]\nminimise = "miss"\nvariables.length = { lower = 0.5, upper = 1.5 }\n'


def test_optimise_finds_the_length(cli, tmp_path):  # noqa: F811
    """The angle at the end becomes the target; the length is then the root of the pendulum's own equation."""
    path = write(tmp_path, PENDULUM + OPTIMISE)
    code, _, err = cli("optimise", path, "--out", tmp_path / "out", "--set", "optimise.tolerance=1e-6")
    assert code == 0, err
    found = json.loads((tmp_path / "out" / "optimum.json").read_text())
    model = mb.compile(pendulum(found["numbers"]["length"]))
    angle = mb.simulate(model, mb.assemble(model, {"A": -np.pi / 3}), [0.0, 0.4]).coordinate("A")[-1]
    assert abs(float(angle) + 1.5) < 1e-5 and found["converged"]
    history = table(tmp_path / "out" / "history.csv")
    assert history["objective"][-1] < 1e-8 < history["objective"][0]
    names = {p.name for p in (tmp_path / "out").rglob("*")}
    assert {"convergence.png", "channels.png", "animation.html", "results.npz", "report.md"} <= names
    text = OPTIMISE.replace("lower = 0.5", "lower = 0.9")
    refused(cli("optimise", write(tmp_path, PENDULUM + text), "--out", tmp_path / "o2"), 2, "outside of its bounds 0.9")
    text = OPTIMISE + 'method = "SLSPQ"\n'
    refused(cli("optimise", write(tmp_path, PENDULUM + text), "--out", tmp_path / "o3"), 2, "did you mean 'SLSQP'")
    refused(cli("optimise", write(tmp_path, PENDULUM), "--out", tmp_path / "o4"), 2, "has no [optimise]")


def test_a_limit_that_cannot_hold(cli, tmp_path):  # noqa: F811
    text = PENDULUM + OPTIMISE + 'constraints = [{ response = "reach", lower = 9 }]\niterations = 5\n'
    message = refused(cli("optimise", write(tmp_path, text), "--out", tmp_path / "out"), 3, "not converged", "reach")
    assert "violated by" in message
    assert json.loads((tmp_path / "out" / "optimum.json").read_text())["converged"] is False
    assert json.loads((tmp_path / "out" / "status.json").read_text())["state"] == "failed"


def test_one_bad_member_of_a_sweep(cli, tmp_path):  # noqa: F811
    """Without mass nothing moves: the others are right, and the exit code says so."""
    text = PENDULUM + '[sweep]\nvariables.mass = { values = [2.0, 0.0, 1.0] }\nresponses = ["last"]\nchunk = 2\n'
    refused(cli("sweep", write(tmp_path, text), "--out", tmp_path / "out"), 4, "1 of 3 members failed; failed.csv")
    found = table(tmp_path / "out" / "sweep.csv")
    assert found["status"] == ["ok", "failed", "ok"]
    model = mb.compile(pendulum(0.8))
    angle = mb.simulate(model, mb.assemble(model, {"A": -np.pi / 3}), np.linspace(0, 0.4, 9)).coordinate("A")[-1]
    assert float(found["last"][2]) == pytest.approx(float(angle), abs=1e-8)
    assert table(tmp_path / "out" / "failed.csv")["member"] == [1.0]
    assert not (tmp_path / "o").exists()
    path = write(tmp_path, text.replace("values = [2.0, 0.0, 1.0]", "lower = 1"))
    refused(cli("sweep", path, "--out", tmp_path / "o"), 2, "needs values, or lower, upper and points")


FIT = '[fit]\ndata = "bench.csv"\nchannels = { angle = "A" }\nvariables.length = { start = 0.7, lower = 0.3 }\n'


def test_fit_recovers_the_length(cli, tmp_path, finished):  # noqa: F811
    measured = table(finished / "channels.csv")
    rows = [f"{t:.3f},{np.rad2deg(a):.9f}" for t, a in zip(measured["time [s]"], measured["A [rad or m]"], strict=True)]
    rows[3] = rows[3].split(",")[0] + ","  # a gap
    good = "time,angle\ns,deg\n" + "\n".join(rows) + "\n"
    path = write(tmp_path, PENDULUM + FIT)
    write(tmp_path, good, "bench.csv")
    code, _, err = cli("fit", path, "--out", tmp_path / "out")
    assert code == 0, err
    found = json.loads((tmp_path / "out" / "fit.json").read_text())
    low, high = found["intervals"]["length"]
    assert found["numbers"]["length"] == pytest.approx(0.8, abs=1e-6) and low <= 0.8 + 1e-8 and high >= 0.8 - 1e-8
    assert {"fit_1.csv", "fit_1.png"} <= {p.name for p in (tmp_path / "out").rglob("*")}
    for bad, words in (
        (good.replace("0.100,", "0.050,"), "row 5: time = 0.05 comes twice"),
        (good.replace("0.100,", "0.010,"), "row 5: time = 0.01 comes after 0.05"),
        (good.replace("0.100,", "0.1;"), "row 5: 1 fields instead of 2"),
        (good.replace("angle", "angel"), "there is no column 'angle'; did you mean 'angel'?"),
        (good.replace("deg", "grad"), 'has the unknown unit "grad"'),
        (good.replace("0.050,", "0.050,x"), "row 4: angle is 'x"),
        ("", "is empty"),
    ):
        write(tmp_path, bad, "bench.csv")
        refused(cli("fit", path, "--out", tmp_path / "bad"), 2, words)
        assert not (tmp_path / "bad").exists()
    for name, words in (("../bench.csv", "outside of the folder"), ("no.csv", "is not in"), ("/etc/x", "outside of")):
        path = write(tmp_path, PENDULUM + FIT.replace("bench.csv", name))
        refused(cli("fit", path, "--out", tmp_path / "bad"), 2, words)


def test_failures_of_the_solve(cli, tmp_path):  # noqa: F811
    """What was reached is kept, and the message says when and why."""
    text = PENDULUM.replace("pieces = 4", "pieces = 4\nmax_steps = 1\nrtol = 1e-10")
    refused(cli("run", write(tmp_path, text), "--out", tmp_path / "out"), 3, "the step limit was reached", "at t = ")
    assert "**Not finished:**" in (tmp_path / "out" / "report.md").read_text()
    assert mb.load(tmp_path / "out" / "results.npz", mb.compile(pendulum())).result == mb.RESULTS.max_steps
    path = write(tmp_path, PENDULUM.replace("A = ", "B = "))
    refused(cli("run", path, "--out", tmp_path / "o2"), 2, "names no joint")
    refused(cli("kinematics", write(tmp_path, PENDULUM), "--out", tmp_path / "o3"), 3, "not prescribed at")
    text = PENDULUM.replace('channels = ["A"', 'channels = ["AB"')
    refused(cli("run", write(tmp_path, text), "--out", tmp_path / "o4"), 2, "there is no channel 'AB'")


def test_kinematics_follows_the_drive(cli, tmp_path):  # noqa: F811
    drive = '[[mechanism.drives]]\nkind = "PositionDrive"\nname = "motor"\ntarget = "A"\n'
    drive += 'law = { kind = "sine", amplitude = "30 deg", speed = "1 Hz" }\n'
    text = PENDULUM.replace("[markers]", drive + "[markers]").replace('["A", "tip.position.x"]', '["A", "motor.load"]')
    text = text.replace('q = { A = "-60 deg" }', "")
    code, _, err = cli("kinematics", write(tmp_path, text), "--out", tmp_path / "out")
    assert code == 0, err
    found = table(tmp_path / "out" / "channels.csv")
    t = found["time [s]"]
    angle = np.pi / 6 * np.sin(2 * np.pi * t)
    np.testing.assert_allclose(found["A [rad or m]"], angle, atol=1e-9)
    inertia = 0.8**2 / 3 + 0.008**2 / 2 * 0  # about the hinge, across the rod
    load = -inertia * (2 * np.pi) ** 2 * angle + 9.81 * 0.4 * np.cos(angle)
    np.testing.assert_allclose(found["motor.load [N m or N]"], load, atol=1e-7)


def test_a_factory_from_the_command_line(cli, tmp_path, monkeypatch):  # noqa: F811
    (tmp_path / "my_bench.py").write_text(
        "import diffmb as mb\n"
        "def build(length, mass):\n"
        "    return mb.Mechanism([mb.rod('arm', length, mass=mass)], [mb.Revolute('A', 'world', 'arm')])\n"
        "number = 3\n"
        "def wrong(length, mass):\n"
        "    return 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    start, end = PENDULUM.index("[mechanism]"), PENDULUM.index("[markers]")
    path = write(tmp_path, PENDULUM[:start] + PENDULUM[end:])
    code, out, err = cli("check", path, "--mechanism", "my_bench:build")
    assert code == 0 and "Revolute" in out, err
    for name, words in (
        ("my_bench:missing", "has no missing"),
        ("my_bench:number", "is no function"),
        ("my_bench:wrong", "must return a diffmb.Mechanism"),
        ("no_such_module:f", "is the module installed?"),
        ("my_bench", "write package.module:function"),
        ("os;x:f", "write package.module:function"),
    ):
        refused(cli("check", path, "--mechanism", name), 2, words)
    path = write(tmp_path, (PENDULUM[:start] + PENDULUM[end:]).replace("mass =", "mas ="))
    refused(cli("check", path, "--mechanism", "my_bench:build"), 2, "[parameters] are its arguments")


def test_warnings_are_lines(cli, tmp_path):  # noqa: F811
    code, _, err = cli("check", write(tmp_path, PENDULUM.replace('"-60 deg"', "-60")))
    assert code == 0 and 'diffmb: warning: start.q.A = -60 rad is large; did you mean "-60 deg"?' in err


def test_debug_shows_where(cli, tmp_path):  # noqa: F811
    from diffmb._errors import StudyError

    with pytest.raises(StudyError, match="does not exist"):
        _cli.main(["run", str(tmp_path / "no.toml"), "--debug"])


def test_extras_that_are_missing(cli, tmp_path, monkeypatch):  # noqa: F811
    """Plots are left out with a line that says what to install; what cannot be done without is refused."""
    own = _trajectory.import_module
    monkeypatch.setattr(_trajectory, "import_module", lambda name: _missing(own, name))
    code, _, err = cli("run", write(tmp_path, PENDULUM), "--out", tmp_path / "out")
    assert code == 0 and 'pip install "diffmb[viz]"' in err
    assert not (tmp_path / "out" / "plots" / "channels.png").exists()
    assert (tmp_path / "out" / "animation.html").exists()
    refused(cli("view", write(tmp_path, PENDULUM)), 2, 'mb.view needs viser', 'pip install "diffmb[viz]"')
    path = write(tmp_path, PENDULUM.replace("[output]", '[output]\nformat = "nc"'))
    refused(cli("run", path, "--out", tmp_path / "o2"), 2, 'pip install "diffmb[io]"')


def _missing(own, name):
    if name.split(".")[0] in ("matplotlib", "viser", "xarray"):
        raise ImportError(name)
    return own(name)


def test_the_cache_is_optional(monkeypatch, tmp_path, capsys):
    """A folder that cannot be used is passed over with a warning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _cli.cache_folder() == tmp_path / "diffmb" / "jax"
    assert (tmp_path / "diffmb" / "jax").stat().st_mode & 0o077 == 0
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _cli.cache_folder() is None
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    monkeypatch.setattr(_cli, "import_module", lambda name: _Jax())
    said = _cli.prepare_jax()
    assert said[0] == "float64" and "warning: no compile cache" in capsys.readouterr().err


class _Jax:
    """Stands for jax, whose settings must stay as they are."""

    class config:
        jax_compilation_cache_dir = None

        @staticmethod
        def update(name, value):
            assert name == "jax_enable_x64" and value is True


def test_doctor(cli):  # noqa: F811
    code, out, _ = cli("doctor")
    assert code == 0
    for word in ("python 3", "jax 0", "devices: ", "precision: float64", "extra viz", "cache", "disk: ", "CPU"):
        assert word in out, word


DOUBLE_INTEGRATOR = '''
schema_version = 1
[mechanism]
gravity = [0, 0, 0]
bodies = [{ kind = "sphere", name = "cart", radius = 0.1, mass = 1.0 }]
joints = [{ kind = "Prismatic", name = "x", parent = "world", child = "cart", axis = "x" }]
[time]
end = 1.0
[output]
channels = ["x"]
plots = false
[control]
inputs = { x = {} }
duration = "1 s"
minimise = "effort"
end = { q = { x = 1.0 }, v = { x = 0.0 } }
nodes = 4
'''


def test_control_finds_the_effort_of_a_double_integrator(cli, tmp_path):  # noqa: F811
    """A mass moved by 1 m in 1 s from rest to rest: u = 6 - 12 t and cost 12, for m = 1 (Bryson and Ho 1975)."""
    code, _, err = cli("control", write(tmp_path, DOUBLE_INTEGRATOR), "--out", tmp_path / "out")
    assert code == 0, err
    found = json.loads((tmp_path / "out" / "control.json").read_text())
    assert found["cost"] == pytest.approx(12.0, rel=1e-6) and found["converged"]
    inputs = table(tmp_path / "out" / "inputs.csv")
    np.testing.assert_allclose(inputs["x"][1:], 6.0 - 12.0 * inputs["time [s]"][1:], atol=1e-5)
    assert table(tmp_path / "out" / "channels.csv")["x [rad or m]"][-1] == pytest.approx(1.0, abs=1e-6)
    path = write(tmp_path, DOUBLE_INTEGRATOR.replace('"effort"', '"efort"'))
    refused(cli("control", path, "--out", tmp_path / "o2"), 2, "did you mean 'effort'?")


def test_control_interrupted_and_resumed(cli, tmp_path, monkeypatch):  # noqa: F811
    """Stopped after three iterations, a bounded problem goes on to the same bits as one that was left alone.

    |u| <= U = 4.5: full push, u = U (1/2 - t) / b for |1/2 - t| < b = 3^-1/2 / 2, full brake; cost 2 U^2 (1/2 - 2b/3).
    """
    path = write(tmp_path, DOUBLE_INTEGRATOR.replace("{ x = {} }", "{ x = { lower = -4.5, upper = 4.5 } }"))
    assert cli("control", path, "--out", tmp_path / "whole")[0] == 0
    own = _watch.Watch.tell

    def tell(self, done, total, text=""):
        self.stopped = done >= 3
        own(self, done, total, text)

    with monkeypatch.context() as patch:
        patch.setattr(_watch.Watch, "tell", tell)
        refused(cli("control", path, "--out", tmp_path / "out"), 130, "--resume goes on")
    code, _, err = cli("control", path, "--out", tmp_path / "out", "--resume")
    assert code == 0 and "going on after 3 iterations" in err, err
    for name in ("control.json", "inputs.csv", "channels.csv", "results.npz"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    found = json.loads((tmp_path / "out" / "control.json").read_text())
    assert found["iterations"] > 4 and found["cost"] == pytest.approx(2 * 4.5**2 * (0.5 - 3**-0.5 / 3), rel=1e-2)
