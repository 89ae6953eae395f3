"""Schoenmakers' tree of twelve bodies: four formulations, one motion.

    python experiments/09_twelve_body_tree.py [config.toml]

R. Schoenmakers (1991) writes the recursive dynamics of Bae, Kim and Haug for bodies that turn about an axis of their
inner body and slide along another, and shows its topology on a tree of twelve bodies with the connection array
[0, 1, 2, 3, 4, 4, 6, 1, 8, 9, 9, 11]. He gives no numbers: here the bodies are equal cylinders, the axes change from
body to body, and every turn and slide has a spring without damping. The tree hangs under gravity and starts with all
its joints turning.

`fm.Recursive` is the document's recursion: branch after branch is eliminated into the base body, only small matrices
are inverted. `mb.simulate` is the library's own way. Their motions must agree, the energy must stay, and at every frame
the accelerations of all four formulations must be the same, from 24 joint coordinates up to 108 of particles. The
figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb
from diffmb import formulations as fm

jax.config.update("jax_enable_x64", True)


# 1. Describe. A body reaches from its joint at the origin along -z of its frame to the joints that it carries.
def tree(config):
    length, parents = config["length"], config["parents"]
    bodies, joints, springs = [], [], []
    across = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.6, 0.8, 0.0))
    for k, parent in enumerate(parents):
        name, inner = f"body {k + 1}", f"body {parent}" if parent else "world"
        shape = mb.cylinder(name, config["radius"], length, mass=config["mass"])
        bodies.append(mb.RigidBody(name, shape.mass, (0, 0, -length / 2), shape.inertia))
        side = parents[:k].count(parent) - 0.5 * (parents.count(parent) - 1)  # branches of one body spread out
        lean = mb.rotation_about(jnp.array([0.0, 1.0, 0.0]), jnp.asarray(-config["spread"] * side))
        place = mb.Marker(inner, (0, 0, -length) if parent else (0, 0, 0), lean)
        joints.append(mb.RotationTranslation(f"J{k + 1}", place, name, axis=across[k % 3], slide="z"))
        springs.append(mb.OnCoordinates(f"turn {k + 1}", (f"J{k + 1}", 0), mb.LinearLaw(config["turn_stiffness"])))
        springs.append(mb.OnCoordinates(f"slide {k + 1}", (f"J{k + 1}", 1), mb.LinearLaw(config["slide_stiffness"])))
    return mb.Mechanism(bodies, joints, connections=springs)


def main(config):
    model = mb.compile(tree(config))
    assert list(model.topology.parent) == config["parents"], "not the tree of the document"
    ts = np.linspace(0.0, config["t_end"], config["frames"])
    speeds = config["speed"] * np.array([[(-1.0) ** k, 0.0] for k in range(len(model.topology.bodies))])
    state = mb.assemble(model, model.neutral(), jnp.asarray(speeds.ravel()))
    tolerance = config["tolerance"]

    # 2. The recursion of the document, and the library's own simulation.
    house = mb.simulate(model, state, ts, controller=mb.Tolerance(tolerance))
    own = jax.jit(lambda f: f.simulate(state, ts, rtol=tolerance, atol=tolerance))(fm.Recursive(model))
    apart = np.abs(own.q - house.q).max(1)
    print(f"steps: {house.stats.steps} of mb.simulate, {own.steps} of Recursive; q apart by {apart.max():.1e}")
    assert apart.max() < 1e4 * tolerance, "the recursion leads elsewhere"

    # 3. The energy, along the document's motion.
    parts = jax.vmap(lambda q, v: (mb.kinetic_energy(model, q, v), mb.potential_energy(model, q)))(own.q, own.v)
    kinetic, potential = (np.asarray(part) for part in parts)
    drift = np.abs(kinetic + potential - kinetic[0] - potential[0]) / kinetic.max()
    print(f"energy drifts by {drift.max():.1e} of the largest kinetic energy")
    assert drift.max() < 1e3 * tolerance, "energy is not kept"

    # 4. Four formulations at every frame.
    vd = jax.jit(jax.vmap(lambda q, v: mb.forward_dynamics(model, q, v)))(own.q, own.v)
    print(f"\n{'':14}{'coordinates':>12}{'linear system':>15}{'accelerations apart':>21}")
    errors = {}
    for kind in fm.ALL:
        name, (size, system) = kind.__name__, kind(model).unknowns
        found = jax.jit(jax.vmap(lambda q, v, kind=kind: kind(model).dynamics(q, v).vd))(own.q, own.v)
        errors[name] = np.abs(found - vd).max(1) / np.abs(vd).max()
        print(f"{name:14}{size:12}{system:15}{errors[name].max():21.1e}")
        assert errors[name].max() < 1e-9, name

    poses = jax.vmap(lambda q: mb.kinematics(model, q).pose)(own.q)
    tips = poses.translation - config["length"] * poses.rotation[..., 2]
    ends = np.asarray(jnp.stack([poses.translation, tips], 2))[..., ::2]  # (frames, bodies, 2, x and z)
    drawing = lambda axes: plot(axes, ts, ends, house, own, apart, drift, errors)
    mb.draw("out/09_twelve_body_tree.png", drawing, columns=3, size=(14, 4.8))


def plot(axes, ts, ends, house, own, apart, drift, errors):
    left, centre, right = axes
    for frame, shade in zip(np.linspace(0, len(ts) - 1, 3).astype(int), ("0.75", "0.5", "C0"), strict=True):
        for k, body in enumerate(ends[frame]):
            label = f"t = {ts[frame]:.1f} s" if k == 0 else None
            left.plot(*body.T, color=shade, marker="o", ms=2.5, lw=1.8, label=label)
    for k, body in enumerate(ends[-1]):
        left.annotate(str(k + 1), body.mean(0) + 0.03, fontsize=8)
    for k in (6, 9):
        left.plot(*ends[:, k, 1].T, f"C{k - 5}", lw=0.8, label=f"tip of body {k + 1}")
    left.set(xlabel="x, m", ylabel="z, m", title="the tree at three times", aspect="equal")
    left.legend(fontsize=8)
    few = slice(None, None, max(1, len(ts) // 25))
    for k in (0, 3, 6, 11):
        centre.plot(ts, np.asarray(house.q[:, 2 * k]), f"C{k % 10}", label=f"J{k + 1}")
        centre.plot(ts[few], np.asarray(own.q[:, 2 * k])[few], f"C{k % 10}.", ms=5)
    centre.set(xlabel="t, s", ylabel="angle, rad", title="lines: mb.simulate, points: Recursive")
    centre.legend(ncol=2)
    floor = lambda error: np.maximum(np.asarray(error)[1:], 1e-16)
    right.semilogy(ts[1:], floor(apart), "k", label="coordinates, Recursive and mb.simulate")
    right.semilogy(ts[1:], floor(drift), "k--", label="energy, relative")
    for name, error in errors.items():
        right.semilogy(ts[1:], floor(error), lw=0.8, label=f"accelerations, {name}")
    right.set(xlabel="t, s", ylabel="error", title="what must agree, and what must stay", ylim=(1e-17, 1e-5))
    right.legend(fontsize=8)


if __name__ == "__main__":
    main(mb.settings(__file__))
