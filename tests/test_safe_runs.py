"""Long work is safe: folders, locks, checkpoints, interruption, full disks; and the same study gives the same bytes."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from studies import PENDULUM, cli, refused, write  # noqa: F401  (cli is a fixture)

from diffmb._errors import StudyError
from diffmb._io import _files
from diffmb._study import _folder, _watch
from diffmb._study._checkpoint import CURRENT, EVALUATIONS, PREVIOUS, Log, load_checkpoint, save_checkpoint
from diffmb._study._folder import open_folder

ROOT = Path(__file__).parent.parent
ABOUT = {"hash": "ab" * 32, "command": "test"}


def opened(path, about=ABOUT, **more):
    return open_folder(path, about, **{"resume": False, "overwrite": False, **more})


def state(folder) -> str:
    return json.loads((folder / "status.json").read_text())["state"]


# --- folders --------------------------------------------------------------------------------------------------------


def test_folders_are_not_overwritten_by_accident(cli, tmp_path):  # noqa: F811
    path = write(tmp_path, PENDULUM)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    refused(cli("run", path, "--out", tmp_path / "mine"), 2, "a folder with other things in it (thesis.tex)")
    refused(cli("run", path, "--out", tmp_path / "mine", "--overwrite"), 2, "with other things in it")
    refused(cli("run", path, "--out", path), 2, "is a file, not a folder")
    refused(cli("run", path, "--out", tmp_path / "o", "--resume", "--overwrite"), 2, "exclude each other")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that was not disturbed."""
    from diffmb import _cli

    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_cli, "prepare_jax", list)
        assert _cli.main(["run", write(home, PENDULUM), "--out", str(home / "out"), "--quiet"]) == 0
    return home / "out"


