"""Wijckmans' crank and slider: driven, in closed form; released, with a guide that is rigid or very stiff.

    python experiments/20_crank_slider.py [config.toml]

Wijckmans 1992, example 3.3: a crank of length 2 l, an equal rod at its end, whose other end slides on the x axis; the
loop is cut there, phi = 2 l sin(a) + 2 l sin(a + b) = 0. Lengths, masses, gravity along x and motions are chosen. The
rods being equal, b = -2 a and everything is known in closed form:

    x = 4 l cos(a)                                            of the sliding end
    I = m l^2 (5/3 + 9 sin^2(a) + cos^2(a))                   inertia felt at the crank
    M = I add + 8 m l^2 sin(a) cos(a) ad^2 + 4 m g l sin(a)   torque at the crank

Checked: these with the crank driven (kinematics, then inverse dynamics), and the released motion against the equation
above; then with the guide as a spring of 1e5 to 1e7 N/m: stiff, implicit steps, and the rigid motion in the limit.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. The guide is a constraint, or a stiff spring and damper across it.
def swing(t, p):
    return p[0] + p[1] * jnp.sin(p[2] / p[1] * t)


def mechanism(config, *, driven=False, k=None):
    l = config["l"]
    end = mb.Marker("rod", (2 * l, 0, 0))
    guide = [mb.PointOnPlane("guide", "world", end, normal="y")] if k is None else []
    spring = [mb.AlongAxis("guide", "world", end, mb.LinearLaw(k, config["damping"] * k), axis="y")] if k else []
    numbers = (config["mean"], config["amplitude"], config["speed"])
    return mb.Mechanism(
        [mb.rod("crank", 2 * l, mass=config["mass"]), mb.rod("rod", 2 * l, mass=config["mass"])],
        [mb.Revolute("a", "world", "crank"), mb.Revolute("b", mb.Marker("crank", (2 * l, 0, 0)), "rod")],
        constraints=guide,
        connections=spring,
        drives=[mb.PositionDrive("motor", "a", swing, numbers)] if driven else [],
        gravity=(config["gravity"], 0, 0),
    )


# 2. By hand.
def inertia(config, a):
    return config["mass"] * config["l"] ** 2 * (5 / 3 + 9 * np.sin(a) ** 2 + np.cos(a) ** 2)


def torque(config, a, ad, add):
    m, l, g = config["mass"], config["l"], config["gravity"]
    return inertia(config, a) * add + 8 * m * l**2 * np.sin(a) * np.cos(a) * ad**2 + 4 * m * g * l * np.sin(a)


def driven(config):
    """The driven motion: errors of the sliding end and of the torque, relative; and both over time."""
    model = mb.compile(mechanism(config, driven=True))
    ts = np.linspace(0.0, 2 * np.pi * config["amplitude"] / config["speed"], config["positions"])
    a = config["mean"]
    ride = mb.simulate_kinematics(model, mb.assemble(model, guess={"a": a, "b": -2 * a}), ts)
    end = mb.Marker("rod", (2 * config["l"], 0, 0))

    @jax.jit
    @jax.vmap
    def seen(t, q, v):
        return mb.kinematics(model, q)[end].pose.translation[0], mb.dynamics(model, q, v, t=t).load("motor")

    x, moment = (np.ravel(y) for y in seen(ride.ts, ride.q, ride.v))
    angle, rate, change = (np.asarray(of)[:, 0] for of in (ride.q, ride.v, ride.vd))
    exact = 4 * config["l"] * np.cos(angle), torque(config, angle, rate, change)
    error = [np.abs(p - q).max() / np.abs(q).max() for p, q in zip((x, moment), exact, strict=True)]
    print(f"driven: sliding end to {error[0]:.1e}, torque to {error[1]:.1e} of closed forms")
    assert max(error) < config["accuracy"], "closed form"
    return ts, x, moment, *exact


def released(config, k=None):
    model = mb.compile(mechanism(config, k=k))
    held = {"a": config["angle"], "b": -2 * config["angle"]}
    solver = mb.implicit() if k else mb.explicit()
    ts = jnp.linspace(0.0, config["t_end"], config["frames"])
    return mb.simulate(model, mb.assemble(model, held), ts, solver=solver, controller=mb.Tolerance(config["rtol"]))


def main(config):
    ride = driven(config)
    rigid = released(config)
    a, ad = rigid.coordinate("a"), rigid.speed("a")
    left = np.abs(torque(config, np.asarray(a), np.asarray(ad), np.asarray(rigid.vd[:, 0]))).max()
    scale = np.abs(torque(config, np.asarray(a), 0, 0)).max()
    print(f"released, rigid guide: {int(rigid.stats.steps)} steps, free of torque to {left / scale:.1e}, "
          f"energy changes by {float(rigid.energy_change):.1e} J")  # fmt: skip
    assert left / scale < config["accuracy"], "the equation of motion by hand"

    # 3. The stiff guide: its deflection and its effect on the motion go like 1 / k.
    gaps = []
    for k in config["stiffness"]:
        stiff = released(config, k)
        gaps.append(float(jnp.abs(stiff.coordinate("a") - a).max()))
        steps = int(stiff.stats.steps)
        print(f"guide of {k:.0e} N/m: {steps} implicit steps, off the rigid motion by {gaps[-1]:.1e} rad")
    fall = np.diff(np.log(gaps)) / np.diff(np.log(config["stiffness"]))
    assert (np.abs(fall + 1) < 0.1).all(), f"the gap should fall like 1 / k, found the powers {fall}"
    mb.draw("out/20_crank_slider.png", lambda axes: plot(axes, config, ride, rigid, gaps), columns=4, size=(17, 3.8))


def plot(axes, config, ride, rigid, gaps):
    ts, x, moment, exact_x, exact_moment = ride
    for axis, values, exact, unit in ((axes[0], x, exact_x, "m"), (axes[1], moment, exact_moment, "N m")):
        axis.plot(ts, exact, "C7", lw=4, alpha=0.5, label="closed form")
        axis.plot(ts, values, "C0", label="diffmb")
        axis.set(xlabel="t, s", ylabel=unit)
        axis.legend(loc="lower right", fontsize=8)
    axes[0].set_title("driven: sliding end")
    axes[1].set_title("driven: torque at the crank")
    axes[2].plot(rigid.ts, np.degrees(rigid.coordinate("a")), "C0")
    axes[2].set(xlabel="t, s", ylabel="degrees", title="released: crank")
    axes[3].loglog(config["stiffness"], gaps, "C3o-")
    axes[3].set(xlabel="stiffness, N/m", ylabel="off the rigid motion, rad", title="the guide as a stiff spring")


if __name__ == "__main__":
    main(mb.settings(__file__))
