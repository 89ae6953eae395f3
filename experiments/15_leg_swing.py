"""The swing phase of a leg, as a double pendulum and with muscles.

    python experiments/15_leg_swing.py [config.toml]

Sol 1983, figure 1.1 and his remark on Maillardet 1977: a leg that swings is a double pendulum, but angles change by 50
degrees and may not be linearised, and the hip moves. Here the hip moves as prescribed (a hinge without coordinates, a
function of time), thigh and shank with foot swing under it from toe-off: first alone (ballistic walking), then with
four muscles of Hill's type, two of them over both joints, one over the patella. Sol gives no numbers; sources and
choices are in the config. Checked: Lagrange's equations written by hand, with the muscles' moment arms from the
derivative of their lengths; the balance of energy, hip and muscles included; and what linearising would have cost. The
figure goes to `out/`.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. Frames are parallel when the leg hangs straight.
def hip(t, p):
    return jnp.stack([p["speed"] * t, p["rise"] * jnp.cos(2 * jnp.pi * p["cadence"] * t + p["phase"])])


def carried(q, t, p):
    return jnp.eye(3), jnp.append(hip(t, p), 0.0)


def segment(config, name):
    """Mass, length, distance of the centre of mass and inertia about it."""
    share, part = config[f"{name}_mass"], config[f"{name}_length"]
    mass, length = share * config["body_mass"], part * config["body_height"]
    return mass, length, config[f"{name}_com"] * length, mass * (config[f"{name}_gyration"] * length) ** 2


def path_length(config, name, q):
    """Of a muscle, by hand: straight from point to point."""
    turn = lambda a, p: jnp.stack([jnp.cos(a) * p[0] - jnp.sin(a) * p[1], jnp.sin(a) * p[0] + jnp.cos(a) * p[1]])
    knee = turn(q[0], jnp.array([0.0, -segment(config, "thigh")[1]]))
    frames = {
        "pelvis": lambda p: jnp.stack(p),
        "thigh": lambda p: turn(q[0], p),
        "shank": lambda p: knee + turn(q[0] + q[1], p),
    }
    points = [frames[body](jnp.array([x, y])) for body, x, y in config["muscles"][name]["path"]]
    return jnp.stack([jnp.linalg.norm(b - a) for a, b in pairwise(points)]).sum()


def muscle(config, name):
    given = config["muscles"][name]
    at_start = float(path_length(config, name, jnp.array([config["hip"], config["knee"]])))
    height = np.sin(given["pennation"])
    along = given["fibre"] * np.sqrt(given["relaxed"] ** 2 - height**2)
    return mb.Muscle(
        given["force"], given["fibre"], at_start - along, given["pennation"], activation=config["tone"], length=at_start
    )


def mounted(config, name):
    points = [mb.Marker(body, (x, y, 0)) for body, x, y in config["muscles"][name]["path"]]
    return mb.AlongPath(name, points, muscle(config, name))


def leg(config, muscles):
    moving = {key: config[key] for key in ("speed", "rise", "cadence", "phase")}
    bodies = [mb.sphere("pelvis", 0.1, mass=1.0)]
    for name in ("thigh", "shank"):
        mass, _, com, inertia = segment(config, name)
        bodies.append(mb.RigidBody(name, mass, (0, -com, 0), (inertia, inertia / 10, inertia)))
    return mb.Mechanism(
        bodies,
        [
            mb.Hinge("walk", "world", "pelvis", carried, 0, moving),
            mb.Revolute("hip", "pelvis", "thigh"),
            mb.Revolute("knee", mb.Marker("thigh", (0, -segment(config, "thigh")[1], 0)), "shank"),
        ],
        connections=[mounted(config, name) for name in muscles],
        gravity=(0, -config["gravity"], 0),
    )


# 2. Swing.
def excitation(t, tone, pulse):
    on, off, height = pulse
    inside = jnp.clip((t - on) / (off - on), 0.0, 1.0)
    return tone + height * jnp.sin(jnp.pi * inside) ** 2


def swing(config, muscles):
    model = mb.compile(leg(config, muscles))
    speeds = {"hip": config["hip_speed"], "knee": config["knee_speed"]}
    start = mb.assemble(model, {key: config[key] for key in speeds}, speeds)
    drive = lambda pulse: lambda t: excitation(t, config["tone"], pulse)
    inputs = {name: drive(config["muscles"][name]["pulse"]) for name in muscles}
    ts = config["t_end"] * jnp.linspace(0.0, 1.0, config["frames"]) ** 2  # close at toe-off, where fibres are fast
    return mb.simulate(model, start, ts, inputs=inputs, controller=mb.Tolerance(config["rtol"]))


# 3. The same by hand, in the absolute angles a of thigh and shank: M(a) add + h(a, ad) = Q, hip accelerating with hdd.
def lagrange(config, t, q, v, tau=(0.0, 0.0), linear=False):
    """Accelerations of the joint angles; `linear`: for small angles and rates."""
    (m1, l1, c1, i1), (m2, _, c2, i2) = segment(config, "thigh"), segment(config, "shank")
    hdd = jax.jacfwd(jax.jacfwd(lambda t: hip(t, config)))(jnp.asarray(t, float))
    lift, push = config["gravity"] + hdd[1], hdd[0]
    sin, cos = (lambda x: x, lambda x: jnp.ones_like(x)) if linear else (jnp.sin, jnp.cos)
    a, ad = jnp.cumsum(q), jnp.cumsum(v) * (not linear)
    s1, s2 = m1 * c1 + m2 * l1, m2 * c2
    across, along = s2 * l1 * sin(a[0] - a[1]), s2 * l1 * cos(a[0] - a[1])
    M = jnp.array([[i1 + m1 * c1**2 + m2 * l1**2, along], [along, i2 + m2 * c2**2]])
    h = jnp.stack([
        across * ad[1] ** 2 + s1 * (lift * sin(a[0]) + push * cos(a[0])),
        -across * ad[0] ** 2 + s2 * (lift * sin(a[1]) + push * cos(a[1])),
    ])  # fmt: skip
    add = jnp.linalg.solve(M, jnp.stack([tau[0] - tau[1], tau[1]]) - h)
    return jnp.stack([add[0], add[1] - add[0]])


def torques(config, traj, muscles):
    """Of the muscles about hip and knee: tension times moment arm, minus the derivative of the length by the angle."""
    arm = lambda name: jax.jit(jax.vmap(jax.jacfwd(lambda q: -path_length(config, name, q))))(traj.q)
    pulls = [tension(config, traj, name)[:, None] * arm(name) for name in muscles]
    return sum(pulls, jnp.zeros((len(traj.ts), 2)))


def tension(config, traj, name):
    """By the stretch of the tendon: what the fibre leaves of the path."""
    law = muscle(config, name)
    pull = lambda q, w: law.force * law.tendon_force(path_length(config, name, q), w)
    return jax.jit(jax.vmap(pull))(traj.q, traj.state(name)[:, 1])


def linearised(config, ts):
    """The angles that small-angle equations would give, by the classical Runge-Kutta method."""
    rate = jax.jit(lambda t, y: jnp.concatenate([y[2:], lagrange(config, t, y[:2], y[2:], linear=True)]))
    ys = [jnp.array([config[key] for key in ("hip", "knee", "hip_speed", "knee_speed")])]
    for t, h in zip(ts[:-1], np.diff(ts), strict=True):
        y = ys[-1]
        k1 = rate(t, y)
        k2 = rate(t + h / 2, y + h / 2 * k1)
        k3 = rate(t + h / 2, y + h / 2 * k2)
        ys.append(y + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(t + h, y + h * k3)))
    return np.array(ys)[:, :2]


def main(config):
    runs = {"ballistic": (), "with muscles": tuple(config["muscles"])}
    found = {}
    for name, muscles in runs.items():
        traj = found[name] = swing(config, muscles)
        by_hand = jax.jit(jax.vmap(lambda t, q, v, tau: lagrange(config, t, q, v, tau)))
        gap = np.abs(by_hand(traj.ts, traj.q, traj.v, torques(config, traj, muscles)) - traj.vd).max()
        force, moving = traj.reaction("walk")[:, 3:5], jax.vmap(jax.jacfwd(lambda t: hip(t, config)))(traj.ts)
        power = np.asarray((force * moving).sum(1) + traj.supply() - traj.dissipation())
        weights = np.sqrt(np.asarray(traj.ts) * config["t_end"])  # of Simpson, in the root of the time
        weights[1:-1:2], weights[2:-1:2] = 4 * weights[1:-1:2], 2 * weights[2:-1:2]
        done = 2 * (weights * power).sum() / (len(power) - 1) / 3
        energy = np.asarray(traj.energy())
        scale = np.abs(power).max() * config["t_end"]
        left = abs(energy[-1] - energy[0] - done) / scale
        print(
            f"{name}: {int(traj.stats.steps)} steps; Lagrange by hand differs by {gap:.1e} rad/s2 of "
            f"{np.abs(traj.vd).max():.0f}; energy gained {energy[-1] - energy[0]:.3f} J, balance open by {left:.1e}"
        )
        assert gap < 1e-8 * np.abs(traj.vd).max(), "Lagrange's equations by hand disagree"
        assert left < config["balance"], "energy balance"
    small = linearised(config, np.asarray(found["ballistic"].ts))
    off = np.degrees(np.abs(small - found["ballistic"].q).max(0))
    print(f"small-angle equations are wrong by up to {off[0]:.1f} (hip) and {off[1]:.1f} (knee) degrees")
    assert off.max() > config["nonlinear"], "a linear model would do"
    mb.draw("out/15_leg_swing.png", lambda axes: plot(axes, config, found, small), columns=3, size=(15, 4.6))


def plot(axes, config, found, small):
    thigh, shank = segment(config, "thigh")[1], segment(config, "shank")[1]
    for (name, traj), color in zip(found.items(), ("C0", "C3"), strict=True):
        a = np.cumsum(np.asarray(traj.q), 1)
        limb = lambda angle, length: length * np.stack([np.sin(angle), -np.cos(angle)], 1)
        h = np.asarray(jax.vmap(lambda t: hip(t, config))(traj.ts))
        knee = h + limb(a[:, 0], thigh)
        ankle = knee + limb(a[:, 1], shank)
        for k in np.searchsorted(np.asarray(traj.ts), config["t_end"] * np.linspace(0, 1, 9) - 1e-9):
            axes[0].plot(*np.stack([h[k], knee[k], ankle[k]]).T, color, marker=".", lw=1, alpha=0.8)
        axes[0].plot(*ankle.T, color, lw=2, label=f"ankle, {name}")
        for k, (joint, style) in enumerate((("hip", "-"), ("knee", "--"))):
            axes[1].plot(traj.ts, np.degrees(traj.q[:, k]), color, linestyle=style, label=f"{joint}, {name}")
    axes[0].set(xlabel="x, m", ylabel="y, m", title="swing", aspect="equal")
    for k, style in enumerate(("-", "--")):
        axes[1].plot(found["ballistic"].ts, np.degrees(small[:, k]), "C7", linestyle=style, lw=1)
    axes[1].plot([], [], "C7", label="linearised")
    axes[1].set(xlabel="t, s", ylabel="angle, degrees (forwards +)", title="angles")
    traj = found["with muscles"]
    for k, name in enumerate(config["muscles"]):
        axes[2].plot(traj.ts, tension(config, traj, name), f"C{k}", label=name.replace("_", " "))
    axes[2].set(xlabel="t, s", ylabel="tension, N", title="muscles")
    for axis in axes:
        axis.legend(fontsize=8)


if __name__ == "__main__":
    main(mb.settings(__file__))