def same(a: Path, b: Path) -> None:
    """The files of results have the same bytes."""
    for name in ("results.npz", "channels.csv", "animation.html", "report.md", "plots/channels.png", "study.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


def test_interrupted_and_resumed(cli, tmp_path, monkeypatch, whole):  # noqa: F811
    """Ctrl-C after the second of four pieces; then other studies are refused, and this one goes on to the same bits."""
    path, out = write(tmp_path, PENDULUM), tmp_path / "out"
    own = _watch.Watch.step

    def step(self, done, total, text=""):
        self.stopped = done == 2
        own(self, done, total, text)

    with monkeypatch.context() as patch:
        patch.setattr(_watch.Watch, "step", step)
        refused(cli("run", path, "--out", out), 130, "interrupted", "--resume goes on")
    assert state(out) == "interrupted" and "**Not finished:**" in (out / "report.md").read_text()
    rows = (out / "channels.csv").read_text().splitlines()
    assert len(rows) == 1 + 5  # of nine times: what there is
    refused(cli("run", path, "--out", out), 2, "holds a study already (interrupted); --resume goes on with it")
    message = refused(cli("run", path, "--out", out, "--resume", "--set", "parameters.mass=2"), 2, "another study")
    assert "config.parameters.mass was 1.0 and is 2" in message
    refused(cli("optimise", path, "--out", out, "--resume"), 2, "command was run and is optimise")
    code, _, err = cli("run", path, "--out", out, "--resume")
    assert code == 0 and "going on at t = 0.2 s" in err, err
    same(out, whole)
    code, _, err = cli("run", path, "--out", out, "--resume")
    assert code == 0 and "is finished already" in err
    refused(cli("run", path, "--out", out), 2, "(finished); --overwrite replaces it")
    assert not list(out.glob("**/*.tmp")) and not (out / ".lock").exists()


def test_overwriting_leaves_nothing_of_before(cli, tmp_path, whole):  # noqa: F811
    path, out = write(tmp_path, PENDULUM), tmp_path / "out"
    text = PENDULUM.replace("[output]", "[output]\nanimation = false\nplots = false")
    assert cli("run", path, "--out", out)[0] == 0
    more = ("--overwrite", "--set", 'output.channels=["B"]')
    refused(cli("run", path, "--out", out, *more), 2, "there is no channel 'B'")
    same(out, whole)  # a mistake in the new study leaves the old results
    assert cli("run", write(tmp_path, text), "--out", out, "--overwrite")[0] == 0
    assert not (out / "animation.html").exists() and not (out / "plots" / "channels.png").exists()


def test_one_process_at_a_time(cli, tmp_path):  # noqa: F811
    """A living process keeps others away; the lock of a dead one does not."""
    path, out = write(tmp_path, PENDULUM), tmp_path / "out"
    out.mkdir()
    code = (
        "import sys, time; from pathlib import Path; from diffmb._study._folder import _take_lock\n"
        f"lock = _take_lock(Path({str(out)!r})); print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        refused(cli("run", path, "--out", out), 5, "in use by another process", f"pid {other.pid}")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert (out / ".lock").exists()  # it had no time to clean up
    with opened(out):
        pass
    assert not (out / ".lock").exists()


# --- disks ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_seen_before(cli, tmp_path, monkeypatch):  # noqa: F811
    full = type("usage", (), {"free": 1_000_000})
    monkeypatch.setattr(_folder.shutil, "disk_usage", lambda path: full)
    refused(cli("run", write(tmp_path, PENDULUM), "--out", tmp_path / "out"), 5, "1 MB are free", "make room")
    assert not list((tmp_path / "out").iterdir())


def test_a_disk_that_fills_up(cli, tmp_path, monkeypatch, whole):  # noqa: F811
    """In the middle of an overwrite: the message says so, the old files are whole."""
    out = tmp_path / "out"
    assert cli("run", write(tmp_path, PENDULUM), "--out", out)[0] == 0
    own, count = os.fsync, [0]

    def fsync(file):
        count[0] += 1
        if count[0] > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        own(file)

    monkeypatch.setattr(_files.os, "fsync", fsync)
    refused(cli("run", tmp_path / "study.toml", "--out", out, "--overwrite"), 5, "No space left on device")
    monkeypatch.undo()
    for name in ("results.npz", "channels.csv", "report.md", "animation.html"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert not list(out.glob("**/.*.tmp"))


@pytest.mark.skipif(os.name == "nt" or os.getuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission(cli, tmp_path):  # noqa: F811
    path = write(tmp_path, PENDULUM)
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(cli("run", path, "--out", tmp_path / "locked"), 5, "not writable")
    refused(cli("run", path, "--out", tmp_path / "locked" / "out"), 5, "cannot be made: Permission denied")


# --- checkpoints ----------------------------------------------------------------------------------------------------

TREE = {"a": np.arange(3.0), "b": {"c": np.array(2), "d": np.zeros((2, 2))}}


def kept(path, *trees):
    """A folder with checkpoints."""
    with opened(path) as folder:
        for tree in trees:
            save_checkpoint(folder, tree)


def reopened(path, like=TREE, about=ABOUT):
    with opened(path, about, resume=True) as folder:
        return load_checkpoint(folder, like)


def test_checkpoints_come_back(tmp_path):
    later = {"a": np.arange(3.0) + 1, "b": {"c": np.array(3), "d": np.ones((2, 2))}}
    kept(tmp_path / "o", TREE, later)
    found, warning = reopened(tmp_path / "o")
    assert warning == "" and found["b"]["c"] == 3 and found["b"]["c"].shape == ()
    np.testing.assert_array_equal(found["a"], later["a"])
    assert found["a"].dtype == np.float64 and found["b"]["c"].dtype == np.int64


@pytest.mark.parametrize("harm", ["cut", "flip", "pickle", "empty"])
def test_damaged_checkpoints_are_passed_over(tmp_path, harm):
    kept(tmp_path / "o", TREE, TREE | {"a": np.zeros(3)})
    path = tmp_path / "o" / CURRENT
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    new = {"cut": data[:-7], "flip": data, "pickle": b"\x80\x04\x95cos\nsystem\n", "empty": b""}[harm]
    path.write_bytes(bytes(new))
    found, warning = reopened(tmp_path / "o")
    np.testing.assert_array_equal(found["a"], TREE["a"])  # the one before
    assert "is damaged" in warning and CURRENT in warning
    (tmp_path / "o" / PREVIOUS).write_bytes(b"x")
    with pytest.raises(StudyError, match="nothing to go on from, start again with --overwrite"):
        reopened(tmp_path / "o")


def test_every_flipped_byte_is_seen(tmp_path):
    kept(tmp_path / "o", TREE)
    path = tmp_path / "o" / CURRENT
    data = path.read_bytes()
    for k in range(0, len(data), 37):
        path.write_bytes(data[:k] + bytes([data[k] ^ 4]) + data[k + 1 :])
        with pytest.raises(StudyError, match="is damaged"):
            reopened(tmp_path / "o")


def test_checkpoints_of_others_are_refused(tmp_path):
    kept(tmp_path / "o", TREE)
    for like, words in (
        ({"a": np.zeros(4), "b": TREE["b"]}, "instead of"),
        ({"z": TREE["a"], "b": TREE["b"]}, "instead of"),
        ({"a": TREE["a"]}, "3 arrays instead of 1"),
    ):
        with pytest.raises(StudyError, match=words):
            reopened(tmp_path / "o", like)
    with pytest.raises(StudyError, match="belongs to another study"):
        reopened(tmp_path / "o", about=ABOUT | {"hash": "cd" * 32})
    data = (tmp_path / "o" / CURRENT).read_bytes()
    with opened(tmp_path / "p", ABOUT | {"hash": "cd" * 32}):
        pass
    (tmp_path / "p" / CURRENT).write_bytes(data)  # copied by hand
    with pytest.raises(StudyError, match="belongs to another study or model"):
        reopened(tmp_path / "p", about=ABOUT | {"hash": "cd" * 32})


def test_logs_lose_at_most_what_was_being_written(tmp_path):
    record = lambda k: {"x": np.full(2, float(k)), "y": np.array(k)}
    with opened(tmp_path / "o") as folder:
        log = Log(folder)
        for k in range(3):
            log.add(record(k))
        log.close()
    path = tmp_path / "o" / EVALUATIONS
    data = path.read_bytes()
    third = len(data) // 3
    for cut, left in ((len(data) - 1, 2), (2 * third + 5, 2), (third, 1), (3, 0)):
        path.write_bytes(data[:cut])
        with opened(tmp_path / "o", resume=True) as folder:
            log = Log(folder)
            assert len(log.records) == left and bool(log.warning) == (cut % third != 0)
            log.add(record(left))
            log.close()
        assert path.read_bytes() == data[: (left + 1) * third]  # it goes on as if nothing had happened
    path.write_bytes(data[:third] + bytes([data[third] ^ 1]) + data[third + 1 :])
    with opened(tmp_path / "o", resume=True) as folder:
        log = Log(folder)
        assert len(log.records) == 1 and log.warning
        log.close()
    path.write_bytes(data[: third + 60] + bytes([data[third + 60] ^ 1]) + data[third + 61 :])
    with opened(tmp_path / "o", resume=True) as folder:
        log = Log(folder)
        assert len(log.records) == 1 and "record 2 is damaged" in log.warning
        log.close()


# --- real processes -------------------------------------------------------------------------------------------------

LONG = PENDULUM.replace("plots", "plot").replace("[output]", "[output]\nplots = false\nanimation = false") + (
    '[optimise]\nminimise = "miss"\nvariables.length = { lower = 0.5, upper = 1.5 }\n'
    'variables.mass = { lower = 0.5, upper = 2 }\nmethod = "Adam"\niterations = 60\n'
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A folder, and an environment whose processes share compiled programs."""
    home = tmp_path_factory.mktemp("machine")
    cache = {"JAX_COMPILATION_CACHE_DIR": str(home / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    write(home, LONG)
    return home, {**os.environ, **cache, "PYTHONPATH": str(ROOT)}


def process(machine, out, *more):
    home, environment = machine
    command = [sys.executable, "-m", "diffmb", "optimise", "study.toml", "--out", out, *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=home, env=environment, stdout=pipe, stderr=pipe, text=True)


def until_logged(machine, out, size, child):
    """Waits for the log to be that long."""
    path = machine[0] / out / EVALUATIONS
    while child.poll() is None and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.002)
    assert child.poll() is None, child.communicate()


@pytest.mark.timeout(600)
def test_killed_and_resumed(machine):
    """kill -9 in the middle, then Ctrl-C, then to the end: the same bits as without."""
    child = process(machine, "calm")
    _, err = child.communicate()
    assert child.returncode in (0, 3), err  # sixty steps of Adam need not converge
    calm, hurt = machine[0] / "calm", machine[0] / "hurt"
    whole = (calm / EVALUATIONS).stat().st_size

    child = process(machine, "hurt")
    until_logged(machine, "hurt", whole // 10, child)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    before = (hurt / EVALUATIONS).stat().st_size
    assert 0 < before < whole and state(hurt) == "running" and (hurt / ".lock").exists()

    child = process(machine, "hurt", "--resume")
    until_logged(machine, "hurt", before + whole // 10, child)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130, err
    assert "stopping at the next checkpoint" in err and "Traceback" not in err
    assert state(hurt) == "interrupted" and (hurt / "optimum.json").exists()
    assert before < (hurt / EVALUATIONS).stat().st_size < whole

    child = process(machine, "hurt", "--resume")
    _, err = child.communicate()
    assert child.returncode in (0, 3) and "evaluations are known" in err, err
    for name in (EVALUATIONS, "results.npz", "optimum.json", "history.csv", "channels.csv", "report.md", "study.json"):
        assert (calm / name).read_bytes() == (hurt / name).read_bytes(), name


def test_a_second_interrupt_ends_at_once(tmp_path):
    """Also while a compiled program runs, when Python's own handlers wait."""
    code = (
        "import ctypes, os; from diffmb._study._watch import Watch, interruptible\n"
        "with interruptible(Watch()):\n"
        "    print('ready', flush=True)\n"
        "    ctypes.PyDLL(None) and ctypes.CDLL(None).usleep(1)\n"
        "    for _ in range(600): ctypes.CDLL(None).usleep(100000)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130 and "press Ctrl-C again" in err and "stopped at once" in err
