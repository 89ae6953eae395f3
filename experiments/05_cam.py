"""A cam that lifts its follower with the smallest peak acceleration.

    python experiments/05_cam.py [config.toml]

A disc cam turns at constant speed under a follower that rises by h in half a turn and falls in the other half. The
profile is a spline; its radii are free. The largest acceleration has a corner wherever two positions change places, so
the peak is a number of its own, to be made small while the acceleration at every position stays within it: many limits
that are active at once. The best that any motion can do is known: full acceleration to the middle, full deceleration
from there (4 h / pi^2 per rad^2, where the harmonic motion has h / 2). A spline of few points comes close to it. The
figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


def turning(t, speed):
    return speed * t


# 1. Describe: rise and fall are mirror images, so the radii between lowest and highest point are given once.
def radii(p, config):
    rise = jnp.concatenate([jnp.zeros(1), p["rise"], jnp.ones(1)])
    return config["base"] + config["height"] * jnp.concatenate([rise, rise[-2:0:-1]])


def cam(p, config):
    r = radii(p, config)
    angle = jnp.pi / 2 + 2 * jnp.pi * jnp.arange(len(r)) / len(r)
    profile = mb.SplineProfile(jnp.stack([r * jnp.cos(angle), r * jnp.sin(angle)], 1))
    return mb.Mechanism(
        [mb.cylinder("cam", 0.03, 0.01, mass=1.0), mb.box("follower", (0.01, 0.1, 0.01), mass=0.2)],
        [mb.Revolute("A", "world", "cam", axis="-z"), mb.Prismatic("lift", "world", "follower", axis="y")],
        constraints=[mb.CamContact("contact", "cam", "follower", profile)],
        drives=[mb.PositionDrive("motor", "A", turning, 1.0)],
        gravity=(0, 0, 0),
    )


# 2. The rise, position by position: lift and acceleration of the follower, per radian of the cam.
def motion(p, config):
    model = mb.compile(cam(p, config))
    ts = jnp.linspace(0.0, jnp.pi, config["positions"])
    start = mb.assemble(model, {"A": 0.0}, guess={"lift": config["base"]}, throw=False)
    run = mb.simulate_kinematics(model, start, ts, throw=False)
    return run.coordinate("lift") - config["base"], run.vd[:, model.speeds("lift").start]


def main(config):
    height, count = config["height"], config["points"]
    harmonic = 0.5 * (1 - jnp.cos(jnp.pi * jnp.arange(1, count) / count))
    start = {"rise": harmonic, "peak": 0.52}

    def peak(p):
        acceleration = motion(p, config)[1] / height
        return p["peak"], {"acceleration": jnp.concatenate([p["peak"] - acceleration, p["peak"] + acceleration])}

    task = {"bounds": {"rise": (-0.1, 1.1), "peak": (0.1, 2.0)}}
    within = {"acceleration": mb.Limit(lower=0.0)}
    found = mb.optimise(peak, start, constraints=within, method=mb.SLSQP(config["iterations"]), tolerance=1e-6, **task)
    print(f"{str(found).splitlines()[0]}\n{str(found).splitlines()[1]}")
    active = sum(name.startswith("acceleration") for name in found.multipliers)
    print(f"first-order conditions are left by {found.optimality:.1e}; {active} positions are at the peak")
    assert found.converged, "no optimum"
    bound = 4 / np.pi**2
    print(f"peak acceleration / (h w^2): harmonic 0.5, optimum {found.value:.4f}, bound of any motion {bound:.4f}")
    assert 0.95 * 4 / np.pi**2 < found.value < 0.5

    # 3. Without derivatives: the corner does not matter to the simplex of Nelder and Mead; the many numbers do.
    blunt = lambda p: jnp.abs(motion(p, config)[1]).max() / height
    plain = mb.optimise(
        blunt, {"rise": harmonic}, bounds={"rise": (-0.1, 1.1)}, method=mb.NelderMead(config["simplex"], tolerance=1e-6)
    )
    print(f"without derivatives: {plain.simulations} turns against {found.simulations}, peak {plain.value:.4f}")
    assert found.value <= plain.value + 1e-6

    see = jax.jit(lambda p: motion(p, config))
    runs = {"harmonic": see(start), "without derivatives": see(plain.mech), "optimum": see(found.mech)}
    mb.draw(
        "out/05_cam.png",
        lambda axes: plot(
            axes, {name: [np.asarray(a) / height for a in run] for name, run in runs.items()}, found, config
        ),
        columns=3,
        size=(13, 4),
    )


def plot(axes, runs, found, config):
    angle = np.linspace(0.0, 180.0, config["positions"])
    for (name, (lift, acceleration)), color in zip(runs.items(), ("C7", "C1", "C0")):
        axes[0].plot(angle, lift, color, label=name)
        axes[1].plot(angle, acceleration, color, label=name)
    for side in (-1, 1):
        axes[1].axhline(side * 4 / np.pi**2, color="k", linestyle=":")
    axes[0].set(xlabel="turn of the cam, deg", ylabel="lift / h", title="rise")
    axes[1].set(xlabel="turn of the cam, deg", ylabel="acceleration / (h w^2)", title="acceleration; dotted: bound")
    r = np.asarray(radii(found.mech, config))
    phi = 2 * np.pi * np.arange(len(r) + 1) / len(r)
    axes[2].plot(1e3 * np.append(r, r[0]) * np.sin(phi), 1e3 * np.append(r, r[0]) * np.cos(phi), "C0.-")
    axes[2].set(xlabel="x, mm", ylabel="y, mm", title="points of the profile", aspect="equal")
    for axis in axes[:2]:
        axis.legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
