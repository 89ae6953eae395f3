"""A crank-slider at constant speed: counterweights for the smallest shaking force.

    python experiments/03_balancing.py [config.toml]

The frame feels the forces that the bearings of crank and slider put on it: they shake it. A counterweight moves the
centre of mass of the crank; where should it be? Numbers are taken by name from the mechanism: `crank.com[0]` and
`crank.com[1]`. Textbooks balance the turning masses and half of those that go to and fro; here that is the result, and
the check: with a_1 the first harmonic of the slider's acceleration the optimum is known in closed form. The figure goes
to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. The drive turns the crank at constant speed; the rod is two masses at its ends and their inertia.
def turning(t, speed):
    return speed * t


def engine(config):
    r, l = config["crank"], config["rod"]
    rod = config["rod_mass"]
    return mb.Mechanism(
        [
            mb.RigidBody("crank", config["crank_mass"], (0.4 * r, 0.1 * r, 0.0), (1e-3, 1e-3, 1e-3)),
            mb.RigidBody("rod", rod, (0.3 * l, 0.0, 0.0), np.array([0.01, 0.21, 0.21]) * rod * l * l),
            mb.box("slider", (0.06, 0.05, 0.05), mass=config["slider_mass"]),
        ],
        [
            mb.Revolute("A", "world", "crank"),
            mb.Revolute("B", mb.Marker("crank", (r, 0, 0)), "rod"),
            mb.Revolute("C", mb.Marker("rod", (l, 0, 0)), "slider", cut=True),
            mb.Prismatic("D", "world", "slider", axis="x"),
        ],
        drives=[mb.PositionDrive("motor", "A", turning, config["speed"])],
        gravity=(0, 0, 0),
    )


# 2. One turn, position by position, and the forces that the frame feels: minus what it exerts through A and D.
def shaking(mech, config, count):
    model = mb.compile(mech)
    ts = jnp.arange(count) * (2 * jnp.pi / config["speed"] / count)
    start = mb.assemble(model, {"A": 0.0}, guess={"D": config["crank"] + config["rod"]}, throw=False)
    motion = mb.simulate_kinematics(model, start, ts, throw=False)

    def force(t, q, v):
        found = mb.reactions(model, q, v, t=t)
        return -(found["A"] + found["D"])[3:5]

    return jax.vmap(force)(motion.ts, motion.q, motion.v)


def main(config):
    mech, count = engine(config), config["positions"]
    before = jax.jit(lambda m: shaking(m, config, count))(mech)

    def roughness(m):
        """Mean square of the shaking force over one turn, relative to m r w^2."""
        return (shaking(m, config, count) ** 2).sum(1).mean() / scale**2

    scale = config["slider_mass"] * config["crank"] * config["speed"] ** 2
    names, reach = ["crank.com[0]", "crank.com[1]"], config["reach"]
    task = {"where": names, "bounds": dict.fromkeys(names, (-reach, reach))}
    found = mb.optimise(roughness, mech, method=mb.SLSQP(), tolerance=1e-7, **task)
    print(f"{found}\n\nfirst-order conditions are left by {found.optimality:.1e}")
    assert found.converged, "no optimum"

    # 3. Without derivatives: the same point.
    other = mb.optimise(roughness, mech, method=mb.NelderMead(config["iterations"]), **task)
    print(f"without derivatives: {other.simulations} turns against {found.simulations}, {other.value:.10g}")
    assert np.isclose(found.value, other.value, rtol=1e-6), "two optima"

    # 4. The closed form. The rod acts like masses at its ends (Wittenbauer), the slider's acceleration has harmonics
    #    a_k r w^2 cos(k w t). Fx = U cos + M a_1 cos + ..., Fy = U sin: the mean square is least for U = -M a_1 / 2.
    r, l, m_rod = config["crank"], config["rod"], config["rod_mass"]
    angle = 2 * np.pi * np.arange(4096) / 4096
    x = r * np.cos(angle) + np.sqrt(l**2 - (r * np.sin(angle)) ** 2)
    a1 = 2 * (x * np.cos(angle)).mean() / r
    at_slider = config["slider_mass"] + 0.3 * m_rod
    turning_mass = 0.7 * m_rod * r
    exact = (-at_slider * r * a1 / 2 - turning_mass) / config["crank_mass"]
    along, across = (found.numbers[name] for name in names)
    print(f"closed form: crank.com = ({exact:.8f}, 0), found ({along:.8f}, {across:.1e}) m")
    assert abs(along - exact) < 1e-6 and abs(across) < 1e-6

    after = jax.jit(lambda m: shaking(m, config, count))(found.mech)
    rms = lambda f: float(np.sqrt((np.asarray(f) ** 2).sum(1).mean()))
    print(f"shaking force, rms: {rms(before):.2f} N before, {rms(after):.2f} N after")
    mb.draw(
        "out/03_balancing.png",
        lambda axes: plot(axes, np.asarray(before), np.asarray(after), found, other),
        columns=2,
        size=(10, 4.5),
    )


def plot(axes, before, after, found, other):
    left, right = axes
    for force, label, color in ((before, "as it was", "C7"), (after, "optimum", "C0")):
        closed = np.concatenate([force, force[:1]])
        left.plot(closed[:, 0], closed[:, 1], color, label=label)
    left.set(xlabel="Fx, N", ylabel="Fy, N", title="shaking force over one turn", aspect="equal")
    left.legend()
    best = min(found.value, other.value)
    for run, label, color in ((found, "SLSQP, exact derivatives", "C0"), (other, "Nelder and Mead", "C1")):
        gap = np.maximum(np.array([i.value for i in run.history]) - best, 1e-16)
        right.semilogy([i.evaluations for i in run.history], gap, color, marker=".", label=label)
    right.set(xlabel="evaluations", ylabel="objective - optimum", title="convergence")
    right.legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
