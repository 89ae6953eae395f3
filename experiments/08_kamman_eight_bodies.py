"""Kamman's eight bodies: 48 relative coordinates, and their motion found in three ways.

    python experiments/08_kamman_eight_bodies.py [config.toml]

The system of J. Kamman's notes on Kane's equations with relative coordinates: eight bodies, numbered outward, body K
on its lower body by the connection array [0, 1, 2, 1, 2, 1, 1, 7]. Nothing is constrained. Between a body and its lower
one stand three 1-2-3 angles and three lengths, 6 * 8 = 48 coordinates. The notes give no numbers: here the bodies are
boxes like a trunk (1, 2) with head (3), legs (4, 6), an arm (5) and a tail (7, 8), each held on its lower body by an
elastic joint without damping. The whole is thrown into the air, turning and wobbling.

Three ways to the same motion: `mb.simulate`, `fm.Kane` (the partial velocities and the 48 x 48 generalised mass matrix
of the notes), and at every frame the accelerations of `fm.Augmented` (eight free bodies by Newton and Euler). And what
needs no program: the centre of mass flies on a parabola, the angular momentum about it stays, and so does the energy.
The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb
from diffmb import formulations as fm

jax.config.update("jax_enable_x64", True)


# 1. Describe. `Angles123` are Kamman's coordinates; a `Bushing` is a spring for each of them.
def eight_bodies(config):
    name = lambda number: f"body {number}" if number else "world"
    bodies, joints, springs = [], [], []
    stiffness = [config["turn_stiffness"]] * 3 + [config["stiffness"]] * 3
    for number, own in enumerate(config["body"], 1):
        bodies.append(mb.box(name(number), own["size"], mass=own["mass"]))
        ends = mb.Marker(name(own["on"]), own["at"]), mb.Marker(name(number), own["own"])
        joints.append(mb.Angles123(f"joint {number}", *ends))
        if own["on"]:
            springs.append(mb.Bushing(f"spring {number}", *ends, k=stiffness))
    return mb.Mechanism(bodies, joints, connections=springs)


def start(model, config):
    """At rest in their joints, body 1 thrown and turning, the others wobbling (with fixed random rates)."""
    rng = np.random.default_rng(8)
    wobble = config["kick"] * rng.standard_normal((8, 6)) * [1.0, 1.0, 1.0, 0.1, 0.1, 0.1]
    wobble[0] = [*config["spin"], *config["throw"]]
    return mb.assemble(model, model.neutral(), jnp.asarray(wobble.ravel()))


def main(config):
    model = mb.compile(eight_bodies(config))
    assert list(model.topology.parent) == [0, 1, 2, 1, 2, 1, 1, 7], "not Kamman's system"
    state, ts = start(model, config), np.linspace(0.0, config["t_end"], config["frames"])
    kane, tolerance = fm.Kane(model), config["tolerance"]
    print(f"{model}\n\nKane: {kane.unknowns[0]} coordinates, linear systems of {kane.unknowns[1]}")

    # 2. Two simulations.
    house = mb.simulate(model, state, ts, controller=mb.Tolerance(tolerance))
    own = jax.jit(lambda f: f.simulate(state, ts, rtol=tolerance, atol=tolerance))(kane)
    apart = np.abs(own.q - house.q).max(1)
    print(f"steps: {house.stats.steps} of mb.simulate, {own.steps} of Kane; coordinates apart by {apart.max():.1e}")
    assert apart.max() < 1e3 * tolerance, "Kane's equations lead elsewhere"

    # 3. Three accelerations at every frame.
    at = lambda f: jax.jit(jax.vmap(lambda q, v: f(q, v).vd))(house.q, house.v)
    vd = at(lambda q, v: mb.dynamics(model, q, v))
    spread = [np.abs(at(f.dynamics) - vd).max() / np.abs(vd).max() for f in (kane, fm.Augmented(model))]
    print("accelerations apart, relative: {:.1e} (Kane), {:.1e} (eight free bodies)".format(*spread))
    assert max(spread) < 1e-10, "three ways, and not one acceleration"

    # 4. What must hold: a parabola, a constant angular momentum, a constant energy, along Kane's motion.
    middle = jax.vmap(lambda q: mb.center_of_mass(model, q))(own.q)
    momentum = jax.vmap(lambda q, v: mb.momentum(model, q, v))(own.q, own.v)
    velocity = momentum[0, 3:] / model.mass.sum()
    parabola = middle[0] + ts[:, None] * velocity + 0.5 * ts[:, None] ** 2 * model.gravity
    energy = jax.vmap(lambda q, v: mb.kinetic_energy(model, q, v) + mb.potential_energy(model, q))(own.q, own.v)
    laws = {
        "centre of mass off its parabola, m": np.abs(middle - parabola).max(1),
        "angular momentum, relative": np.abs(momentum[:, :3] - momentum[0, :3]).max(1) / np.abs(momentum[0, :3]).max(),
        "energy, relative": np.abs(energy - energy[0]) / energy[0],
    }
    for law, error in laws.items():
        print(f"{law}: {error.max():.1e}")
        assert error.max() < 1e3 * tolerance, law

    paths = np.asarray(jax.vmap(lambda q: mb.kinematics(model, q).pose.translation)(own.q))
    errors = {"coordinates, Kane and mb.simulate": apart} | laws
    drawing = lambda axes: plot(axes, ts, paths, np.asarray(parabola), house, own, errors)
    mb.draw("out/08_kamman_eight_bodies.png", drawing, columns=3, size=(14, 4.8))


def plot(axes, ts, paths, parabola, house, own, errors):
    left, centre, right = axes
    for number in range(8):
        left.plot(*paths[:, number, ::2].T, f"C{number}", lw=0.9)
        left.annotate(str(number + 1), paths[-1, number, ::2] + 0.05, color=f"C{number}", fontsize=8)
    lines = [(k, p - 1) for k, p in enumerate((0, 1, 2, 1, 2, 1, 1, 7)) if p]
    for frame in np.linspace(0, len(ts) - 1, 4).astype(int):
        for k, p in lines:
            left.plot(*paths[frame, [p, k]][:, ::2].T, "0.3", marker="o", ms=2.5, lw=1.2)
    left.plot(parabola[:, 0], parabola[:, 2], "k--", lw=1.5, label="centre of mass, closed form")
    left.set(xlabel="x, m", ylabel="z, m", title="flight: mass centres, and four attitudes", aspect="equal")
    left.set_ylim(-1.2, None)
    left.legend(loc="lower center")
    few = slice(None, None, max(1, len(ts) // 25))
    for number in (2, 4, 7, 8):
        angle = lambda run, number=number: np.degrees(np.asarray(run.q[:, 6 * number - 5]))
        centre.plot(ts, angle(house), f"C{number - 1}", label=f"body {number}")
        centre.plot(ts[few], angle(own)[few], f"C{number - 1}.", ms=5)
    centre.set(xlabel="t, s", ylabel="second angle on the lower body, deg", title="lines: mb.simulate, points: Kane")
    centre.legend(ncol=2)
    for label, error in errors.items():
        right.semilogy(ts[1:], np.maximum(np.asarray(error)[1:], 1e-16), label=label)
    right.set(xlabel="t, s", ylabel="error", title="what must agree, and what must stay", ylim=(1e-16, 1e-6))
    right.legend(fontsize=8)


if __name__ == "__main__":
    main(mb.settings(__file__))
