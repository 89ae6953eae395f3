"""Systems of the founding documents against other programs and against equations written by hand."""

import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import mechanism_to_pinocchio
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, root

import diffmb as mb

ROOT = Path(__file__).parent.parent


def experiment(name):
    """The functions of an experiment, and its settings."""
    module = SimpleNamespace(**runpy.run_path(str(ROOT / "experiments" / f"{name}.py")))
    return module, tomllib.loads((ROOT / "configs" / f"{name}.toml").read_text())


@pytest.mark.parametrize("name", ["16_robot_3r", "17_six_axis_robot"])
def test_torques_of_the_robots_are_those_of_pinocchio(name):
    pin = pytest.importorskip("pinocchio")
    module, config = experiment(name)
    mech = module.robot(config, False)
    model = mb.compile(mech)
    peer, _ = mechanism_to_pinocchio(mech, model)  # a chain: the same order
    data, rng = peer.createData(), np.random.default_rng(0)
    torques = jax.jit(lambda q, v, vd: mb.inverse_dynamics(model, q, v, vd))
    for _ in range(5):
        q, v, vd = rng.normal(size=(3, model.nv))
        wanted = pin.rnea(peer, data, q, v, vd)
        np.testing.assert_allclose(torques(q, v, vd), wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


def test_leg_without_muscles_is_the_double_pendulum_of_scipy():
    module, config = experiment("15_leg_swing")
    traj = module.swing(config | {"frames": 5}, ())
    slope = jax.jit(lambda t, q, v: module.lagrange(config, t, q, v))
    start = [config[key] for key in ("hip", "knee", "hip_speed", "knee_speed")]
    rate = lambda t, y: np.concatenate([y[2:], slope(t, y[:2], y[2:])])
    found = solve_ivp(rate, (0.0, config["t_end"]), start, "DOP853", rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(np.concatenate([traj.q[-1], traj.v[-1]]), found.y[:, -1], rtol=0, atol=1e-7)


def turned(angle):
    """About x."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0], [0, c, -s], [0, s, c]])


def left_side(config, lower, rear):
    """Points and camber of the left side in the chassis's frame; the double wishbone is closed by its own circle."""
    at = {key: np.array(value) for key, value in config.items() if isinstance(value, list) and len(value) == 3}
    ball = at["lower_pivot"] + turned(lower) @ (at["lower_ball"] - at["lower_pivot"])
    upper = lambda u: at["upper_pivot"] + turned(u) @ (at["upper_ball"] - at["upper_pivot"])
    line = at["upper_ball"] - at["lower_ball"]
    u = brentq(lambda u: np.linalg.norm(upper(u) - ball) - np.linalg.norm(line), lower - 0.8, lower + 0.8, xtol=1e-15)
    now = upper(u) - ball
    lean = np.arctan2(now[2], now[1]) - np.arctan2(line[2], line[1])
    seat = lambda end, pivot, angle: at[pivot] + turned(angle) @ (at[f"{end}_seat"] - at[pivot])
    arms = [(ball + at["lower_pivot"]) / 2, (upper(u) + at["upper_pivot"]) / 2]
    wheel = ball + turned(lean) @ (at["front_wheel"] - at["lower_ball"])
    back = at["rear_pivot"] + turned(rear) @ (at["rear_wheel"] - at["rear_pivot"])
    springs = [
        np.linalg.norm(at["front_mount"] - seat("front", "lower_pivot", lower)) - config["front_length"],
        np.linalg.norm(at["rear_mount"] - seat("rear", "rear_pivot", rear)) - config["rear_length"],
    ]
    masses = [(config["arm_mass"], p) for p in (*arms, (back + at["rear_pivot"]) / 2)]
    masses += [(config["knuckle_mass"], ball + now / 2), (config["front_wheel_mass"], wheel)]
    return masses + [(config["rear_wheel_mass"], back)], springs, [(wheel, lean), (back, rear)], u, lean


def potential(config, x):
    """Of the whole vehicle, for height, pitch, and the angles of the lower and the rear arms."""
    z, pitch, lower, rear = x
    masses, springs, wheels, _, _ = left_side(config, lower, rear)
    c, s = np.cos(pitch), np.sin(pitch)
    R = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    height = lambda p: config["height"] - config["press"] + z + (R @ p)[2]
    total = config["chassis_mass"] * config["gravity"] * height(np.zeros(3))
    total += 2 * config["gravity"] * sum(m * height(p) for m, p in masses)
    total += config["k"] * sum(e**2 for e in springs)
    for centre, lean in wheels:
        n = (R @ turned(lean))[2]
        total += config["tyre_k"] * max(config["radius"] - height(centre) / np.hypot(n[0], n[2]), 0.0) ** 2
    return total


def test_vehicle_stands_where_its_potential_by_hand_is_least():
    module, config = experiment("14_vehicle")
    h = 1e-4
    unit = np.eye(4) * h
    slope = lambda x: [(potential(config, x + e) - potential(config, x - e)) / (2 * h) for e in unit]
    found = root(slope, [-0.07, 0.0, 0.2, 0.13], tol=1e-12)
    z, pitch, lower, rear = found.x
    _, _, _, upper, lean = left_side(config, lower, rear)
    model = mb.compile(module.vehicle(config))
    guess = {"free": [0, 0, z, np.cos(pitch / 2), 0, np.sin(pitch / 2), 0]}
    for side, sign in (("left", 1), ("right", -1)):
        half = sign * (lean - lower) / 2
        angles = {"front_lower_pivot": lower, "front_upper_pivot": upper, "rear_arm_pivot": rear}
        guess |= {f"{side}_{name}": sign * angle for name, angle in angles.items()}
        guess |= {f"{side}_front_lower_ball": [np.cos(half), np.sin(half), 0, 0]}
    q = model.pack(guess)
    assert jnp.abs(mb.constraint_residual(model, q)).max() < 1e-12
    vd = jax.jit(lambda q: mb.forward_dynamics(model, q, jnp.zeros(model.nv)))(q)
    # The front wheels begin to steer, by 0.01 rad/s2: the pitch, a hundredth of a degree, gives them some castor.
    held = [name for name in model.inboard if name == "free" or name.endswith("pivot")]
    assert max(float(jnp.abs(vd[model.speeds(name)]).max()) for name in held) < 1e-4
