"""Small studies in TOML, and the command line run inside of the tests' process."""

import pytest

from diffmb import _cli

PENDULUM = """\
schema_version = 1
title = "Pendulum"

[parameters]
length = "800 mm"
mass = 1.0

[mechanism]
gravity = [0, -9.81, 0]
bodies = [{ kind = "rod", name = "arm", length = "=length", mass = "=mass" }]
joints = [{ kind = "Revolute", name = "A", parent = "world", child = "arm" }]

[markers]
tip = { body = "arm", position = ["=length", 0, 0] }

[start]
q = { A = "-60 deg" }

[time]
end = 0.4
points = 9

[solver]
pieces = 4

[output]
channels = ["A", "tip.position.x"]

[responses]
last = { channel = "A", reduce = "final" }
reach = { channel = "tip.position.x", reduce = "max" }
miss = { channel = "A", reduce = "final", target = -1.5 }
"""


def write(folder, text: str, name: str = "study.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def cli(monkeypatch, capsys):
    """Runs a command; gives its exit code and what it says on both channels. The settings of jax stay as they are."""
    monkeypatch.setattr(_cli, "prepare_jax", lambda: ["settings of the tests"])

    def run(*arguments):
        code = _cli.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


def refused(run, code: int, *words: str) -> str:
    """The command ended with that code and one line that holds the words."""
    found, _, err = run
    lines = [line for line in err.splitlines() if line.startswith("diffmb: ") and "settings of the tests" not in line]
    assert found == code, (found, err)
    assert len(lines) == 1, err
    for word in words:
        assert word in lines[0], (word, lines[0])
    return lines[0]
