"""The experiments run to their own checks, on shortened settings, and leave a figure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONDITIONS = "first-order conditions are left by"
SHORT = {
    "01_double_pendulum": ({"t_end": 0.2, "frames": 21, "batch": 8}, ("8 pendulums",)),
    "02_coupler_path": ({"points": 8, "generations": 2}, ("with derivatives", CONDITIONS)),
    "03_balancing": ({"positions": 24, "iterations": 80}, ("closed form", CONDITIONS)),
    "04_suspension": ({"generations": 8, "agreement": 0.2}, ("travel would save", CONDITIONS)),
    "05_cam": ({"points": 9, "positions": 25, "simplex": 1}, ("positions are at the peak", "bound of any motion")),
    "06_crank_pendulum_minimum_time": (
        {"nodes": 8, "accuracy": 1.0, "apart": 0.5},
        ("loop open by at most", "simulated with the torque found"),
    ),
    "07_reach": ({"nodes": 8, "accuracy": 1.0, "miss": 0.1}, ("converged", "the hand misses the target by")),
    "08_kamman_eight_bodies": ({"t_end": 0.1, "frames": 6}, ("eight free bodies", "angular momentum, relative")),
    "09_twelve_body_tree": ({"t_end": 0.1, "frames": 6}, ("energy drifts by", "accelerations apart")),
    "10_pump_kinematics": (
        {"positions": 81},
        ("nd = 2 degrees of freedom, 1 at velocity level", "245.00, 360.00, 332.00"),
    ),
    "11_pump_dynamics": (
        {"difference": 0.0, "rtol": 1e-5, "atol": 1e-10, "panel": 5.0, "closure": 1e-3},
        ("EHD film", "Hertz at most"),
    ),
    "12_knee_four_bar": ({"positions": 61}, ("centrodes", "d centre / d ACL")),
    "13_knee_contact": ({"positions": 41}, ("against Newton's method by hand", "d contact / d femur[1]")),
    "14_vehicle": (
        {"numbers": "[]", "rtol": 1e-4, "t_settle": 1.0, "frames": 9, "t_bump": 0.4, "settled": 1e-3, "balance": 1e-3},
        ("16 degrees of freedom", "over the bump"),
    ),
    "15_leg_swing": ({"rtol": 1e-8, "frames": 201, "balance": 1e-5}, ("Lagrange by hand", "small-angle")),
    "16_robot_3r": ({"frames": 101, "back": 1e-3, "work": 1e-5}, ("closed form", "forward with these torques")),
    "17_six_axis_robot": ({"frames": 201, "rtol": 1e-7, "work": 1e-3}, ("on its path", "forward with these torques")),
    "18_skate": ({"turns": 1, "frames": 31}, ("closed form", "Sol's form")),
    "19_sol_five_bodies": ({"t_end": 0.4, "frames": 21}, ("8 freedoms", "the same motion")),
    "20_crank_slider": ({"stiffness": "[1e5, 1e6]", "frames": 16, "positions": 25}, ("closed forms", "rigid motion")),
    "21_four_bar_singular": ({"t_end": 2.0, "frames": 41}, ("2 folds", "folded 2")),
}


@pytest.mark.parametrize("name", SHORT)
def test_experiment(name, tmp_path):
    changes, told = SHORT[name]
    config = (ROOT / "configs" / f"{name}.toml").read_text()
    for key, value in changes.items():
        config, count = re.subn(rf"^{key} = [^#\n]*", f"{key} = {value} ", config, flags=re.MULTILINE)
        assert count == 1, key
    (tmp_path / "short.toml").write_text(config)
    command = [sys.executable, "-W", "error", str(ROOT / "experiments" / f"{name}.py"), "short.toml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in told), done.stdout
    assert (tmp_path / "out" / f"{name}.png").stat().st_size > 1000
